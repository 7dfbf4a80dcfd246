// Saving is collective, so all ranks must agree on when it is due. Steps are counted alike
// everywhere; the wall time is not, and rank 0's clock decides for all. The interval by time is
// counted from the end of the last save, so that a slow disk cannot make a run save without pause.
// Old checkpoints are removed only after the new one is whole, and by rank 0 alone. A failure to
// remove them costs disk space and becomes a warning.
#include "suite/training/checkpointing.hpp"

#include <utility>

#include "metrics/base/clock.hpp"

namespace heteroperf {

Checkpointing::Checkpointing(RankContext& context, Save save)
    : context_(context),
      config_(context.config.checkpoint),
      save_(std::move(save)),
      last_ns_(now_ns()) {}

void Checkpointing::after_step(std::uint64_t steps_done) {
  bool due = config_.every_steps > 0 && steps_done % config_.every_steps == 0;
  if (!due && config_.every_s > 0) {
    due = share_answer(context_.all_ranks(), seconds_since(last_ns_) >= config_.every_s);
  }
  if (due) save(steps_done);
}

void Checkpointing::at_end(std::uint64_t steps_done, bool interrupted) {
  const bool wanted = config_.at_end || (interrupted && config_.any());
  if (wanted && steps_done > 0 && last_step_ != steps_done) save(steps_done);
}

void Checkpointing::save(std::uint64_t steps_done) {
  const std::int64_t start_ns = now_ns();
  const auto folder = checkpoint_folder(context_.run_folder, steps_done);
  const CheckpointReport report = save_(folder.string());
  last_step_ = steps_done;
  if (context_.is_first()) {
    context_.post(CheckpointEvent{report.step, report.bytes, seconds_since(start_ns)});
    std::vector<std::string> warnings;
    prune_checkpoints(context_.run_folder, config_.keep, warnings);
    for (const std::string& warning : warnings) context_.post(WarningEvent{warning, ""});
  }
  last_ns_ = now_ns();
}

}  // namespace heteroperf
