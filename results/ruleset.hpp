#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/run_summary.hpp"

namespace heteroperf {

/// Version of the table of rules; a record names the one it was judged by.
inline constexpr const char* ruleset_version = "1.5";

/// From best to worst; a run's class is the worst of its reasons, `closed` without any.
enum class Severity { closed, review, open, invalid };
const char* to_string(Severity severity);

/// A rule that does not hold, with what it expects and what it found.
struct Reason {
  std::string rule;
  Severity severity = Severity::open;
  std::string parameter, expected, actual, hint;
};

struct Validity {
  Severity severity = Severity::closed;
  bool rankable = true;
  std::vector<Reason> reasons;
};

/// What a predicate found against a run.
struct Finding {
  std::string expected, actual;
};

enum class Ranking { may, never };

struct Rule {
  const char* id;
  Severity severity;
  Ranking ranking;  ///< never: a run that trips it cannot be ranked
  const char* parameter;
  std::optional<Finding> (*check)(const Journal& journal, const RunSummary& summary);
  const char* hint;
};

/// All rules, in the order in which reasons are listed.
std::span<const Rule> all_rules();

Validity judge(const Journal& journal, const RunSummary& summary);

}  // namespace heteroperf
