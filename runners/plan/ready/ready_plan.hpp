#pragma once

#include <optional>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/ready/plan_schedule.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/times/stage_times.hpp"
#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/report.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {
/// The step that the simulator sees of a plan.
struct Prediction {
  double step_time_s = 0;  ///< from step to step: pipeline, reductions, optimizer, agreement
  double throughput = 0;   ///< samples per second
  ScheduleReport pipeline;
  IdVector<PositionId, double> reduction_exposed_s;
};

/// The times of a step: the pipeline of `timeline`, which is `schedule` simulated with `times`,
/// then the sums over replicas that it does not hide, the optimizer, and the agreement of all
/// ranks.
Prediction predict(const StagedGraph& staged, const Plan& plan, const StageTimes& times,
                   const Schedule& schedule, const Timeline& timeline);

/// One rank's memory at its fullest moment of a step.
struct MemoryLedger {
  Bytes weights, gradients, optimizer;
  Bytes activations;  ///< kept for backward, at their peak over the schedule's order
  Bytes buffers;  ///< boundary tensors, messages under way, the largest temporary of an operator
  Bytes total() const { return weights + gradients + optimizer + activations + buffers; }
};

/// A plan with everything that follows from it: checked against its model and machine, cut into
/// stages, timed, scheduled and predicted. This is the only place where these steps follow each
/// other, so the search, the certificate, the simulator and the engine see the same values: the
/// instructions that are predicted are those that run.
struct ReadyPlan {
  /// `used` is the machine as the plan uses it: its rank r is the plan's rank r (plan_cluster()).
  /// Rates that the plan knows better (Plan::efficiency) take the place of the cluster's. Without a
  /// cluster all stages cost the same and nothing is predicted.
  ///
  /// Throws UserError with all problems at once: another graph's hash, stages that overlap or miss
  /// nodes, ranks named twice or missing below the largest, replicas whose micro-batches do not add
  /// up to the same number in every stage, degrees that heads do not divide, a schedule that does
  /// not allow the counts, wires between stages without an edge, an unknown ZeRO stage; on a
  /// cluster also too few ranks, other device classes than the plan names, and ranks whose memory
  /// is too small ("stage 3 needs 41.2 GiB on rank 5, cpu (24.0 GiB available)").
  ReadyPlan(const TrainingTask& task, Plan plan, std::optional<Cluster> used = std::nullopt);

  /// The prediction; throws UserError with what the cluster lacks for one.
  const Prediction& predicted() const;
  /// [rank] seconds of a step in which a rank computes: its passes and the optimizer, without
  /// messages. Requires times.
  std::vector<double> busy_s() const;
  /// The share of the step in which its ranks do not compute. Requires a prediction.
  double idle_fraction() const;

  Plan plan;
  std::optional<Cluster> cluster;  ///< with the description's own rates
  StagedGraph staged;
  std::optional<StageTimes> times;       ///< where every class has a rate
  std::vector<Problem> unpredicted;      ///< why a cluster gives no times
  Schedule schedule;                     ///< lowered
  Timeline timeline;                     ///< the simulated schedule; unit costs without times
  std::vector<RankRole> roles;           ///< [rank]
  std::vector<MemoryLedger> memory;      ///< [rank]
  std::optional<Prediction> prediction;  ///< where there are times
};

/// A plan is refused for the memory of its devices alone.
class MemoryRefusal : public UserError {
 public:
  MemoryRefusal(std::vector<Problem> problems, Bytes most)
      : UserError(std::move(problems)), lacking(most) {}
  Bytes lacking;          ///< by the rank that lacks most
  bool at_least = false;  ///< states alone were counted
};

/// The plan made ready for the devices of a whole cluster that it uses.
ReadyPlan ready_on(const TrainingTask& task, Plan plan, const Cluster& whole);

/// ready_on() with as little more recomputation as the plan fits with: as it is, then every stage
/// with selective recomputation at least, then all in full. Throws the refusal that lacks least.
ReadyPlan ready_with_recomputation(const TrainingTask& task, Plan plan, const Cluster& whole);

}  // namespace heteroperf
