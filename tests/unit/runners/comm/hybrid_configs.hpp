#pragma once

#include <functional>
#include <string>

#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {

/// One letter per rank, equal letters make a cluster: "aabb". The first rank is its bridge, and
/// so are those with a capital letter, with shares of 1, 2, 3, … parts.
RankClusters clusters_of(const std::string& pattern);

/// Always that algorithm, in segments of 1 KiB.
HybridConfig config_of(const std::string& pattern, Algorithm algorithm,
                       WireFormat wire = WireFormat::fp32);

/// A rank per thread; leaves together.
void run_hybrid(const HybridConfig& config, const std::function<void(HybridCommunicator&)>& body);

}  // namespace heteroperf
