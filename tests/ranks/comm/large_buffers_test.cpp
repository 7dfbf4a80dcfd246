#include <gtest/gtest.h>

#include "metrics/base/name_table.hpp"
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

// Shared memory moves a quarter of a MiB per meeting of the ranks, whatever the size: far too many
// meetings for a busy machine, and no count that grows with the buffer.
INSTANTIATE_TEST_SUITE_P(Mpi, LargeBuffers,
                         testing::Values(HostPath::messages, HostPath::single_copy),
                         [](const auto& one) { return std::string(to_string(one.param)); });

}  // namespace
}  // namespace heteroperf
