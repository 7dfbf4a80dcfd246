#pragma once

#include <memory>

#include "runners/comm/mpi/mpi_collectives.hpp"
#include "runners/comm/mpi/mpi_group.hpp"

namespace heteroperf {

/// Collectives made of MPI messages, for ranks on any hosts. `group` outlives them.
std::unique_ptr<MpiCollectives> make_message_collectives(const MpiGroup& group);

}  // namespace heteroperf
