#include <gtest/gtest.h>

#include "tests/ranks/comm/joined_world.hpp"
#include "tests/unit/runners/comm/large_buffers.hpp"

namespace heteroperf {
namespace {

class LargeBuffers : public testing::TestWithParam<HostPath> {};

TEST_P(LargeBuffers, OnMpi) {
  const World world = another_world({.host_path = GetParam()});
  const std::string why_not = no_room_for_large(*world.communicator);
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  run_large_operations(*world.communicator);
}

INSTANTIATE_TEST_SUITE_P(Mpi, LargeBuffers,
                         testing::Values(HostPath::messages, HostPath::shared_memory,
                                         HostPath::single_copy),
                         [](const auto& one) { return std::string(to_string(one.param)); });

}  // namespace
}  // namespace heteroperf
