#pragma once

#include "runners/comm/communicator.hpp"
#include "runners/comm/selection/cost_model.hpp"

namespace heteroperf {

/// Measures the curves and corrections of a cost model, with all ranks at work, for vectors of up
/// to `largest` bytes; takes about one and a half seconds. `inside` has the ranks of this rank's
/// cluster in ascending order. Collective; the same result on all ranks.
CostModel measure_cost_model(Communicator& world, Communicator& inside,
                             const RankClusters& clusters, Bytes largest);

}  // namespace heteroperf
