#pragma once

#include <optional>

#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

/// The models `links` and `rendezvous` by counting time up in steps of 1: slow, but short. Of
/// computes and messages only, without slow-down; costs, latency and transfer times are whole and
/// no transfer takes 0. Fills spans of compute and `transfers`; empty where the programs hang.
std::optional<Timeline> count_ticks(const Schedule& schedule, const SimulationOptions& options);

}  // namespace heteroperf
