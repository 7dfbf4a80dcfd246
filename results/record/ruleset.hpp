#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "results/record/run_summary.hpp"

namespace heteroperf {

/// Version of the table of rules; a record names the one it was judged by.
inline constexpr const char* ruleset_version = "1.10";

/// The workloads of a whole suite, in their order. A suite without all of them is partial.
inline constexpr std::array suite_workloads{"image", "automl-image", "llm"};
constexpr bool is_in_suite(std::string_view workload) {
  return std::find(suite_workloads.begin(), suite_workloads.end(), workload) !=
         suite_workloads.end();
}

/// From best to worst; a run's class is the worst of its reasons, `closed` without any.
enum class Severity { closed, review, open, invalid };
constexpr std::array<const char*, 4> value_names(Severity) {
  return {"closed", "review", "open", "invalid"};
}

/// A rule that does not hold, with what it expects and what it found.
struct Reason {
  std::string rule;
  Severity severity = Severity::open;
  std::string parameter, expected, actual, hint;
};

/// The verdict on a run: its class, and a reason for each rule that it broke, in the order of the
/// table.
struct Validity {
  Severity severity = Severity::closed;
  std::vector<Reason> reasons;

  bool rankable() const { return severity == Severity::closed; }
};

/// The finding of a predicate against a run.
struct Finding {
  std::string expected, actual;
};
/// Nothing where the rule holds.
using Verdict = std::optional<Finding>;

/// When a rule can be told first: from what a run is asked to be, from single steps, or from the
/// whole run. A record is judged by all of them.
enum class Moment { start, steps, end };
constexpr std::array<const char*, 3> value_names(Moment) { return {"start", "steps", "end"}; }

/// One rule. `id` names it in records and warnings, `parameter` the value or setting that it is
/// about, and `hint` tells the user what to do.
struct Rule {
  const char* id;
  const char* broken_by;  ///< when it does not hold, in words
  Severity severity;
  Moment moment;
  const char* parameter;
  Verdict (*check)(const Journal& journal, const RunSummary& summary);
  const char* hint;
};

/// All rules, in the order in which reasons are listed.
std::span<const Rule> all_rules();

/// Judges by all rules; this is the verdict of a record.
Validity judge(const Journal& journal, const RunSummary& summary);
/// By the rules of that moment alone.
Validity judge_at(Moment moment, const Journal& journal, const RunSummary& summary);

/// The demand on a run.
struct RunExpectation {
  std::optional<double> measured_s;  ///< absent where steps are counted instead
  bool measures_peak = true;
};
/// The findings against a run before its first step, from the lines that open its journal.
Validity foresee(Journal opening, const RunExpectation& expected);

}  // namespace heteroperf
