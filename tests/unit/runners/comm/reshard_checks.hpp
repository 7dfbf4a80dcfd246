#pragma once

#include "runners/comm/reshard/reshard_plan.hpp"

namespace heteroperf {

/// Rounds without conflict, one message per pair and stage that holds its pieces, and no more bytes
/// than a count element by element allows.
void expect_sound(const ReshardPlan& plan, int ranks);

/// The bytes between ranks.
Bytes moved(const ReshardPlan& plan);

}  // namespace heteroperf
