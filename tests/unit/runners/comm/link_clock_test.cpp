// The model of paced links, without a real clock.
#include "runners/comm/paced/link_clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "metrics/base/random.hpp"

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
  for (auto& local : begins) {
    takers.emplace_back([&bucket, &local] {
      for (int i = 0; i < turns; ++i) local.push_back(bucket.take(0, 3));
    });
  }
  for (auto& taker : takers) taker.join();
  std::vector<bool> taken(threads * turns);
  for (const auto& local : begins) {
    for (Instant begin : local) {
      ASSERT_EQ(begin % 3, 0);
      ASSERT_FALSE(taken[static_cast<std::size_t>(begin / 3)]);
      taken[static_cast<std::size_t>(begin / 3)] = true;
    }
  }
  EXPECT_EQ(bucket.free_at(), 3 * threads * turns);
}

TEST(RankTimeline, LateWaitsOfAnOperationDoNotAddUp) {
  RankTimeline timeline;
  timeline.begin_operation();
  // Each message is due 1000 after the last one's end; each wake-up comes 70 late.
  Instant clock = 5000;
  for (int i = 1; i <= 10; ++i) {
    const Instant began = timeline.now(clock), due = began + 1000;
    EXPECT_EQ(due, 5000 + i * 1000);
    clock = due + 70;
    EXPECT_EQ(timeline.waited(began, due, clock), 70);
  }
  // One is very late; then the clock catches up.
  Instant began = timeline.now(clock);
  EXPECT_EQ(timeline.waited(began, began + 1000, began + 3500), 2500);
  clock = began + 3500;
  began = timeline.now(clock);
  EXPECT_EQ(timeline.waited(began, began + 1000, clock + 20), 1520);
  timeline.end_operation();
  EXPECT_EQ(timeline.now(clock), clock);
}

TEST(RankTimeline, WorkBetweenWaitsCounts) {
  RankTimeline timeline;
  timeline.begin_operation();
  timeline.waited(0, 100, 130);
  EXPECT_EQ(timeline.now(130 + 400), 500);
  // Already here: the wait costs the transport's time only, which is not the model's.
  timeline.waited(timeline.now(530), 90, 550);
  EXPECT_EQ(timeline.now(550), 500);
}

TEST(RankTimeline, OutsideAnOperationEverythingCountsFromTheClock) {
  RankTimeline timeline;
  EXPECT_EQ(timeline.waited(0, 100, 900), 800);
  EXPECT_EQ(timeline.now(1000), 1000);
  timeline.begin_operation();
  timeline.waited(1000, 1100, 1300);
  timeline.end_operation();
  timeline.begin_operation();
  EXPECT_EQ(timeline.now(1300), 1300);
}

// ---- a schedule of several ranks on a clock that the test moves

/// Ranks in a ring, each with a link to the next; they share the card by twos. Every wait ends
/// late by chance.
class LateRing {
 public:
  LateRing(std::size_t ranks, std::uint64_t seed)
      : clocks(ranks), timelines(ranks), links_(ranks), cards_((ranks + 1) / 2), random_(seed) {
    for (Instant& clock : clocks) clock = 1000 + static_cast<Instant>(random_.below(5000));
  }

  /// Everybody sends to the next rank and waits for its own send and for what comes.
  void step(Bytes size) {
    const std::size_t n = clocks.size();
    std::vector<Passage> sent(n);
    for (std::size_t r = 0; r < n; ++r) {
      const CardUse card{&cards_[r / 2], BytesPerSecond(1.5e9), Bytes(burst)};
      sent[r] = pass(timelines[r].now(clocks[r]), size, plain_link(), links_[r], card);
    }
    for (std::size_t r = 0; r < n; ++r) {
      wait(r, sent[r].leaves);
      wait(r, sent[(r + n - 1) % n].arrives);
    }
  }
  std::vector<Instant> clocks;
  std::vector<RankTimeline> timelines;
  std::uint64_t burst = 0;

 private:
  void wait(std::size_t r, Instant due) {
    const Instant began = timelines[r].now(clocks[r]);
    const bool very = random_.below(10) == 0;
    const auto late = static_cast<Instant>(random_.below(very ? 50000 : 300));
    clocks[r] = std::max(clocks[r], due) + late;
    timelines[r].waited(began, due, clocks[r]);
  }

