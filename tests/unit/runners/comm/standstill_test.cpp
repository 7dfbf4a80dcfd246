// Living ranks that wait for each other: who counts as stuck, and when a wait is overdue.
#include "runners/comm/control/standstill.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <thread>

#include "metrics/base/random.hpp"
#include "runners/comm/control/connection.hpp"

namespace heteroperf {
namespace {

using Waits = std::vector<std::optional<OverdueWait>>;

std::vector<RankId> ranks(std::initializer_list<int> numbers) {
  std::vector<RankId> found;
  for (const int number : numbers) found.emplace_back(number);
  return found;
}

OverdueWait wait_for(std::initializer_list<int> needed, std::uint64_t id = 1) {
  return {id, ranks(needed)};
}

TEST(StuckRanks, TwoThatNeedEachOther) {
  EXPECT_EQ(stuck_ranks({std::nullopt, wait_for({2}), wait_for({1})}), ranks({1, 2}));
  // Who waits for them is stuck with them.
  EXPECT_EQ(stuck_ranks({wait_for({1}), wait_for({2}), wait_for({1})}), ranks({0, 1, 2}));
}

TEST(StuckRanks, NobodyIsWhileOneWorks) {
  // A barrier: all wait for all, rank 3 still computes.
  EXPECT_TRUE(
      stuck_ranks({wait_for({1, 2, 3}), wait_for({0, 2, 3}), wait_for({0, 1, 3}), std::nullopt})
          .empty());
  EXPECT_TRUE(stuck_ranks({wait_for({1}), std::nullopt}).empty());
  EXPECT_TRUE(stuck_ranks({wait_for({}), wait_for({0})}).empty());
  EXPECT_TRUE(stuck_ranks({wait_for({7}), wait_for({0})}).empty());  // no such rank
  EXPECT_TRUE(stuck_ranks({}).empty());
}

/// The definition, by trying every set.
std::set<std::size_t> largest_closed_set(const Waits& waits) {
  std::set<std::size_t> all;
  for (std::uint32_t mask = 1; mask < (1U << waits.size()); ++mask) {
    bool closed = true;
    for (std::size_t r = 0; r < waits.size() && closed; ++r) {
      if ((mask >> r & 1) == 0) continue;
      closed = waits[r] && !waits[r]->needed.empty();
      for (std::size_t i = 0; closed && i < waits[r]->needed.size(); ++i) {
        closed = (mask >> waits[r]->needed[i].value() & 1) != 0;
      }
    }
    for (std::size_t r = 0; closed && r < waits.size(); ++r) {
      if ((mask >> r & 1) != 0) all.insert(r);
    }
  }
  return all;
}

TEST(StuckRanks, AreTheLargestClosedSet) {
  RandomStream random(5);
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    Waits waits(2 + random.below(5));
    for (std::size_t r = 0; r < waits.size(); ++r) {
      if (random.below(5) == 0) continue;
      OverdueWait wait{1, {}};
      for (std::uint64_t n = random.below(3); n > 0; --n) {
        const auto peer = static_cast<std::int32_t>(random.below(waits.size()));
        if (static_cast<std::size_t>(peer) != r) wait.needed.emplace_back(peer);
      }
      waits[r] = wait;
    }
    std::set<std::size_t> stuck;
    for (const RankId rank : stuck_ranks(waits)) {
      stuck.insert(rank.index());
    }
    ASSERT_EQ(stuck, largest_closed_set(waits)) << "round " << round;
    found += !stuck.empty();
  }
  EXPECT_GT(found, 100);
}

/// All ranks say what they said before.
std::optional<RankFailure> after(Standstill& standstill, const Waits& waits, int signs_of_life) {
  for (int i = 0; i < signs_of_life; ++i) {
    for (std::size_t r = 0; r < waits.size(); ++r) {
      standstill.note(RankId(r), waits[r]);
    }
  }
  return standstill.verdict(30);
}

TEST(Standstill, NamesTheTwoAfterThreeSignsOfLife) {
  const Waits waits = {wait_for({1}), wait_for({2}), wait_for({0, 1})};
  Standstill standstill(3);
  EXPECT_FALSE(after(standstill, waits, 2));
  const auto failure = after(standstill, waits, 1);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, RankId(2));
  EXPECT_EQ(failure->kind, ErrorKind::timeout);
  EXPECT_NE(failure->reason.find("ranks 1 and 2 have waited for each other for 30 s"),
            std::string::npos)
      << failure->reason;
}

