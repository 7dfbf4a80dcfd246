#pragma once

#include <memory>

#include "runners/engine/training.hpp"

namespace heteroperf {

/// The session behind Engine::start: data-parallel over `group`, which outlives it. Every rank
/// holds all parameters; gradients, summed over the group, meet in one all-reduce per step. Throws
/// UserError when the spec cannot run or differs between ranks.
std::unique_ptr<TrainingSession> start_training(const TrainingSpec& spec, Communicator& group,
                                                Communicator* devices = nullptr);

}  // namespace heteroperf
