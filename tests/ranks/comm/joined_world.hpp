#pragma once

#include "runners/comm/mpi/mpi_backend.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {

/// The world that main() has joined.
World& joined_world();

/// The same ranks once more, with other settings. Collective.
World another_world(const MpiSettings& settings);

}  // namespace heteroperf
