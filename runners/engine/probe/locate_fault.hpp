#pragma once

#include <cstdint>
#include <optional>

#include "runners/engine/engine.hpp"
#include "runners/engine/operators/active_device.hpp"

namespace heteroperf {

/// See Engine. Every operator of `suspect` may be replaced, so its rules should allow that.
std::optional<LocatedFault> locate_fault(const TrainingSpec& spec, const ActiveDevice& suspect,
                                         const RankDevice& sound, int runs, std::uint64_t steps);

}  // namespace heteroperf
