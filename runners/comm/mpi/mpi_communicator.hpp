#pragma once

#include <mpi.h>

#include <memory>

#include "runners/comm/mpi/mpi_backend.hpp"

namespace heteroperf {

/// Collective. Takes over `handle` (not MPI_COMM_WORLD itself). `members`: the group's ranks in the
/// world. It is a PathReport, too.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm handle, std::vector<RankId> members,
                                                    std::shared_ptr<PeerWatch> watch,
                                                    const MpiSettings& settings);

}  // namespace heteroperf
