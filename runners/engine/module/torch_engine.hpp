#pragma once

#include <memory>

#include "runners/engine/engine.hpp"

namespace heteroperf {

/// The engine itself, for code that links LibTorch (the module and the tests).
std::unique_ptr<Engine> make_torch_engine();

/// The session behind Engine::start. Every rank of `group` holds the parts of the parameters that
/// its stages of the plan need and runs its program of the plan's schedule; gradients are summed
/// over the replicas of each stage. `group` and `devices` (the same ranks over a library of their
/// GPUs) outlive the session. Throws UserError when the spec cannot run or differs between ranks.
std::unique_ptr<TrainingSession> start_training(const TrainingSpec& spec, Communicator& group,
                                                Communicator* devices = nullptr);

/// Throws UserError with every reason why `spec` cannot run on `ranks` ranks: counts out of range,
/// nodes without an operator or without a way to the loss, data that do not fit the graph, fewer
/// samples than ranks.
void check_training_spec(const TrainingSpec& spec, int ranks);

}  // namespace heteroperf
