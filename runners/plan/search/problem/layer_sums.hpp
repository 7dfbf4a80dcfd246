#pragma once

#include <vector>

#include "runners/plan/search/problem/pipeline_draft.hpp"
#include "runners/plan/search/problem/planning_problem.hpp"
#include "runners/plan/times/stage_times.hpp"

namespace heteroperf {

/// Sums over any range of layers in constant time.
class LayerSums {
 public:
  /// The problem outlives it and has passed check_problem().
  explicit LayerSums(const PlanningProblem& problem);

  /// One micro-batch on one replica.
  using Work = StageTimes::Compute;
  struct Range {
    int first = 0, end = 0;
  };

  /// True when the pool has times for micro-batches of so many samples at this degree.
  bool known(int pool, int degree, std::int64_t samples) const;
  /// Requires known().
  Work work(const ReplicaGroup& group, Range range, Recomputation recomputation) const;

  /// The choices that decide a rank's memory beside the range.
  struct Holding {
    Recomputation recomputation = Recomputation::none;
    int in_flight = 1;            ///< micro-batches kept at once
    int state_replicas = 1;       ///< replicas that share optimizer states
    bool split_backward = false;  ///< W apart from B
  };
  /// Bytes of one rank at its fullest moment.
  double memory(int degree, std::int64_t samples, Range range, const Holding& holding) const;
  /// The certain part of that: states and kept tensors, without what passes and messages need.
  double least_memory(int degree, std::int64_t samples, Range range, const Holding& holding) const;
  /// The part of it that does not depend on micro-batches.
  double state_memory(int degree, Range range, int state_replicas) const;

  /// The bytes that one micro-batch of a range takes: from F to B, from B to W, in passes beyond
  /// what is kept, and in messages.
  struct Activations {
    double kept = 0, split = 0, passing = 0, messages = 0;
  };
  Activations activations(int degree, std::int64_t samples, Range range,
                          Recomputation recomputation) const;

  /// Elements that one rank holds; a tied table counts where the range has its first layer alone,
  /// or all layers.
  double parameters(int degree, Range range) const;
  bool has_tied_copy(Range range) const {
    return !problem_.tied_parameters.empty() && range.end == problem_.layers && range.first > 0;
  }

 private:
  const std::vector<LayerBytes>& bytes(int degree, std::int64_t samples) const {
    return bytes_[degree][samples - 1];
  }
  double extra(int degree, std::int64_t samples, Range range, std::size_t recomputation) const;
  double messages(std::int64_t samples, Range range) const;

  const PlanningProblem& problem_;
  std::vector<std::vector<std::vector<std::vector<LayerTimes>>>> times_;  ///< [..][..][..][L+1]
  std::vector<std::vector<std::vector<LayerBytes>>>
      bytes_;  ///< [..][..][L+1]: kept and split of all layers before, extra of this one
  std::vector<std::vector<std::array<double, 3>>> inner_extra_;  ///< layers 1 to L−2
  std::vector<std::vector<double>> parameters_, frozen_bytes_;   ///< [..][L+1]
};

inline LayerSums::Work LayerSums::work(const ReplicaGroup& group, Range range,
                                       Recomputation recomputation) const {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const std::vector<LayerTimes>& sums =
      times_[at(group.pool)][at(group.degree)][at(group.samples - 1)];
  const LayerTimes &a = sums[at(range.first)], &b = sums[at(range.end)];
  Work work{b.forward_s - a.forward_s, 0, b.input_gradient_s - a.input_gradient_s,
            b.weight_gradient_s - a.weight_gradient_s};
  if (recomputation == Recomputation::full) work.recompute_s = work.forward_s;
  if (recomputation == Recomputation::selective) {
    work.input_gradient_s += b.attention_s - a.attention_s;
  }
  return work;
}

}  // namespace heteroperf
