#include "suite/watch/memory_rate.hpp"

#include <gtest/gtest.h>

#include <array>

#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

TEST(CallLog, CountsPartsOfCallsByTheirTime) {
  const CallLog log{100, {110, 130, 140}};
  EXPECT_EQ(log.window().start_ns, 100);
  EXPECT_EQ(log.window().end_ns, 140);
  EXPECT_DOUBLE_EQ(log.calls_in({100, 140}), 3);
  EXPECT_DOUBLE_EQ(log.calls_in({0, 1000}), 3);
  EXPECT_DOUBLE_EQ(log.calls_in({105, 125}), 0.5 + 0.75);
  EXPECT_DOUBLE_EQ(log.calls_in({115, 120}), 0.25);
  EXPECT_DOUBLE_EQ(log.calls_in({140, 150}), 0);
}

TEST(CallRepeatedly, EndsWithTheCallThatPassesTheTime) {
  std::int64_t now = 50;
  const auto slow = [&] { now += 4'000'000; };
  const NanosecondClock clock = [&] { return now; };
  const CallLog log = call_repeatedly(slow, 0.01, clock);
  EXPECT_EQ(log.start_ns, 50);
  EXPECT_EQ(log.ends_ns, (std::vector<std::int64_t>{4'000'050, 8'000'050, 12'000'050}));
  EXPECT_EQ(call_repeatedly(slow, 0, clock).ends_ns.size(), 1u) << "once at least";
}

TEST(CommonInterval, IsFromTheLastStartToTheFirstEnd) {
  const std::array<TimeWindow, 3> windows{{{10, 50}, {20, 60}, {0, 45}}};
  EXPECT_EQ(overlap_of(windows).start_ns, 20);
  EXPECT_EQ(overlap_of(windows).end_ns, 45);
}

/// Rank 2 takes no part; no burst of one rank alone can count.
TEST(CommonInterval, IsTheSameOnAllRanks) {
  const std::array<std::optional<TimeWindow>, 3> windows{TimeWindow{10, 50}, TimeWindow{-20, 40},
                                                         std::nullopt};
  run_on_threads(3, {}, [&](World& world) {
    const auto rank = world.communicator->rank().index();
    const auto common = common_interval(*world.communicator, windows[rank]);
    ASSERT_TRUE(common);
    EXPECT_EQ(common->start_ns, 10);
    EXPECT_EQ(common->end_ns, 40);
    EXPECT_FALSE(common_interval(*world.communicator, std::nullopt));
    const auto apart = static_cast<std::int64_t>(100 * rank);
    EXPECT_FALSE(common_interval(*world.communicator, TimeWindow{apart, apart + 100}));
  });
}

}  // namespace
}  // namespace heteroperf
