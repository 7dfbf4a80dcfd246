#pragma once

#include <vector>

#include "runners/plan/search/layer_sums.hpp"
#include "runners/plan/search/pipeline_clock.hpp"

namespace heteroperf {

/// What one stage of a draft takes, as stage_times() has it for its plan.
struct StageScore {
  ClockStage clock;
  double reduction_s = 0, optimizer_s = 0;
  double memory_bytes = 0;  ///< of its fullest rank, against that rank's limit
  double limit_bytes = 0;   ///< 0: not limited
  double excess_bytes = 0;  ///< beyond the limit; 0 where it fits
};

/// A draft's time and memory.
struct DraftScore {
  double step_time_s = 0;
  double makespan_s = 0;   ///< of the computation
  double agreement_s = 0;  ///< the last exchange of a step
  std::vector<StageScore> stages;
  bool fits() const;
};

/// Times drafts with the rules of stage_times() and predict(): `1f1b` with any warm-up, `zb-h1` and
/// `zb-h2` exactly. Cheap enough for every candidate of a search.
class DraftScorer {
 public:
  /// The problem outlives it and has passed check_problem().
  explicit DraftScorer(const PlanningProblem& problem) : problem_(problem), sums_(problem) {}

  DraftScore score(const PipelineDraft& draft) const;
  /// Of many micro-batches through many stages the exact time of a part of them, and for each other
  /// one the steady period; else score().
  DraftScore extrapolate(const PipelineDraft& draft) const;
  /// With the time of `1f1b` by formula instead of the exact clock.
  DraftScore estimate(const PipelineDraft& draft) const;

  /// Of the slowest group in each pass.
  ClockStage compute(const DraftStage& stage) const;
  /// Bytes that the stage's ranks of one group take at the most.
  double memory(const PipelineDraft& draft, std::size_t stage, const ReplicaGroup& group) const;
  const LayerSums& sums() const { return sums_; }
  const PlanningProblem& problem() const { return problem_; }

 private:
  DraftScore parts(const PipelineDraft& draft) const;
  double message(const DraftStage& from, const DraftStage& to, double bytes_per_sample) const;
  double ring(const std::vector<const DraftStage*>& stages, double bytes) const;
  bool shares_table(const PipelineDraft& draft, std::size_t stage) const;
  double reduced_parameters(const PipelineDraft& draft, std::size_t stage) const;
  double tied_reduction(const PipelineDraft& draft) const;
  double optimizer(const PipelineDraft& draft, std::size_t stage) const;
  double agreement(const PipelineDraft& draft) const;
  void finish(const std::vector<double>& ends, DraftScore& score) const;

  const PlanningProblem& problem_;
  LayerSums sums_;
};

}  // namespace heteroperf
