#include "tests/unit/suite/hosts_watch_cases.hpp"

#include <gtest/gtest.h>

namespace heteroperf::test {
namespace {

constexpr double burnt_s = 0.2;  // CPU time of each rank: many of the kernel's ticks

std::vector<RankBinding> two_hosts(int ranks) {
  std::vector<RankBinding> bindings;
  for (int rank = 0; rank < ranks; ++rank) {
    bindings.push_back({rank % 2 == 0 ? "even" : "odd", {rank, 100 + rank % 2}, ""});
  }
  return bindings;
}

int ranks_beside(int rank, int ranks) { return (ranks - rank % 2 + 1) / 2; }

/// Counters that tell of the given busy time from the second reading on. Even hosts get hot.
HostsWatch::Reader told(double busy_s, bool is_even) {
  return [busy_s, is_even, readings = 0](const CpuSet&) mutable {
    HostCounters counters;
    const bool after = readings++ > 0;
    counters.busy_s = after ? 1000 + busy_s : 1000;
    counters.thermal_events = after && is_even ? 7 : 4;
    counters.quota_throttled_s = after && !is_even ? 2.5 : 1.0;
    counters.load = is_even ? 0.5 : after ? 3.0 : 1.5;
    return counters;
  };
}

/// Until this thread has computed so long.
void burn() {
  const auto cpu_s = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  for (const double start_s = cpu_s(); cpu_s() < start_s + burnt_s;) {
  }
}

}  // namespace

void check_hosts_watch(World& world) {
  Communicator& all = *world.communicator;
  const int rank = all.rank().value();
  const bool is_even = rank % 2 == 0;
  const auto bindings = two_hosts(all.size());
  // Less than the ranks of the host compute, more than all but one of them do.
  const double busy_s = burnt_s * (ranks_beside(rank, all.size()) - 0.5);
  HostsWatch watch(all, bindings, told(busy_s, is_even));
  burn();
  all.barrier();  // all have done their share, and are still there
  const auto so_far = watch.so_far();
  const auto load = watch.until_now();
  ASSERT_EQ(load.has_value(), rank < 2);
  ASSERT_EQ(so_far.has_value(), rank < 2);
  if (!load) return;
  EXPECT_EQ(load->host, is_even ? "even" : "odd");
  EXPECT_EQ(load->first_rank, rank);
  EXPECT_EQ(load->cpus, static_cast<std::uint64_t>(ranks_beside(rank, all.size()) + 1));
  EXPECT_EQ(load->thermal_events, is_even ? 3u : 0u);
  EXPECT_EQ(load->quota_throttled_s, is_even ? 0.0 : 1.5);
  EXPECT_EQ(load->load_before, is_even ? 0.5 : 1.5);
  EXPECT_EQ(load->load_after, is_even ? 0.5 : 3.0);
  // Ranks that are threads of one process are all on the first rank's host.
  const bool others = all.transport() == "threads" && !is_even;
  EXPECT_EQ(load->other_cpus > 0, others) << load->other_cpus;
  EXPECT_EQ(so_far->other_cpus > 0, others) << so_far->other_cpus;
  EXPECT_EQ(so_far->host, load->host);
  EXPECT_EQ(so_far->thermal_events, load->thermal_events);
}

}  // namespace heteroperf::test
