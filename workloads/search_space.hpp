#pragma once

#include <cstdint>
#include <vector>

#include "metrics/ops.hpp"
#include "workloads/model_graph.hpp"

namespace heteroperf {

/// What a morph's result must not exceed.
struct MorphLimits {
  std::uint64_t max_layers = 300;  ///< convolutions and linear layers
  std::uint64_t max_parameters = std::uint64_t{1} << 30;
  std::int64_t max_width = 4096;                   ///< channels of one tensor, the classes apart
  std::int64_t min_spatial_size = 2;               ///< no convolution is added on a smaller map
  Ops max_ops_per_sample{std::uint64_t{1} << 62};  ///< strict, training
};

/// Where the search looks.
struct SearchSpace {
  double dropout_min = 0.0, dropout_max = 0.3;               ///< uniform
  std::vector<std::int64_t> kernels{3, 5, 7};                ///< odd
  std::vector<std::int64_t> batches{16, 32, 64};             ///< samples per rank
  double learning_rate_min = 1e-3, learning_rate_max = 0.3;  ///< log-uniform

  std::uint64_t max_layers = 300;
  std::uint64_t max_parameters = std::uint64_t{1} << 30;
  std::int64_t max_width = 4096;
  std::int64_t min_spatial_size = 2;
  double max_ops_ratio = 4.0;  ///< strict training operations per sample over the initial model's
};

/// The one that a run's search looks in, with batches around the run's micro-batch.
SearchSpace search_space_around(std::int64_t batch);

/// Throws UserError with everything that is wrong (empty choices, even kernels, empty ranges, …).
void validate(const SearchSpace& space);

/// The space's limits with the ratio resolved against `initial`.
MorphLimits limits_for(const SearchSpace& space, const ModelGraph& initial);

}  // namespace heteroperf
