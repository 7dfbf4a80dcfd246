#pragma once

#include "runners/engine/training.hpp"
#include "suite/ranks/rank_context.hpp"

namespace heteroperf {

/// Settles how the products of this run are made (RankContext::products) and puts it into the
/// journal: as the configuration says, or the fastest way of each product that the ranks make when
/// they train as `spec` says. `rank` is this one's in the plan. Throws SystemError{environment}
/// where a rank lacks a way that is asked for. Collective over all ranks.
void settle_products(RankContext& context, const TrainingSpec& spec, RankId rank);

}  // namespace heteroperf
