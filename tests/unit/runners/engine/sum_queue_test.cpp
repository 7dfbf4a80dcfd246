#include "runners/engine/gradients/gradient_reducer.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <stdexcept>

namespace heteroperf {
namespace {

class FakeSum final : public GradientSum {
 public:
  explicit FakeSum(std::function<void()> work) : work_(std::move(work)) {}
  void run() override { work_(); }
  std::vector<ArenaRange> owned() const override { return {}; }

 private:
  std::function<void()> work_;
};

std::vector<SumQueue::Entry> entries_of(const std::vector<std::function<void()>>& work,
                                        std::size_t parameters = 1) {
  std::vector<SumQueue::Entry> entries;
  for (const auto& each : work) entries.push_back({std::make_unique<FakeSum>(each), parameters});
  return entries;
}

class BothRunners : public ::testing::TestWithParam<SumQueue::Runner> {};
INSTANTIATE_TEST_SUITE_P(SumQueue, BothRunners,
                         ::testing::Values(SumQueue::Runner::own_thread, SumQueue::Runner::caller));

TEST_P(BothRunners, RunsInOrderWhateverIsFinalFirst) {
  std::vector<int> order;
  SumQueue queue({},
                 entries_of({[&] { order.push_back(0); }, [&] { order.push_back(1); },
                             [&] { order.push_back(2); }}),
                 GetParam(), {});
  for (int step = 0; step < 3; ++step) {
    order.clear();
    for (const std::size_t entry : {2, 0, 1}) queue.parameter_final(entry);
    queue.finish_step();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  }
}

/// What the caller runs is on its own lanes already.
TEST_P(BothRunners, OnlyItsOwnThreadIsTraced) {
  SumQueue queue({}, entries_of({[] {}, [] {}}), GetParam(), {});
  const auto step = [&] {
    for (const std::size_t entry : {0, 1}) queue.parameter_final(entry);
    queue.finish_step();
  };
  std::vector<LaneSpan> lanes;
  step();
  queue.trace_to(&lanes);
  step();
  queue.trace_to(nullptr);
  step();
  ASSERT_EQ(lanes.size(), GetParam() == SumQueue::Runner::own_thread ? 2u : 0u);
  for (const LaneSpan& span : lanes) {
    EXPECT_EQ(span.lane, TimeLane::overlapped_sums);
    EXPECT_LE(span.start_ns, span.end_ns);
  }
}

TEST_P(BothRunners, WhatASumThrowsReachesEveryFinish) {
  int later = 0;
  SumQueue queue({}, entries_of({[] { throw std::runtime_error("broken sum"); }, [&] { ++later; }}),
                 GetParam(), {});
  queue.parameter_final(0);
  queue.parameter_final(1);
  EXPECT_THROW(queue.finish_step(), std::runtime_error);
  EXPECT_THROW(queue.finish_step(), std::runtime_error);
  EXPECT_EQ(later, 0);
}

TEST_P(BothRunners, AnEmptyQueueFinishesAtOnce) {
  SumQueue queue({}, {}, GetParam(), {});
  queue.finish_step();
  EXPECT_EQ(queue.size(), 0U);
}

TEST(SumQueue, ASumWaitsForAllItsParameters) {
  std::atomic<int> runs{0};
  SumQueue queue({}, entries_of({[&] { ++runs; }}, 2), SumQueue::Runner::own_thread, {});
  queue.parameter_final(0);
  EXPECT_EQ(queue.done(), 0U);
  queue.parameter_final(0);
  queue.finish_step();
  EXPECT_EQ(runs, 1);
}

TEST(SumQueue, ItsThreadIsChargedToTheRank) {
  const RankMemory memory;
  SumQueue queue({},
                 entries_of({[] { at::empty({1000}, at::TensorOptions().dtype(at::kDouble)); }}),
                 SumQueue::Runner::own_thread, memory);
  queue.parameter_final(0);
  queue.finish_step();
  EXPECT_GE(memory.use().peak_bytes, 8000U);
}

TEST(SumQueue, IsDestroyedThoughASumDoesNotEnd) {
  std::promise<void> begun, release, ended;
  std::shared_future<void> released = release.get_future().share();
  {
    SumQueue queue({}, entries_of({[&begun, &ended, released] {
                     begun.set_value();
                     released.wait();
                     ended.set_value();
                   }}),
                   SumQueue::Runner::own_thread, {});
    queue.parameter_final(0);
    begun.get_future().wait();
  }
  release.set_value();
  ended.get_future().wait();
}

}  // namespace
}  // namespace heteroperf
