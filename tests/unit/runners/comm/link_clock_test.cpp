// The model of links, without a clock.
#include "runners/comm/paced/link_clock.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "metrics/random.hpp"
#include "runners/comm/paced/card_table.hpp"
#include "runners/comm/paced/pace_state.hpp"

namespace heteroperf {
namespace {

constexpr Instant us = 1000;

/// 10 us and 1 byte per nanosecond.
LinkCurve plain_link() { return {Seconds(10e-6), BytesPerSecond(1e9)}; }

Passage send(Instant posted, std::uint64_t bytes, Bucket& link, const CardUse& card = {}) {
  return pass(posted, Bytes(bytes), plain_link(), link, card);
}

TEST(LinkClock, OneMessageTakesLatencyAndBytes) {
  Bucket link;
  EXPECT_EQ(send(500, 4000, link), (Passage{500, 4500, 14500}));
  EXPECT_EQ(link.free_at(), 4500);
}

TEST(LinkClock, MessagesInARowPayTheLatencyOnce) {
  Bucket link;
  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(send(0, 2000, link), (Passage{0, i * 2000, i * 2000 + 10 * us}));
  }
  // After a pause the link owes nothing and has saved nothing up.
  EXPECT_EQ(send(50000, 2000, link), (Passage{50000, 52000, 62000}));
}

TEST(LinkClock, EmptyMessagesTakeTheLatencyAlone) {
  Bucket link;
  EXPECT_EQ(send(7, 0, link), (Passage{7, 7, 7 + 10 * us}));
  EXPECT_EQ(send(7, 0, link), (Passage{7, 7, 7 + 10 * us}));
}

TEST(LinkClock, DirectionsDoNotDisturbEachOther) {
  Bucket there, back;
  Bucket card_here, card_there;
  const BytesPerSecond rate(1e9);
  EXPECT_EQ(send(0, 8000, there, {&card_here, rate}), send(0, 8000, back, {&card_there, rate}));
}

TEST(LinkClock, RanksOfACardTakeTurns) {
  Bucket links[2], card;
  const CardUse use{&card, BytesPerSecond(1e9)};
  EXPECT_EQ(send(0, 3000, links[0], use), (Passage{0, 3000, 13000}));
  EXPECT_EQ(send(1000, 5000, links[1], use), (Passage{1000, 8000, 18000}));
  EXPECT_EQ(send(1000, 1000, links[0], use), (Passage{1000, 9000, 19000}));
}

TEST(LinkClock, AFastCardCarriesTwoLinksAtOnce) {
  Bucket links[2], card;
  const CardUse use{&card, BytesPerSecond(2e9)};
  EXPECT_EQ(send(0, 4000, links[0], use), (Passage{0, 4000, 14000}));
  EXPECT_EQ(send(0, 4000, links[1], use), (Passage{0, 6000, 16000}));
}

TEST(LinkClock, ASlowCardLimitsItsLink) {
  Bucket link, card;
  const CardUse use{&card, BytesPerSecond(0.25e9)};
  EXPECT_EQ(send(0, 1000, link, use), (Passage{0, 4000, 14000}));
  EXPECT_EQ(card.free_at(), 4000);
}

TEST(LinkClock, ACardOfUnknownBandwidthDoesNotLimit) {
  Bucket links[2], card;
  const CardUse use{&card, BytesPerSecond(0)};
  EXPECT_EQ(send(0, 1000, links[0], use), (Passage{0, 1000, 11000}));
  EXPECT_EQ(send(0, 1000, links[1], use), (Passage{0, 1000, 11000}));
}

TEST(LinkClock, CurvesAreFollowedPointByPoint) {
  const LinkCurve curve(
      {{Bytes(100), Seconds(5e-6)}, {Bytes(1000), Seconds(14e-6)}, {Bytes(2000), Seconds(15e-6)}});
  const auto arrives = [&](std::uint64_t bytes) {
    Bucket link;
    return pass(0, Bytes(bytes), curve, link, {}).arrives;
  };
  EXPECT_EQ(arrives(100), 5 * us);
  EXPECT_EQ(arrives(1000), 14 * us);
  EXPECT_EQ(arrives(1500), 14500);
  EXPECT_EQ(arrives(2000), 15 * us);
  EXPECT_EQ(arrives(12000), 25 * us);
  Bucket link;
  EXPECT_EQ(pass(0, Bytes(1000), curve, link, {}).leaves, 9 * us);
}

TEST(LinkClock, DurationsAreBounded) {
  EXPECT_EQ(to_duration(Seconds(1.5e-6)), 1500);
  EXPECT_EQ(to_duration(Seconds(-1)), 0);
  EXPECT_EQ(to_duration(Seconds(1e300)), to_duration(Seconds(1e12)));
}

TEST(LinkClock, ABucketIsNeverTakenTwice) {
  Bucket bucket;
  constexpr int threads = 4, turns = 20000;
  std::vector<std::vector<Instant>> begins(threads);
  std::vector<std::thread> takers;
  for (auto& mine : begins) {
    takers.emplace_back([&bucket, &mine] {
      for (int i = 0; i < turns; ++i) mine.push_back(bucket.take(0, 3));
    });
  }
  for (auto& taker : takers) taker.join();
  std::vector<bool> taken(threads * turns);
  for (const auto& mine : begins) {
    for (Instant begin : mine) {
      ASSERT_EQ(begin % 3, 0);
      ASSERT_FALSE(taken[static_cast<std::size_t>(begin / 3)]);
      taken[static_cast<std::size_t>(begin / 3)] = true;
    }
  }
  EXPECT_EQ(bucket.free_at(), 3 * threads * turns);
}

TEST(RankTimeline, LateWaitsDoNotAddUp) {
  RankTimeline timeline;
  // Each message is due 1000 after the last one's end; each wake-up comes 70 late.
  Instant clock = 5000;
  for (int i = 1; i <= 10; ++i) {
    const Instant began = timeline.now(clock), due = began + 1000;
    EXPECT_EQ(due, 5000 + i * 1000);
    clock = due + 70;
    timeline.waited(began, due, clock);
    EXPECT_EQ(timeline.lag(), 70);
  }
  // One is very late; then the clock catches up.
  Instant began = timeline.now(clock);
  timeline.waited(began, began + 1000, began + 3500);
  EXPECT_EQ(timeline.lag(), 2500);
  clock = began + 3500;
  began = timeline.now(clock);
  timeline.waited(began, began + 1000, clock + 20);
  EXPECT_EQ(timeline.lag(), 1520);
  timeline.forgive();
  EXPECT_EQ(timeline.now(clock), clock);
}

TEST(RankTimeline, WorkBetweenWaitsCounts) {
  RankTimeline timeline;
  timeline.waited(0, 100, 130);
  EXPECT_EQ(timeline.now(130 + 400), 500);
  // Already here: the wait costs the transport's time only, which is not the model's.
  timeline.waited(timeline.now(530), 90, 550);
  EXPECT_EQ(timeline.now(550), 500);
}

TEST(CardTable, MessagesInsideAHostPassNoCard) {
  const RankPlace a{"cpu", "h1", "one", {}}, b{"cpu", "h1", "two", {}}, c{"cpu", "h2", "one", {}};
  const RankPlace unknown{"cpu", "", "one", {}};
  EXPECT_FALSE(leaves_host(a, b));
  EXPECT_TRUE(leaves_host(a, c));
  EXPECT_FALSE(leaves_host(unknown, c));
  EXPECT_TRUE(leaves_host(unknown, b));
}

}  // namespace
}  // namespace heteroperf
