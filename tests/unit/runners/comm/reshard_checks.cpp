#include "tests/unit/runners/comm/reshard_checks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "tests/unit/runners/comm/reshard_cases.hpp"

namespace heteroperf {
namespace {

using Holders = std::vector<std::set<int>>;  ///< by element

Holders holders_by_element(const Layout& layout, int ranks) {
  Holders holders(static_cast<std::size_t>(layout.count()));
  for (int rank = 0; rank < ranks; ++rank)
    for (const std::int64_t element : elements_of(layout, RankId(rank)))
      holders[static_cast<std::size_t>(element)].insert(rank);
  return holders;
}

/// The least number of elements that ranks must send: those that ranks lack and, of sums, the
/// summands but one of each element, at a rank that wants the sum.
std::size_t least_moves(const ReshardPlan& plan, int ranks) {
  const Holders from = holders_by_element(plan.from, ranks);
  const Holders to = holders_by_element(plan.to, ranks);
  std::size_t moves = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto lacking = static_cast<std::size_t>(std::count_if(
        to[i].begin(), to[i].end(), [&](int rank) { return !from[i].contains(rank); }));
    if (plan.sources == GradientKind::replicate) {
      moves += lacking;
    } else if (!to[i].empty()) {
      const bool meets = lacking < to[i].size();
      moves += from[i].size() + to[i].size() - (meets ? 2 : 1);
    }
  }
  return moves;
}

void expect_rounds_without_conflict(const ReshardPlan& plan) {
  std::set<std::tuple<ReshardStage, int, RankId>> senders, receivers;
  std::map<std::pair<ReshardStage, RankId>, int> sends, receives;
  std::array<int, reshard_stages> degree{};
  for (const ReshardMessage& message : plan.messages) {
    const auto stage = static_cast<std::size_t>(message.stage);
    EXPECT_TRUE(senders.emplace(message.stage, message.round, message.from).second);
    EXPECT_TRUE(receivers.emplace(message.stage, message.round, message.to).second);
    EXPECT_NE(message.from, message.to);
    EXPECT_GE(message.round, 0);
    EXPECT_LT(message.round, plan.rounds[stage]);
    degree[stage] = std::max({degree[stage], ++sends[{message.stage, message.from}],
                              ++receives[{message.stage, message.to}]});
  }
  EXPECT_EQ(plan.rounds, degree);
}

void expect_pairs_merged(const ReshardPlan& plan) {
  std::set<std::tuple<ReshardStage, RankId, RankId>> pairs;
  for (const ReshardMessage& message : plan.messages)
    EXPECT_TRUE(pairs.emplace(message.stage, message.from, message.to).second);
}

void expect_whole_messages(const ReshardPlan& plan) {
  Bytes pieces(0);
  for (const Piece& piece : plan.pieces)
    pieces += Bytes(static_cast<std::uint64_t>(piece.box.count()) * 4);
  EXPECT_EQ(pieces, moved(plan));
}

}  // namespace

Bytes moved(const ReshardPlan& plan) {
  Bytes bytes(0);
  for (const ReshardMessage& message : plan.messages) bytes += message.size;
  return bytes;
}

void expect_sound(const ReshardPlan& plan, int ranks) {
  expect_rounds_without_conflict(plan);
  expect_pairs_merged(plan);
  expect_whole_messages(plan);
  EXPECT_EQ(moved(plan).value(), 4 * least_moves(plan, ranks));
}

}  // namespace heteroperf
