#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "results/journal/events.hpp"
#include "suite/planning/chosen_plan.hpp"
#include "suite/ranks/rank_context.hpp"

namespace heteroperf {

/// The median over a rank's steps since the last look at the plan.
struct MeasuredSteps {
  double step_s = 0;       ///< modelled where devices are emulated
  double computing_s = 0;  ///< the same; on emulated devices with the sums inside passes
};

/// Judges a plan by what the ranks measured, and finds a better one. It knows the machine better
/// after every search. Lives on rank 0, and calls nobody.
class PlanJudge {
 public:
  /// `start` is the plan that the training begins with, on a cluster with rates. Both references
  /// outlive it.
  PlanJudge(const Workload& workload, const ChosenPlan& start, double threshold);

  /// `measured` by rank, after `steps_done` steps of the plan in force. A plan in the event is the
  /// one in force from now on.
  AdaptEvent look(std::uint64_t steps_done, const std::vector<MeasuredSteps>& measured);

 private:
  /// The plan in force by all that is known: seconds of a step, and of each rank's computing in it,
  /// with the sums of tensor-parallel ranks and without.
  struct Planned {
    double step_s = 0;
    std::vector<double> with_sums_s, computing_s;
    std::vector<MemoryLedger> memory;  ///< [rank]
  };
  void plan_anew();
  void search(const EfficiencyMatrix& lesson, AdaptEvent& event);
  /// Says which rank cannot hold its state of the plan in force beside all of another; empty: none.
  std::string too_large_to_move(const std::vector<MemoryLedger>& next) const;
  TrainingTask task() const;

  const Workload& workload_;
  Plan plan_;                 ///< in force, without rates
  Cluster known_;             ///< with all rates learned so far
  EfficiencyMatrix learned_;  ///< those, and what the first plan knew
  Planned planned_;
  double threshold_;
  bool emulated_;
};

/// The part of one rank in a training that adapts: every so many measured steps all ranks look at
/// their plan, and go on by it or by another.
class Adaptation {
 public:
  /// All references outlive it.
  Adaptation(RankContext& context, const Workload& workload, const ChosenPlan& start);

  /// Takes note of a measured step.
  void add(const StepReport& report, const std::optional<PacingReport>& pacing);
  bool is_due() const { return step_s_.size() >= context_.config.adapt.every_steps; }

  /// A look at the plan in force, after so many steps. Returns the plan to change to, the same on
  /// every rank, or nothing; then the look is in the journal. Collective.
  std::optional<ChosenPlan> look(std::uint64_t steps_done);
  /// After the change to that plan, which took `seconds`: the look is in the journal.
  void note_change(const MoveReport& moved, double seconds);

 private:
  RankContext& context_;
  const Workload& workload_;
  const ChosenPlan& start_;
  std::optional<PlanJudge> judge_;  ///< on the first rank
  AdaptEvent event_;                ///< the last look, on the first rank
  std::vector<double> step_s_, computing_s_;
};

}  // namespace heteroperf
