#pragma once

#include <optional>
#include <string>
#include <vector>

#include "results/comparison/run_set.hpp"

namespace heteroperf {

/// Throughput of one class of devices, mean over its runs.
/// The unit is that of HeteroRatio::unit.
struct SideThroughput {
  std::string device_class;  ///< the mix names all of its classes
  std::uint64_t count = 0;
  double throughput = 0;
  double standard_error = 0;  ///< 0 of a single run
  std::size_t runs = 0;
};

/// HSR: throughput of a mixed cluster / sum of the throughputs of each class alone.
struct HeteroRatio {
  double hsr = 0;
  /// Student's t on the logarithm, errors of all sides by the delta method, degrees of freedom by
  /// Welch and Satterthwaite; absent unless every side has at least 2 runs.
  std::optional<Interval> hsr_ci95;
  double gain = 0;  ///< mix / best class
  std::string best_class;
  SideThroughput mix;
  double ideal_sum = 0;
  std::string unit;
  std::vector<SideThroughput> baselines;
  std::vector<std::string> notes;
};

/// `alone` holds the runs of one class each. Throws Error{not_comparable} that lists every field in
/// which they differ: model, data, precision, rules, build; and unless the classes and their counts
/// add up to those of the mix, on models of GPUs that it has, where records name them. Emulated
/// devices are compared in modelled time.
HeteroRatio hetero_ratio(const RunSet& mix, const std::vector<RunSet>& alone);

/// `heteroperf-hetero-ratio`.
Document hetero_ratio_document(const HeteroRatio& ratio);

}  // namespace heteroperf
