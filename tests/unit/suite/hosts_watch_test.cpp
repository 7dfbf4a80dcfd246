#include "suite/watch/hosts_watch.hpp"

#include <gtest/gtest.h>

#include "tests/unit/suite/hosts_watch_cases.hpp"

namespace heteroperf {
namespace {

TEST(HostsWatch, EveryHostTellsOfItself) {
  for (const int ranks : {1, 2, 5}) {
    run_on_threads(ranks, {}, [](World& world) { test::check_hosts_watch(world); });
  }
}

TEST(HostsWatch, CpusBesideARankAreThoseOfItsHost) {
  const std::vector<RankBinding> bindings{{"a", {4, 5}, ""}, {"b", {4}, ""}, {"a", {1, 5}, ""}};
  EXPECT_EQ(cpus_beside(bindings, 0), (CpuSet{1, 4, 5}));
  EXPECT_EQ(cpus_beside(bindings, 1), (CpuSet{4}));
  EXPECT_EQ(cpus_beside(bindings, 2), cpus_beside(bindings, 0));
}

TEST(HostsWatch, AHostThatDoesNotTellHasNoEvent) {
  run_on_threads(2, {}, [](World& world) {
    const std::vector<RankBinding> bindings{{"a", {0}, ""}, {"b", {0}, ""}};
    const bool tells = world.communicator->rank() == RankId(1);
    HostsWatch watch(*world.communicator, bindings, [&](const CpuSet&) {
      HostCounters counters;
      if (tells) counters.busy_s = 1;
      return counters;
    });
    EXPECT_EQ(watch.until_now().has_value(), tells);
  });
}

}  // namespace
}  // namespace heteroperf
