#pragma once

#include <filesystem>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"

namespace heteroperf {

/// Saves `folder` ("…/checkpoints/step-120") from all ranks of `world`. Collective; the report is
/// the same on every rank. What CheckpointWriter::publish() throws is thrown on every rank.
CheckpointReport save_checkpoint(Communicator& world, const std::filesystem::path& folder,
                                 const CheckpointState& state,
                                 const std::vector<TensorPiece>& pieces);

}  // namespace heteroperf
