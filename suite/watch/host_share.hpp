#pragma once

#include <vector>

#include "runners/comm/communicator.hpp"
#include "suite/config/placement.hpp"

namespace heteroperf {

/// How this host's cores are shared, as seen by a rank of a launcher's world: ranks of one host
/// with the same affinity mask share it, ranks with masks of their own keep them. Collective.
struct HostShare {
  int ranks_on_host = 1;
  int ranks_on_mask = 1;
  int index_on_mask = 0;
};
HostShare share_of_host(Communicator& world, const UsableCores& cores);

/// The placement of a rank under a launcher, from its share.
Placement choose_launched_placement(const ScaleConfig& config, const UsableCores& cores,
                                    int world_ranks, const HostShare& share);

/// What every rank of the world is bound to, in rank order, on every rank. Collective.
std::vector<RankBinding> gather_bindings(Communicator& world, const RankBinding& mine);

}  // namespace heteroperf
