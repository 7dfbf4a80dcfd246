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

std::size_t cluster_of(const ReshardPlan& plan, int rank) {
  const auto& clusters = plan.config.clusters.clusters;
  for (std::size_t i = 0; i < clusters.size(); ++i)
    for (const RankId member : clusters[i].ranks)
      if (member.value() == rank) return i;
  return 0;
}

std::set<std::size_t> clusters_of(const ReshardPlan& plan, const std::set<int>& ranks) {
  std::set<std::size_t> clusters;
  for (const int rank : ranks) clusters.insert(cluster_of(plan, rank));
  return clusters;
}

std::size_t lacking(const std::set<std::size_t>& wanted, const std::set<std::size_t>& there) {
  return static_cast<std::size_t>(std::count_if(
      wanted.begin(), wanted.end(), [&](std::size_t cluster) { return !there.contains(cluster); }));
}

/// The least number of times that elements cross between clusters.
std::size_t least_crossings(const ReshardPlan& plan, int ranks) {
  const Holders from = holders_by_element(plan.from, ranks);
  const Holders to = holders_by_element(plan.to, ranks);
  std::size_t crossings = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto sources = clusters_of(plan, from[i]), targets = clusters_of(plan, to[i]);
    if (plan.sources == GradientKind::replicate) {
      crossings += lacking(targets, sources);
    } else if (!targets.empty()) {
      const bool meets = lacking(targets, sources) < targets.size();
      crossings += sources.size() + targets.size() - (meets ? 2 : 1);
    }
  }
  return crossings;
}

std::size_t elements_that_ranks_lack(const ReshardPlan& plan, int ranks) {
  const Holders from = holders_by_element(plan.from, ranks);
  const Holders to = holders_by_element(plan.to, ranks);
  std::size_t lacked = 0;
  for (std::size_t i = 0; i < from.size(); ++i)
    for (const int rank : to[i]) lacked += from[i].contains(rank) ? 0 : 1;
  return lacked;
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

Bytes crossed(const ReshardPlan& plan) {
  Bytes bytes(0);
  for (const ReshardMessage& message : plan.messages)
    if (cluster_of(plan, message.from.value()) != cluster_of(plan, message.to.value()))
      bytes += message.size;
  return bytes;
}

void expect_sound(const ReshardPlan& plan, int ranks) {
  expect_rounds_without_conflict(plan);
  expect_pairs_merged(plan);
  expect_whole_messages(plan);
  EXPECT_EQ(crossed(plan).value(), 4 * least_crossings(plan, ranks));
  if (plan.sources == GradientKind::replicate) {
    EXPECT_EQ(moved(plan).value(), 4 * elements_that_ranks_lack(plan, ranks));
  }
}

}  // namespace heteroperf
