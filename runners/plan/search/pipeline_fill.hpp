#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "runners/plan/search/stage_filler.hpp"

namespace heteroperf {

/// Longer than any step: memory alone decides.
inline constexpr double any_period_s = 1e30;

/// Fills pipelines by dynamic programming, from the last stage to the first.
///
/// The pools that run one stretch of the pipeline are a group: its devices are spread evenly over
/// its stages, which replicate over all of its pools. A state is the set of pools used and the
/// number of stages made; of two ways to it the one that has covered more layers dominates.
class PipelineFill {
 public:
  /// The filler outlives it.
  /// Requires at most 31 pools, for a set of pools is a number of 32 bits.
  explicit PipelineFill(const StageFiller& filler);

  /// The devices of every stage, the first stage first.
  using Structure = std::vector<DeviceCounts>;

  /// At most `most_fills` stages are filled.
  /// Calls `visit` with the structure of every pipeline of undominated states that covers the model
  /// with each stage within `period_s`. False where there is none. Stops early where `stop` says
  /// so.
  bool run(double period_s, const FillRules& rules, const std::function<bool()>& stop,
           const std::function<void(Structure&&)>& visit);
  /// A structure filled from the last stage to the first; stages that get no layers are left out.
  /// Nothing where it does not cover the model.
  std::optional<PipelineDraft> fill(const Structure& structure, double period_s,
                                    const FillRules& rules) const;
  /// With the shortest period, to a part in a thousand, of those up to `period_s`.
  std::optional<PipelineDraft> tighten(const Structure& structure, double period_s,
                                       const FillRules& rules) const;

  /// Stages filled so far.

 private:
  static constexpr std::uint64_t most_fills = 20000;
  using PoolSet = std::uint32_t;
  struct State {
    int first = -1;        ///< layers before it are open; −1: not reached
    int from = -1;         ///< index of the state before
    DeviceCounts devices;  ///< that each added stage takes
    int stages = 0;
  };
  bool can_finish(PoolSet free, int first, double period_s, const FillRules& rules) const;
  bool is_dominated(std::size_t index) const;
  void extend(std::size_t index, PoolSet group, int stages, double period_s,
              const FillRules& rules);
  Structure structure(std::size_t index) const;
  std::size_t index_of(int stages, PoolSet used) const { return stages * sets_ + used; }

  const StageFiller& filler_;
  const PlanningProblem& problem_;
  std::size_t sets_ = 1;
  int most_stages_ = 1;
  std::vector<PoolSet> groups_;
  std::vector<std::vector<double>> device_seconds_;  ///< [pool][layers before]: per sample
  std::vector<State> states_;
  std::uint64_t fills_ = 0;
};

/// Why no plan of a problem fits the memory of its devices: how much more each would need, and how
/// many more of them. Where it is not the memory: which tables are empty.
std::vector<Problem> fit_problems(const PlanningProblem& problem);

}  // namespace heteroperf