  std::vector<Bucket> links_, cards_;
  RandomStream random_;
};

/// However late ranks wake up, and whatever was late before: what is measured is never less than
/// the table's time.
TEST(Schedule, NoTransferAndNoOperationEndsBeforeItsTime) {
  RandomStream random(11);
  for (int round = 0; round < 300; ++round) {
    LateRing ring(2 + random.below(5), random.below(1 << 20));
    ring.burst = random.below(2) * 2000;
    for (int call = 0; call < 20; ++call) {
      const bool is_operation = random.below(2) == 0;
      const std::uint64_t steps = is_operation ? 1 + random.below(6) : 1;
      const Bytes size(random.below(8000));
      const std::vector<Instant> begin = ring.clocks;
      for (RankTimeline& timeline : ring.timelines) {
        if (is_operation) timeline.begin_operation();
      }
      for (std::uint64_t s = 0; s < steps; ++s) ring.step(size);
      for (RankTimeline& timeline : ring.timelines) {
        if (is_operation) timeline.end_operation();
      }
      Instant slowest = 0;
      for (std::size_t r = 0; r < begin.size(); ++r) {
        // A rank's own link carries its own messages.
        const auto on_link = static_cast<Instant>(steps * size.value());
        ASSERT_GE(ring.clocks[r] - begin[r], on_link) << "round " << round << " call " << call;
        slowest = std::max(slowest, ring.clocks[r] - begin[r]);
      }
      const auto one = to_duration(plain_link().time(size));
      ASSERT_GE(slowest, one) << "round " << round << " call " << call;
    }
  }
}

/// In any time window a card carries no more than its burst and its rate.
TEST(Schedule, ACardCarriesNoMoreThanItsBurstAndRate) {
  RandomStream random(12);
  for (int round = 0; round < 200; ++round) {
    const double bandwidth = 0.2e9;
    const std::uint64_t burst = random.below(3) * 5000;
    Bucket card;
    std::vector<Bucket> links(3);
    struct Sent {
      Instant leaves;
      std::uint64_t bytes;
    };
    std::vector<Sent> all;
    Instant now = 1'000'000;
    for (int i = 0; i < 40; ++i) {
      now += static_cast<Instant>(random.below(20000));
      const std::uint64_t bytes = random.below(6000);
      const CardUse use{&card, BytesPerSecond(bandwidth), Bytes(burst)};
      all.push_back({send(now, bytes, links[random.below(3)], use).leaves, bytes});
    }
    for (const Sent& first : all) {
      for (const Sent& last : all) {
        if (last.leaves < first.leaves) continue;
        std::uint64_t bytes = 0;
        for (const Sent& one : all) {
          if (one.leaves > first.leaves && one.leaves <= last.leaves) bytes += one.bytes;
        }
        const double seconds = static_cast<double>(last.leaves - first.leaves) / 1e9;
        // One message per link may have passed the card, in part at least, before it leaves.
        const double most = static_cast<double>(burst) + bandwidth * seconds + 3 * 6000;
        ASSERT_LE(static_cast<double>(bytes), most) << "round " << round;
      }
    }
  }
}

TEST(LinkClock, ABurstPassesAfterAPause) {
  Bucket link, card;
  const CardUse use{&card, BytesPerSecond(0.1e9), Bytes(3000)};
  // Full at first: the link's speed alone counts; then the card owes what it saves.
  EXPECT_EQ(send(1'000'000, 2000, link, use), (Passage{1'000'000, 1'002'000, 1'012'000}));
  EXPECT_EQ(send(1'002'000, 2000, link, use).leaves, 1'010'000);
  EXPECT_EQ(send(1'010'000, 1000, link, use).leaves, 1'020'000);
  // A pause of half the burst.
  EXPECT_EQ(send(1'035'000, 1000, link, use).leaves, 1'036'000);
  // Larger than the burst: the rest at the card's rate.
  EXPECT_EQ(send(2'000'000, 13000, link, use).leaves, 2'100'000);
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
