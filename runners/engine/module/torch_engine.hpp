#pragma once

#include <memory>

#include "runners/engine/engine.hpp"
#include "runners/engine/operators/active_device.hpp"

namespace heteroperf {

/// The engine itself, for code that links LibTorch (the module and the tests).
std::unique_ptr<Engine> make_torch_engine();

/// The session behind Engine::start. Every rank of `group` holds the parts of the parameters that
/// its stages of the plan need and runs its program of the plan's schedule; gradients are summed
/// over the replicas of each stage. `group` and `devices` (the same ranks over a library of their
/// GPUs) outlive the session. Throws UserError when the spec cannot run or differs between ranks.
std::unique_ptr<TrainingSession> start_training(const TrainingSpec& spec, Communicator& group,
                                                Communicator* devices = nullptr);

/// See Engine. Every operator of `suspect` may be replaced, so its rules should allow that.
std::optional<LocatedFault> locate_fault(const TrainingSpec& spec, const ActiveDevice& suspect,
                                         const RankDevice& sound, int runs, std::uint64_t steps);

}  // namespace heteroperf
