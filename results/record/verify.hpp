#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heteroperf {

/// A check's two texts are prose or JSON values of the record.
enum class CheckText { words, json };

/// One thing that was recomputed.
struct VerifyCheck {
  std::string name;  ///< "journal_chain", "record_bytes", "step_operations", …
  bool ok = false;
  std::string expected, actual;  ///< by recomputation; as stored
  CheckText text = CheckText::words;
  bool compared = true;  ///< false: this program lacks what it takes, and `ok` says nothing
};

/// The check that found `problem`, or, where that is empty, what was wanted.
inline VerifyCheck problem_check(std::string name, std::string wanted, const std::string& problem) {
  const bool ok = problem.empty();
  return {std::move(name), ok, wanted, ok ? wanted : problem};
}

struct Verification {
  std::vector<VerifyCheck> checks;
  /// Nothing that was compared differs.
  bool ok() const;
  /// Everything could be compared.
  bool compared() const;
  /// The document of `verify --json`: {"ok", "checks":[{name,ok,expected,actual}]}, "compared"
  /// false beside where it is.
  std::string to_json() const;
};

struct Journal;
/// The first claim of a journal's lines that others of its lines, its graphs or the runs of its
/// baselines in `folder` contradict (journal_checks/), in words. Empty where all agree.
std::string first_wrong_content(const Journal& journal, const std::filesystem::path& folder);

/// Recomputes everything a finished run, suite or sweep folder, or a folder of those, claims from
/// its journal and graphs, with the code that wrote it. Damage is a failed check, never an
/// exception; throws UserError when `path` holds no run.
Verification verify(const std::filesystem::path& path);

}  // namespace heteroperf