TEST(Standstill, NamesACircle) {
  Standstill standstill(4);
  const auto failure =
      after(standstill, {wait_for({1}), wait_for({3}), std::nullopt, wait_for({0})}, 3);
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->reason.find("ranks 0, 1, 3 have waited in a circle"), std::string::npos)
      << failure->reason;
}

TEST(Standstill, AWaitThatMovesOnStartsAgain) {
  Standstill standstill(2);
  EXPECT_FALSE(after(standstill, {wait_for({1}, 1), wait_for({0}, 1)}, 2));
  EXPECT_FALSE(after(standstill, {wait_for({1}, 1), wait_for({0}, 2)}, 1));
  EXPECT_FALSE(after(standstill, {wait_for({1}, 1), std::nullopt}, 5));
  EXPECT_FALSE(after(standstill, {wait_for({1}, 1), wait_for({0}, 3)}, 2));
  EXPECT_TRUE(after(standstill, {wait_for({1}, 1), wait_for({0}, 3)}, 1));
}

TEST(WaitLedger, AWaitIsOverdueAfterItsPatience) {
  WaitLedger ledger{RankId(1)};
  const auto peers = ranks({2, 1, 0, 2});
  EXPECT_FALSE(ledger.overdue(1e6, 1));
  ledger.waits_for(peers, Bytes(0), 100);
  EXPECT_FALSE(ledger.overdue(109, 10));
  const auto wait = ledger.overdue(110, 10);
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->needed, ranks({0, 2}));  // itself is no peer
  // Told again without a change.
  ledger.waits_for(peers, Bytes(0), 109);
  EXPECT_EQ(ledger.overdue(110, 10), wait);
  ledger.waits_no_more();
  EXPECT_FALSE(ledger.overdue(1e6, 10));
}

TEST(WaitLedger, ProgressStartsTheClockAgain) {
  WaitLedger ledger{RankId(0)};
  ledger.waits_for(ranks({1, 2}), Bytes(0), 100);
  const auto first = ledger.overdue(120, 10);
  ledger.waits_for(ranks({2}), Bytes(0), 119);
  EXPECT_FALSE(ledger.overdue(120, 10));
  const auto second = ledger.overdue(130, 10);
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->id, second->id);
}

/// A thread that computes may be about to send what a peer needs.
TEST(WaitLedger, AllThreadsMustWait) {
  const auto ledger = std::make_shared<WaitLedger>(RankId(0));
  ledger->note_thread();
  std::thread([&] {
    ledger->note_thread();
    ledger->waits_for(ranks({1}), Bytes(0), 0);
    EXPECT_FALSE(ledger->overdue(100, 10));
  }).join();
  // That thread has ended.
  EXPECT_FALSE(ledger->overdue(100, 10));
  ledger->waits_for(ranks({2}), Bytes(0), 0);
  EXPECT_TRUE(ledger->overdue(100, 10));
  std::thread([&] {
    ledger->note_thread();
    EXPECT_FALSE(ledger->overdue(100, 10));
    ledger->waits_for(ranks({1}), Bytes(0), 0);
    ASSERT_TRUE(ledger->overdue(100, 10));
    EXPECT_EQ(ledger->overdue(100, 10)->needed, ranks({1, 2}));
  }).join();
}

TEST(WaitLedger, AfterAPauseTheClockStartsAgain) {
  WaitLedger ledger{RankId(0)};
  ledger.waits_for(ranks({1}), Bytes(0), 100);
  ledger.start_again(500);
  EXPECT_FALSE(ledger.overdue(509, 10));
  EXPECT_TRUE(ledger.overdue(510, 10));
}

TEST(WaitLedger, BytesUnderWayHaveTheTimeOfASlowLink) {
  WaitLedger ledger{RankId(0)};
  ledger.waits_for(ranks({1}), Bytes(12'500'000), 0);  // 10 s at 10 Mbit/s
  EXPECT_FALSE(ledger.overdue(19.9, 10));
  EXPECT_TRUE(ledger.overdue(20, 10));
}

TEST(Frame, HeartbeatsCarryWaits) {
  EXPECT_FALSE(decode_heartbeat(heartbeat_frame(std::nullopt)));
  const OverdueWait wait{77, ranks({0, 5, 70000})};
  EXPECT_EQ(decode_heartbeat(heartbeat_frame(wait)), wait);
}

}  // namespace
}  // namespace heteroperf
