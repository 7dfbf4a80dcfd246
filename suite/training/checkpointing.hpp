#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "runners/engine/checkpoint/checkpoint.hpp"
#include "suite/ranks/rank_context.hpp"

namespace heteroperf {

/// Saves a training when `checkpoint.*` says so, into `<run>/checkpoints/step-<n>`, and removes
/// those that need not stay. All calls are collective over the run's ranks, between steps.
class Checkpointing {
 public:
  /// `save` writes the checkpoint folder it is given, collectively. The clock starts here.
  using Save = std::function<CheckpointReport(const std::string& folder)>;
  Checkpointing(RankContext& context, Save save);

  void after_step(std::uint64_t steps_done);
  /// A run that is stopped in order is saved too, where any key asks for checkpoints.
  void at_end(std::uint64_t steps_done, bool interrupted);

 private:
  void save(std::uint64_t steps_done);

  RankContext& context_;
  const CheckpointConfig& config_;
  Save save_;
  std::optional<std::uint64_t> last_step_;
  std::int64_t last_ns_;
};

}  // namespace heteroperf
