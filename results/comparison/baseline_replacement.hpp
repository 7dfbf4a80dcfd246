#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "results/comparison/run_set.hpp"

namespace heteroperf {

/// Says if new runs may take the place of saved ones. The values are ordered by weight: of several
/// objections the last one counts.
enum class ReplacementVerdict { allowed, inconclusive, regression };
const char* to_string(ReplacementVerdict verdict);

struct BaselineReplacement {
  ReplacementVerdict verdict = ReplacementVerdict::allowed;
  std::vector<std::string> reasons;  ///< against it, a metric each
};

/// Compares runs with those of their keys that are saved in `home`, a baseline's folder, which may
/// be absent. `regression`: a metric is worse. `inconclusive`: a statistical one is, by more than
/// the fraction `threshold` (with a single run on a side: than single_run_noise), but that may be
/// chance; or throughput is not to be had. Throws Error of the file's kind where a saved file that
/// would be replaced is unusable.
BaselineReplacement judge_replacement(const std::filesystem::path& home, const RunSet& runs,
                                      double threshold);

}  // namespace heteroperf
