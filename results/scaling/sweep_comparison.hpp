#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "results/comparison/run_comparison.hpp"

namespace heteroperf {

/// One workload at one point of two sweeps.
struct PointComparison {
  std::string point, workload;
  RunComparison comparison;
};

/// Two sweeps, point by point.
struct SweepComparison {
  SpeedVerdict verdict = SpeedVerdict::inconclusive;  ///< slower, inconclusive, faster, same: the
                                                      ///< first of these that any point has
  std::vector<PointComparison> points;
  std::vector<std::string> only_a, only_b;  ///< points without complete runs on the other side
};

/// Compares the complete runs of the points that both sweeps have. Throws as require_runs,
/// require_disjoint and require_comparable do, and Error{not_comparable} where they share no point.
SweepComparison compare_sweeps(const std::filesystem::path& a, const std::filesystem::path& b,
                               double margin);

/// As text, as Markdown, or as `heteroperf-sweep-comparison`.
std::string sweep_comparison_text(const SweepComparison& comparison, DocumentForm form,
                                  const TextStyle& style = {});

}  // namespace heteroperf
