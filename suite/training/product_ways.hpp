#pragma once

#include <vector>

#include "results/journal/events.hpp"
#include "runners/engine/training.hpp"
#include "suite/ranks/rank_context.hpp"

namespace heteroperf {

/// Says whether what an earlier run has measured on this machine counts.
enum class KnownProducts { taken, measured_anew };

/// The products that all ranks make when they train as `spec` says, each with the seconds of its
/// ways and the fastest one; empty where no product has a choice. `rank` is this one's in the plan.
/// What is measured here is kept for later runs. Collective over all ranks.
std::vector<MeasuredProduct> measure_products(RankContext& context, const TrainingSpec& spec,
                                              RankId rank, KnownProducts known);

/// Settles how the products of this run are made (RankContext::products) and puts it into the
/// journal: as the configuration says, or the fastest way of each product that the ranks make when
/// they train as `spec` says. `rank` is this one's in the plan. Where a rank lacks a way that is
/// asked for, its engine says so when it starts. Collective over all ranks.
void settle_products(RankContext& context, const TrainingSpec& spec, RankId rank);

}  // namespace heteroperf
