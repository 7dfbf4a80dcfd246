#pragma once

#include <memory>
#include <optional>
#include <string>

#include "suite/ranks/rank_context.hpp"

namespace heteroperf {

struct ChosenPlan;

/// Which samples of the validation split an evaluation takes: all of them where there are fewer.
struct EvaluationExtent {
  std::uint64_t first = 0;  ///< from this one on, and round the end of the split
  std::uint64_t fewest = 0, most = 0;
  std::uint64_t wrong = 0;  ///< between the two it ends after so many wrong answers
  bool is_final = false;
};

/// The extent of the evaluation of the model that a run ends with. A classifier's goes on until its
/// error is known well enough, but for a quick run and emulated devices. `plan`: of a fixed model;
/// null for a search, whose trials were judged on the first samples of the split: those come last.
EvaluationExtent final_extent(const RunConfig& config, const Workload& workload,
                              const ChosenPlan* plan);

/// "512 samples", or "512 samples or more".
std::string samples_text(const EvaluationExtent& extent);

/// The engine's view of a workload on this configuration, without a plan.
TrainingSpec training_spec(const RankContext& context, const Workload& workload);

/// The same by the plan of a fixed model.
TrainingSpec planned_spec(const RankContext& context, const Workload& workload,
                          const ChosenPlan& chosen);

/// The body of one rank for a workload with one fixed model: all ranks train it by the plan,
/// warm-up then measured phase, then evaluation. Throws Error{run_failed} when the loss is not
/// finite.
void run_training(RankContext& context, const Workload& workload, const ChosenPlan& plan);

/// Trains one model on one group of ranks and reports every step to the journal. All calls are
/// collective over the group.
class GroupTrainer {
 public:
  /// `trial` names the candidate in a search.
  GroupTrainer(RankContext& context, Communicator& group, int group_number,
               std::optional<std::uint64_t> trial, const TrainingSpec& spec);

  /// One optimizer step; the first one is observed at the dispatcher on every rank.
  StepReport step();
  /// A micro-batch per rank at a time; nothing, and no line in the journal, once the run is to
  /// stop.
  std::optional<EvaluationReport> evaluate(const EvaluationExtent& extent);
  /// Parameter fingerprints of every rank; `share` names what this one holds, empty: all.
  void post_checksums(const std::string& share = "");

  /// Goes on from a checkpoint after `step` steps; before the first step.
  void restore(const std::string& folder, std::uint64_t step);
  /// Goes on by another plan of the same training, between two steps. Emulated devices keep the
  /// dilation that they have. The first step by it is observed.
  MoveReport change_plan(TrainingSpec spec);

  std::uint64_t steps_done() const { return steps_done_; }
  TrainingSession& session() { return *session_; }
  /// Bytes of the fullest moment so far, under all plans.
  std::uint64_t peak_bytes() const;
  /// Operations are counted under all plans.
  std::optional<PacingReport> pacing() const;

 private:
  Ops ops_of(const StepReport& report) const;
  void post_step(const StepReport& report);

  RankContext& context_;
  Communicator& group_;
  int group_number_;
  std::optional<std::uint64_t> trial_;
  std::shared_ptr<const DataSource> data_;
  std::unique_ptr<TrainingSession> session_;
  std::uint64_t earlier_peak_bytes_ = 0;  ///< under plans that were left
  PacingReport earlier_pacing_;           ///< the same; its counts alone
  bool observed_ = false;
  std::uint64_t samples_per_slice_, tokens_per_sample_, steps_done_ = 0;
  ModelGraph graph_;
  Ops ops_per_step_;  ///< where samples have one image each
};

}  // namespace heteroperf
