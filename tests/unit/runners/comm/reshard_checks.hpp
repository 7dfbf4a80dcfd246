#pragma once

#include "runners/comm/reshard/reshard_plan.hpp"

namespace heteroperf {

/// Rounds without conflict, one message per pair and stage, tallies that add up, and no more bytes
/// than a count element by element allows.
void expect_sound(const ReshardPlan& plan, int ranks);

}  // namespace heteroperf
