// Started by mpirun: every rank runs every test, in step with the others.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "runners/cluster/shared_module.hpp"
#include "runners/comm/mpi/mpi_backend.hpp"
#include "runners/comm/mpi_launch.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"

namespace heteroperf {
namespace {

World* joined_world = nullptr;

class EveryTransport : public testing::TestWithParam<CommunicatorCase> {};

TEST_P(EveryTransport, OnMpi) { run_case(GetParam(), *joined_world); }

/// Messages cut to pieces of a few bytes, as buffers beyond 2 GiB are cut.
TEST_P(EveryTransport, OnMpiInPieces) {
  const SharedModule module = SharedModule::open("mpi", Visibility::global);
  MpiBackend& backend = *module.symbol<HeteroperfMpiEntry>("heteroperf_mpi_backend")();
  const auto watch = std::dynamic_pointer_cast<PeerWatch>(joined_world->control);
  World world{backend.make_world(watch, 40000), joined_world->control};
  run_case(GetParam(), world);
}

/// A stop is for good, so the last case waits for the end.
auto cases_before_the_stop() {
  const auto cases = communicator_cases();
  return testing::ValuesIn(cases.begin(), cases.end() - 1);
}

INSTANTIATE_TEST_SUITE_P(Mpi, EveryTransport, cases_before_the_stop(),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(MpiWorld, KnowsItsPlace) {
  const auto launched = detect_launcher();
  ASSERT_TRUE(launched);
  EXPECT_EQ(launched->launcher, "mpirun");
  EXPECT_EQ(launched->rank, joined_world->communicator->rank().value());
  EXPECT_EQ(launched->size, joined_world->communicator->size());
}

TEST(MpiWorld, EverybodyHearsOfAStop) { run_case(communicator_cases().back(), *joined_world); }

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    heteroperf::World world = heteroperf::join_mpi_world({});
    heteroperf::joined_world = &world;
    std::int32_t failed = RUN_ALL_TESTS();
    world.communicator->all_reduce(std::span<std::int32_t>(&failed, 1), heteroperf::Reduction::max);
    heteroperf::leave_mpi_world(std::move(world));
    return failed;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::fflush(nullptr);
    _exit(6);
  }
}
