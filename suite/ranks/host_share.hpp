#pragma once

#include <vector>

#include "runners/comm/communicator.hpp"
#include "suite/config/placement.hpp"

namespace heteroperf {

/// The share of one rank of a launcher's world in its host's cores: ranks of one host with the same
/// affinity mask share it, ranks with masks of their own keep them.
struct HostShare {
  int ranks_on_host = 1;
  int ranks_on_mask = 1;
  int index_on_mask = 0;
};
/// Finds the share by comparing all ranks. Collective.
HostShare share_of_host(Communicator& world, const UsableCores& cores);

/// The placement of a rank under a launcher, from its share.
Placement choose_launched_placement(const ScaleConfig& config, const UsableCores& cores,
                                    int world_ranks, const HostShare& share);

/// Gathers the bindings of all ranks of the world, in rank order, on every rank. Collective.
std::vector<RankBinding> gather_bindings(Communicator& world, const RankBinding& binding);

}  // namespace heteroperf
