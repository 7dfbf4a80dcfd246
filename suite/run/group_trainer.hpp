#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "suite/run/rank_context.hpp"

namespace heteroperf {

class ValidationWindow;

/// Trains one model on one group of ranks and reports every step to the journal. All calls are
/// collective over the group.
class GroupTrainer {
 public:
  /// `trial` names the candidate in a search.
  GroupTrainer(RankContext& context, Communicator& group, int group_number,
               std::optional<std::uint64_t> trial, const TrainingSpec& spec);

  /// One optimizer step; the first one is observed at the dispatcher on every rank.
  StepReport step();
  /// Over the first `samples` of the validation split, a micro-batch per rank at a time. Asks
  /// `go_on` (collective, the same answer on every rank) before each; nothing, and no line in the
  /// journal, once it says no.
  std::optional<EvaluationReport> evaluate(std::uint64_t samples,
                                           const std::function<bool()>& go_on);
  /// Parameter fingerprints of every rank; `share` names what this one holds, empty: all.
  void post_checksums(const std::string& share = "");

  /// Collective; between steps.
  CheckpointReport save(const std::string& folder) { return session_->save(folder); }
  /// Goes on from a checkpoint after `step` steps; before the first step.
  void restore(const std::string& folder, std::uint64_t step);

  std::uint64_t steps_done() const { return steps_done_; }
  std::uint64_t samples_per_step() const { return samples_per_step_; }
  /// Strict training operations of one step of the whole group.
  Ops ops_per_step() const { return ops_per_step_; }
  MemoryReport memory() const { return session_->memory(); }
  const TrainingSession& session() const { return *session_; }

 private:
  void post_evaluation(const EvaluationReport& report);
  void post_step(const StepReport& report);
  void post_observed(const StepReport& report, const ObservedOperations& observed);
  StepSplit mean_split(const TimeSplit& mine);

  RankContext& context_;
  Communicator& group_;
  int group_number_;
  std::optional<std::uint64_t> trial_;
  std::shared_ptr<ValidationWindow> window_;
  std::unique_ptr<TrainingSession> session_;
  bool observed_ = false;
  std::uint64_t samples_per_slice_, samples_per_step_, steps_done_ = 0;
  std::uint64_t tokens_per_sample_;
  Ops ops_per_step_, evaluation_ops_per_sample_;
};

}  // namespace heteroperf
