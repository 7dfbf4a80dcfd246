#pragma once

#include <random>

#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// A number in [low, high], equal on every machine.
inline int pick(std::mt19937_64& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
}
inline bool chance(std::mt19937_64& random, int percent) { return pick(random, 1, 100) <= percent; }

/// Segments anywhere on a few ranks with edges from earlier to later ones (some of them without a
/// gradient), copies of weights, tied weights, interactions, parts, costs and latencies (some 0).
PipelineGraph random_graph(std::mt19937_64& random);

/// Tasks in any order in which each may start when it does; B and W or BW, second forwards, idle
/// cells and fused pairs now and then.
Schedule random_schedule(PipelineGraph graph, std::mt19937_64& random);

/// Every rank with all its forwards before all its gradients; segments by their distance from the
/// sources.
Schedule fill_and_drain(PipelineGraph graph);

/// A chain of two segments from each rank to the next, from the last one to the first.
PipelineGraph circle_graph(int ranks);

}  // namespace heteroperf
