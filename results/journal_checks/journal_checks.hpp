#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "results/journal/journal.hpp"
#include "results/record/verify.hpp"

namespace heteroperf {

/// Holds the lines of a journal to one another, a check per rule: graphs to their hashes,
/// operations and samples to graphs and plan, plan and scale to the request, trials to their
/// evaluations, and so on. A journal that was cut off after any line passes. results/README.md,
/// "Fields", names for each field the check that holds it.
std::vector<VerifyCheck> check_journal_lines(const Journal& journal);

/// The result of a class of devices alone, or why it does not count.
struct BaselineResult {
  std::optional<double> samples_per_s;    ///< modelled time where the devices are emulated
  std::optional<double> loss_difference;  ///< as BaselineEvent has it; none without common steps
  std::string reason;
};
/// The result of the run `alone`, which the run `mix` is held against.
BaselineResult baseline_result(const Journal& alone, const Journal& mix);

/// Holds a journal's `baseline` lines to its scale and to the runs that they name in `folder`, the
/// journal's own. A number is made again where the baseline was judged by this program's ruleset.
std::vector<VerifyCheck> check_baseline_lines(const Journal& journal,
                                              const std::filesystem::path& folder);

}  // namespace heteroperf
