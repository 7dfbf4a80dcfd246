#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace heteroperf {

struct Interval {
  double low = 0, high = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

struct BootstrapSettings {
  std::uint64_t seed = 1;
  int resamples = 2000;
  double level = 0.95;   ///< coverage asked for, in (0, 1)
  int block_length = 1;  ///< values drawn together; more than 1 where neighbours are correlated
};

using Statistic = std::function<double(std::span<const double>)>;

/// Percentile interval of `statistic` under the circular block bootstrap (Politis and Romano 1992;
/// with blocks of one value it is Efron's): every resample has as many values as `values`, in
/// blocks of neighbours whose starts are drawn with equal chance and that wrap around the end.
/// Positions come from RandomStream, so equal input gives equal bits on every machine.
Interval bootstrap_interval(std::span<const double> values, const Statistic& statistic,
                            const BootstrapSettings& settings = {});

}  // namespace heteroperf
