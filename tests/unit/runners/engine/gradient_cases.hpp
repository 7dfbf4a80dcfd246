#pragma once

#include <string>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/gradients/gradient_reducer.hpp"

namespace heteroperf::test {

/// A model under a plan: who holds which copies of its gradients.
struct GradientCase {
  std::string name;
  ModelGraph graph;
  Plan plan;
};

/// Replicas, uneven ones, tensor parallelism of equal and of different degrees, stages with
/// different numbers of replicas, two directions, tied weights within and across ranks.
std::vector<GradientCase> gradient_cases();

/// A plan made ready for one rank.
struct GradientRig {
  GradientRig(const GradientCase& given, Communicator& world, const ReductionConfig& config);
  /// Every copy's own random numbers, weighted by its share of the batch.
  void draw(std::uint64_t step);
  /// REDUCE_GRAD and REDUCE_TIED of all parts.
  void reduce_all();
  /// Every element this rank owns against the sum over the copies in their order, bit by bit.
  void expect_sums(std::uint64_t step) const;

  const GradientCase& given;
  RankId rank;
  StagedGraph staged;
  RankShare share;
  ParameterStore store;
  GradientReducer reducer;
};

/// Sums of every element over the whole model's parameters, squared.
double expected_square_sum(const GradientCase& given, std::uint64_t step);

/// Two steps of reduction and update, checked; the masters' bits.
std::string train_checked(const GradientCase& given, Communicator& world,
                          const ReductionConfig& config, int zero_stage);

}  // namespace heteroperf::test
