#pragma once

#include <span>

#include "runners/comm/hybrid/hybrid_communicator.hpp"

namespace heteroperf {

/// Segments that a window may have at most.
constexpr std::size_t most_in_flight = 64;

/// Throws UserError with everything wrong: clusters that do not partition the ranks of `world`,
/// bridges that are not of their cluster or have no share, a window out of range, a world in device
/// memory, staging that cannot be. `inside` may be null.
void check_hybrid(const HybridConfig& config, Communicator& world, Communicator* inside);

/// Whether contributions are added, not compared.
bool sums(Reduction reduction);

/// How values are sent over bridges. Throws UserError for types that cannot be encoded.
WireFormat bridge_wire(const HybridConfig& config, DataType type, Reduction reduction);

/// Elements of the longest segment of messages between clusters.
std::size_t longest_segment(DataType type, WireFormat wire);

/// The window, or more where the link between clusters is so long that it holds more.
std::size_t segments_in_flight(const HybridConfig& config);

/// Never automatic.
InsideStage inside_stage(const HybridConfig& config);

/// The clusters of a group whose member k was rank old_ranks[k]. A cluster that has lost its
/// bridges gets its first rank as one.
RankClusters restrict_to(const RankClusters& clusters, std::span<const std::int32_t> old_ranks);

/// The configuration of `part`, a part of the group in which this rank is `self`: without the
/// model, which was measured with all ranks at work, and in one cluster without rules for several.
/// Collective in `part`.
HybridConfig restrict_to(const HybridConfig& config, Communicator& part, RankId self);

}  // namespace heteroperf
