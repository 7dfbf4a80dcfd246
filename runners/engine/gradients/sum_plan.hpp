#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runners/engine/gradients/gradient_families.hpp"
#include "runners/engine/gradients/gradient_groups.hpp"
#include "runners/engine/gradients/gradient_sum.hpp"
#include "runners/engine/parameters/parameter_store.hpp"

namespace heteroperf {

/// What one rank sums, in order, and what of its arena counts as its own.
struct SumPlan {
  struct Sum {
    std::unique_ptr<GradientSum> sum;
    std::vector<std::size_t> parameters;  ///< ordinals
  };
  std::vector<Sum> sums;
  std::vector<ArenaRange> owned, counted;
  /// By ordinal: the stages that use it, tied or not.
  std::vector<std::vector<int>> users;
  std::vector<bool> tied;  ///< by ordinal
};

/// The sums of `rank` in the order that all ranks share; buckets of at least `bucket_bytes` where
/// there is as much. Groups and arenas stay for as long as the sums are used.
SumPlan plan_sums(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan, RankId rank,
                  const ParameterStore& store, const std::vector<GradientFamily>& families,
                  const GradientGroups& groups, std::size_t bucket_bytes);

}  // namespace heteroperf
