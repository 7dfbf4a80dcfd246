#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runners/plan/search/problem/layer_sums.hpp"
#include "runners/plan/search/score/pass_order.hpp"
#include "runners/plan/search/score/pipeline_clock.hpp"

namespace heteroperf {

/// The times and memory of one stage of a draft, as stage_times() has them for its plan.
struct StageScore {
  ClockStage clock;
  double reduction_s = 0, optimizer_s = 0;
  /// The memory of its fullest rank, against that rank's limit; of several chunks the first has it
  /// all.
  double memory_bytes = 0;
  double limit_bytes = 0;   ///< 0: not limited
  double excess_bytes = 0;  ///< beyond the limit; 0 where it fits
};

/// A draft's time and memory.
struct DraftScore {
  double step_time_s = 0;
  double makespan_s = 0;   ///< the computation alone
  double agreement_s = 0;  ///< the last exchange of a step
  std::vector<StageScore> stages;
  bool finds_nodes = true;  ///< nodes hold its tensor-parallel groups
  bool fits() const;
  std::vector<ClockStage> clocks() const;
};

/// Times drafts with the rules of stage_times() and predict(): `1f1b` with any warm-up, `zb-h1`,
/// `zb-h2` and the schedules of several chunks exactly. Cheap enough for every candidate of a
/// search. Keeps orders of passes: not for several threads.
class DraftScorer {
 public:
  /// The problem outlives it and has passed check_problem().
  explicit DraftScorer(const PlanningProblem& problem) : problem_(problem), sums_(problem) {}

  /// Infinite seconds where the schedule does not allow the draft's numbers.
  DraftScore score(const PipelineDraft& draft) const;
  /// Null where the schedule does not allow the draft's numbers.
  const PassOrder* order_of(const PipelineDraft& draft) const;
  /// Scores a draft of one chunk: for many micro-batches through many stages the exact time of a
  /// part, and for each other one the steady period; else score().
  DraftScore extrapolate(const PipelineDraft& draft) const;
  /// Scores a draft of one chunk with the time of `1f1b` by formula instead of the exact clock.
  DraftScore estimate(const PipelineDraft& draft) const;

  /// The time of the slowest group in each pass.
  ClockStage compute(const DraftStage& stage) const;
  const LayerSums& sums() const { return sums_; }
  const PlanningProblem& problem() const { return problem_; }

 private:
  const PlanningProblem& problem_;
  LayerSums sums_;
  mutable std::map<std::tuple<std::string, int, int, int>, std::optional<PassOrder>> orders_;
};

}  // namespace heteroperf
