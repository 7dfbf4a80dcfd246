#pragma once

#include <mpi.h>

#include <memory>

#include "runners/comm/communicator.hpp"
#include "runners/comm/peer_watch.hpp"

namespace heteroperf {

/// Takes over `handle` (not MPI_COMM_WORLD itself). `members`: the group's ranks in the world.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm handle, std::vector<RankId> members,
                                                    std::shared_ptr<PeerWatch> watch,
                                                    std::size_t max_message_bytes);

}  // namespace heteroperf
