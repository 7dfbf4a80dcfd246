#include "tests/ranks/comm/joined_world.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "runners/cluster/shared_module.hpp"
#include "runners/comm/mpi_launch.hpp"

namespace heteroperf {
namespace {

World* the_world = nullptr;

/// Started by mpirun: every rank runs every test, in step with the others.
int run_all_tests() {
  World world = join_mpi_world({});
  the_world = &world;
  std::int32_t failed = RUN_ALL_TESTS();
  world.communicator->all_reduce(std::span<std::int32_t>(&failed, 1), Reduction::max);
  leave_mpi_world(std::move(world));
  return failed;
}

}  // namespace

World& joined_world() { return *the_world; }

World another_world(const MpiSettings& settings) {
  const SharedModule module = SharedModule::open("mpi", Visibility::global);
  MpiBackend& backend = *module.symbol<HeteroperfMpiEntry>("heteroperf_mpi_backend")();
  const auto watch = std::dynamic_pointer_cast<PeerWatch>(joined_world().control);
  return {backend.make_world(watch, settings), joined_world().control};
}

}  // namespace heteroperf

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    return heteroperf::run_all_tests();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::fflush(nullptr);
    _exit(6);
  }
}
