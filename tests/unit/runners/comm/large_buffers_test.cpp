#include "tests/unit/runners/comm/large_buffers.hpp"

#include <gtest/gtest.h>

#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

TEST(LargeBuffers, OnThreads) {
  std::string why_not;
  run_on_threads(2, {}, [&](World& world) {
    const std::string reason = no_room_for_large(*world.communicator);
    if (reason.empty()) return run_large_operations(*world.communicator);
    if (world.communicator->rank() == RankId(0)) why_not = reason;
  });
  if (!why_not.empty()) GTEST_SKIP() << why_not;
}

}  // namespace
}  // namespace heteroperf
