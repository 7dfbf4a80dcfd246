#pragma once

#include <string>

#include "results/comparison/run_evidence.hpp"

namespace heteroperf {

/// A metric that was not judged, and why.
struct SkippedMetric {
  std::string name, reason;
};

/// Returns in words the first condition that differs among the runs of both sides, or an empty
/// text. Losses agree bit for bit only from one seed, in one order of sums, on one processor.
std::string why_losses_may_differ(const RunPairs& runs);

}  // namespace heteroperf
