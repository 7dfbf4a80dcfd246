#pragma once

#include <functional>
#include <vector>

#include "runners/plan/search/stage_filler.hpp"

namespace heteroperf {

/// Fills pipelines by dynamic programming, from the last stage to the first.
///
/// The pools that run one stretch of the pipeline are a group: its devices are spread evenly over
/// its stages, which replicate over all of its pools. A state is the set of pools used and the
/// number of stages made; of two ways to it the one that has covered more layers dominates.
class PipelineFill {
 public:
  /// The filler outlives it.
  explicit PipelineFill(const StageFiller& filler);

  /// Calls `visit` with every pipeline of undominated states that covers the model with each stage
  /// within `period_s`. False where there is none. Stops early where `stop` says so.
  bool run(double period_s, const FillRules& rules, const std::function<bool()>& stop,
           const std::function<void(PipelineDraft&&)>& visit);

 private:
  using PoolSet = std::uint32_t;
  struct State {
    int first = -1;  ///< layers before it are open; −1: not reached
    int from = -1;   ///< index of the state before
    std::vector<DraftStage> stages;  ///< added to it, the last one first
  };
  bool can_finish(PoolSet free, int first, double period_s, const FillRules& rules) const;
  void extend(std::size_t index, PoolSet group, int stages, double period_s,
              const FillRules& rules);
  PipelineDraft draft(std::size_t index, const FillRules& rules) const;
  std::size_t index_of(int stages, PoolSet used) const {
    return static_cast<std::size_t>(stages) * sets_ + used;
  }

  const StageFiller& filler_;
  const PlanningProblem& problem_;
  std::size_t sets_ = 1;
  int most_stages_ = 1;
  std::vector<PoolSet> groups_;
  std::vector<std::vector<double>> device_seconds_;  ///< [pool][layers before]: per sample
  std::vector<State> states_;
};

}  // namespace heteroperf
