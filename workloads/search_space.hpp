#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "metrics/ops.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// Limits that the result of a morph must not exceed.
struct MorphLimits {
  std::uint64_t max_layers = 300;  ///< number of convolutions and linear layers
  std::uint64_t max_parameters = std::uint64_t{1} << 30;
  std::int64_t max_width = 4096;      ///< channels of one tensor; the classes do not count
  std::int64_t min_spatial_size = 2;  ///< no convolution is added on a smaller map
  Ops max_ops_per_sample{std::uint64_t{1} << 62};  ///< strict operations of training
};

/// The space of architectures and hyper-parameters that a search looks in. Its limit of operations
/// is relative to the initial model.
struct SearchSpace : MorphLimits {
  double dropout_min = 0.0, dropout_max = 0.3;               ///< drawn uniformly
  std::vector<std::int64_t> kernels{3, 5, 7};                ///< odd numbers, smallest first
  std::vector<std::int64_t> batches{16, 32, 64};             ///< samples per rank
  double learning_rate_min = 1e-3, learning_rate_max = 0.3;  ///< drawn log-uniformly

  double max_ops_ratio = 4.0;  ///< strict training operations per sample over the initial model's
};

/// Returns the space of a run's search, with batches around the run's micro-batch.
inline SearchSpace search_space_around(std::int64_t batch) {
  SearchSpace space;
  space.batches = {std::max<std::int64_t>(1, batch / 2), batch, 2 * batch};
  return space;
}

/// Returns the limits of a search, with the space's ratio resolved against `initial`.
inline MorphLimits limits_for(const SearchSpace& space, const ModelGraph& initial) {
  // Counting in thousandths keeps the limit an exact integer.
  const auto ratio_milli = static_cast<std::uint64_t>(std::llround(space.max_ops_ratio * 1000.0));
  MorphLimits limits = space;
  limits.max_ops_per_sample = strict_train_ops(initial, 1) * ratio_milli / 1000;
  return limits;
}

}  // namespace heteroperf
