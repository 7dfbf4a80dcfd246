#include "workloads/search_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

/// Notes ranges that are empty or out of bounds.
void check_ranges(const SearchSpace& space, ProblemList& problems) {
  if (!(space.dropout_min >= 0.0 && space.dropout_min <= space.dropout_max &&
        space.dropout_max < 1.0)) {
    problems.add(fmt::format("dropout range is {} … {}", space.dropout_min, space.dropout_max),
                 "needs 0 ≤ dropout_min ≤ dropout_max < 1");
  }
  if (!(space.learning_rate_min > 0.0 && space.learning_rate_min <= space.learning_rate_max &&
        std::isfinite(space.learning_rate_max))) {
    problems.add(fmt::format("learning-rate range is {} … {}", space.learning_rate_min,
                             space.learning_rate_max),
                 "needs 0 < learning_rate_min ≤ learning_rate_max");
  }
}

/// Notes choices that are missing or impossible.
void check_choices(const SearchSpace& space, ProblemList& problems) {
  if (space.kernels.empty()) problems.add("there is no kernel size to choose from");
  for (std::int64_t kernel : space.kernels) {
    if (kernel < 1 || kernel % 2 == 0) {
      problems.add(fmt::format("kernel size is {}", kernel), "must be odd and positive");
    }
  }
  if (space.batches.empty()) problems.add("there is no batch size to choose from");
  for (std::int64_t batch : space.batches) {
    if (batch < 1) problems.add(fmt::format("batch size is {}", batch), "must be at least 1");
  }
}

/// Notes limits that nothing could satisfy.
void check_limits(const SearchSpace& space, ProblemList& problems) {
  const auto at_least_one = [&](const char* name, auto value) {
    if (value < 1) problems.add(fmt::format("{} is {}", name, value), "must be at least 1");
  };
  at_least_one("max_layers", space.max_layers);
  at_least_one("max_parameters", space.max_parameters);
  at_least_one("max_width", space.max_width);
  at_least_one("min_spatial_size", space.min_spatial_size);
  if (!(space.max_ops_ratio >= 1.0 && space.max_ops_ratio <= 1e6)) {
    problems.add(fmt::format("max_ops_ratio is {}", space.max_ops_ratio), "must be in 1 … 10⁶");
  }
}

}  // namespace

SearchSpace search_space_around(std::int64_t batch) {
  SearchSpace space;
  space.batches = {std::max<std::int64_t>(1, batch / 2), batch, 2 * batch};
  return space;
}

void validate(const SearchSpace& space) {
  ProblemList problems;
  check_ranges(space, problems);
  check_choices(space, problems);
  check_limits(space, problems);
  problems.throw_if_any();
}

MorphLimits limits_for(const SearchSpace& space, const ModelGraph& initial) {
  // Counting in thousandths keeps the limit an exact integer.
  const auto ratio_milli = static_cast<std::uint64_t>(std::llround(space.max_ops_ratio * 1000.0));
  return {space.max_layers, space.max_parameters, space.max_width, space.min_spatial_size,
          strict_train_ops(initial, 1) * ratio_milli / 1000};
}

}  // namespace heteroperf
