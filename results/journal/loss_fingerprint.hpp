#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "results/journal/events.hpp"

namespace heteroperf {

/// Steps whose losses make a fingerprint; every run that can be ranked has more.
inline constexpr std::uint64_t fingerprint_steps = 16;

/// A fingerprint of the losses of the first steps of a fixed model, bit by bit: equal for runs that
/// computed the same in the same order of sums. Absent with fewer steps, of a search, with several
/// groups, or where a loss is not finite.
std::optional<std::string> loss_fingerprint(const std::vector<const StepEvent*>& steps);

}  // namespace heteroperf
