#pragma once

#include <memory>

#include "runners/comm/mpi/host_path.hpp"
#include "runners/comm/mpi/mpi_collectives.hpp"

namespace heteroperf {

/// Bytes of shared memory that make_shared_collectives() needs for so many ranks.
std::size_t shared_memory_bytes(std::size_t ranks);

/// Collectives of ranks on one host. Small data are copied through shared memory, larger ones in
/// overlapping parts; with single copy, large ones go straight between the ranks' buffers. `group`
/// outlives them.
std::unique_ptr<MpiCollectives> make_shared_collectives(const MpiGroup& group, HostChoice choice);

}  // namespace heteroperf
