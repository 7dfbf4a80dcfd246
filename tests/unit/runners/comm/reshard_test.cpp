#include "runners/comm/reshard/reshard_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "metrics/error.hpp"
#include "runners/comm/reshard/message_rounds.hpp"
#include "runners/comm/reshard/reshard_cache.hpp"
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

void expect_tallies(const ReshardPlan& plan) {
  Bytes by_clusters(0), sent(0), received(0), pieces(0), moved(0);
  for (const ClusterTraffic& pair : plan.clusters) by_clusters += pair.size;
  for (const CardTraffic& card : plan.cards) {
    sent += card.sent;
    received += card.received;
  }
  for (const Piece& piece : plan.pieces)
    pieces += Bytes(static_cast<std::uint64_t>(piece.box.count()) * 4);
  for (const ReshardMessage& message : plan.messages) moved += message.size;
  EXPECT_EQ(by_clusters, plan.crossed);
  EXPECT_EQ(sent, plan.crossed);
  EXPECT_EQ(received, plan.crossed);
  EXPECT_EQ(pieces, plan.moved);
  EXPECT_EQ(moved, plan.moved);
}

void expect_sound(const ReshardPlan& plan, int ranks) {
  expect_rounds_without_conflict(plan);
  expect_pairs_merged(plan);
  expect_tallies(plan);
  EXPECT_EQ(plan.crossed.value(), 4 * least_crossings(plan, ranks));
  if (plan.sources == GradientKind::replicate) {
    EXPECT_EQ(plan.moved.value(), 4 * elements_that_ranks_lack(plan, ranks));
  }
}

void expect_moves_indices(const ReshardPlan& plan, int ranks) {
  const std::vector<float> tensor = linear_indices(plan.from);
  EXPECT_EQ(play(plan, spread(tensor, plan.from, ranks)), spread(tensor, plan.to, ranks));
}

void expect_reshards(const Layout& from, const Layout& to, const ReshardConfig& config, int ranks) {
  SCOPED_TRACE(to_string(from) + "\n  to " + to_string(to));
  const ReshardPlan plan = plan_reshard(from, to, config);
  expect_sound(plan, ranks);
  expect_moves_indices(plan, ranks);
}

TEST(Reshard, CoprimeEvenCutsMakeTheLeastBoxes) {
  for (const auto& [n, m] : {std::pair(3, 5), {4, 6}, {8, 8}, {7, 1}, {1, 7}, {12, 9}}) {
    const Layout from = even_cut({n * m * 4}, 0, 0, n), to = even_cut({n * m * 4}, 0, n, m);
    const ReshardPlan plan = plan_reshard(from, to, fine_config());
    EXPECT_EQ(plan.pieces.size(), static_cast<std::size_t>(n + m - std::gcd(n, m)));
    EXPECT_EQ(plan.moved.value(), static_cast<std::uint64_t>(n * m * 4 * 4));
    expect_reshards(from, to, fine_config(), n + m);
  }
}

TEST(Reshard, DisjointClustersMoveTheTensorOnce) {
  const ReshardPlan plan =
      plan_reshard(even_cut({30, 4}, 0, 0, 3), even_cut({30, 4}, 1, 3, 2), fine_config("aaabb"));
  EXPECT_EQ(plan.crossed.value(), 30u * 4 * 4);
  ASSERT_EQ(plan.clusters.size(), 1u);
  EXPECT_EQ(plan.clusters[0].messages, 6);
  expect_sound(plan, 5);
  expect_moves_indices(plan, 5);
}

TEST(Reshard, ReplicasCrossOnceAndAreForwarded) {
  const ReshardPlan plan =
      plan_reshard(even_cut({64}, 0, 0, 2), replicated({64}, 2, 4), fine_config("aabbbb"));
  EXPECT_EQ(plan.crossed.value(), 64u * 4);
  EXPECT_EQ(plan.moved.value(), 4 * 64u * 4);
  EXPECT_GT(plan.rounds[static_cast<std::size_t>(ReshardStage::forward)], 0);
  // Every replica brings in its quarter.
  std::map<RankId, std::uint64_t> brought;
  for (const ReshardMessage& message : plan.messages)
    if (message.stage == ReshardStage::deliver) brought[message.to] += message.size.value();
  EXPECT_EQ(brought, (std::map<RankId, std::uint64_t>{
                         {RankId(2), 64}, {RankId(3), 64}, {RankId(4), 64}, {RankId(5), 64}}));
  expect_moves_indices(plan, 6);
}

TEST(Reshard, ASliceIsNotSmallerThanAsked) {
  ReshardConfig config = fine_config("aabbbb");
  config.smallest_slice = Bytes(1024);
  const ReshardPlan plan = plan_reshard(even_cut({64}, 0, 0, 2), replicated({64}, 2, 4), config);
  for (const Piece& piece : plan.pieces) EXPECT_EQ(piece.box.count(), 32);
  EXPECT_EQ(plan.crossed.value(), 64u * 4);
  expect_moves_indices(plan, 6);
}

TEST(Reshard, ReplicatedSourcesShareTheWork) {
  const ReshardPlan plan =
      plan_reshard(replicated({120}, 0, 3), even_cut({120}, 0, 3, 6), fine_config("aaabbbbbb"));
  std::map<RankId, std::uint64_t> sent;
  for (const ReshardMessage& message : plan.messages) sent[message.from] += message.size.value();
  EXPECT_EQ(sent, (std::map<RankId, std::uint64_t>{
                      {RankId(0), 160}, {RankId(1), 160}, {RankId(2), 160}}));
}

TEST(Reshard, CardsShareByTheirBandwidth) {
  ReshardConfig config = fine_config("aaab");
  config.clusters.clusters[0].bridges = {{RankId(0), "slow", 0.25}, {RankId(2), "fast", 0.75}};
  const ReshardPlan plan = plan_reshard(replicated({400}, 0, 3), even_cut({400}, 0, 3, 1), config);
  // Ranks 0 and 1 go over the first card. Slices are thirds of the tensor.
  std::map<std::string, std::uint64_t> sent;
  for (const CardTraffic& card : plan.cards) sent[card.card] = card.sent.value();
  EXPECT_EQ(sent["slow"] + sent["fast"], 1600u);
  EXPECT_LT(sent["slow"], sent["fast"]);

  config.cards = {"x", "y", "y", "z"};
  config.clusters.clusters[0].bridges = {{RankId(0), "x", 0.5}, {RankId(1), "y", 0.5}};
  const ReshardPlan named =
      plan_reshard(replicated({400, 8}, 0, 3), even_cut({400, 8}, 1, 3, 1), config);
  ASSERT_EQ(named.cards.size(), 3u);
  EXPECT_EQ(named.cards[0].card, "x");
}

TEST(Reshard, ASourceInTheOwnClusterIsPreferred) {
  const Layout from({8}, {{0, 8}}, {{RankId(0), RankId(2)}});
  const ReshardPlan plan = plan_reshard(from, replicated({8}, 1, 3), fine_config("aabb"));
  EXPECT_EQ(plan.crossed, Bytes(0));
  expect_sound(plan, 4);
  expect_moves_indices(plan, 4);
}

TEST(Reshard, EqualLayoutsOnlyCopy) {
  const Layout layout = even_cut({6, 7}, 1, 0, 3);
  const ReshardPlan plan = plan_reshard(layout, layout, fine_config("aab"));
  EXPECT_TRUE(plan.messages.empty());
  EXPECT_EQ(plan.copies.size(), 3u);
  expect_moves_indices(plan, 3);
}

TEST(Reshard, ColocatedWithPartialOverlap) {
  expect_reshards(even_cut({24, 5}, 0, 0, 4), even_cut({24, 5}, 0, 2, 3), fine_config("aabbb"), 5);
  expect_reshards(even_cut({24, 5}, 0, 0, 4), even_cut({24, 5}, 1, 1, 4), fine_config("ababa"), 5);
}

TEST(Reshard, ZigzagTiles) {
  const Layout zigzag({2, 8}, {{0, 2}, {0, 2, 4, 6, 8}},
                      {{RankId(0)}, {RankId(1)}, {RankId(1)}, {RankId(0)}});
  expect_reshards(zigzag, even_cut({2, 8}, 1, 0, 2), fine_config(), 2);
  expect_reshards(even_cut({2, 8}, 0, 0, 2), zigzag, fine_config("ab"), 2);
}

TEST(Reshard, ThreeDimensionsOverMeshes) {
  const Layout::Shape shape{12, 10, 8};
  const Mesh first{rank_range(0, 12), {{"dp", 3}, {"cp", 2}, {"tp", 2}}};
  const Mesh second{rank_range(12, 8), {{"dp", 2}, {"tp", 4}}};
  const Layout from = Layout::over(shape, first, {{0, {"dp"}, {}}, {1, {"cp"}, {3, 7}}});
  const Layout to = Layout::over(shape, second, {{2, {"tp"}, {}}, {0, {"dp"}, {5, 7}}});
  expect_reshards(from, to, fine_config(std::string(12, 'a') + std::string(8, 'b')), 20);
  expect_reshards(to, from, fine_config(std::string(12, 'a') + "bbbbcccc"), 20);
}

TEST(Reshard, RandomLayoutsArriveAndCrossOnce) {
  RandomLayouts random(1);
  for (int i = 0; i < 400 && !::testing::Test::HasFailure(); ++i) {
    const int ranks = random.number(1, 9);
    const Layout::Shape shape = random.shape();
    const Layout from = random.layout(shape, ranks), to = random.layout(shape, ranks);
    ReshardConfig config = fine_config(random.letters(ranks));
    config.smallest_slice = Bytes(static_cast<std::uint64_t>(random.number(0, 40)));
    expect_reshards(from, to, config, ranks);
  }
}

TEST(Reshard, ThereAndBackIsTheIdentity) {
  RandomLayouts random(2);
  for (int i = 0; i < 150 && !::testing::Test::HasFailure(); ++i) {
    const int ranks = random.number(1, 8);
    const Layout::Shape shape = random.shape();
    const Layout from = random.layout(shape, ranks), to = random.layout(shape, ranks);
    const ReshardPlan plan = plan_reshard(from, to, fine_config(random.letters(ranks)));
    const RankTensors sources = spread(linear_indices(from), from, ranks);
    EXPECT_EQ(play(adjoint(plan, GradientKind::replicate), play(plan, sources)), sources);
  }
}

TEST(Reshard, PlansAreDeterministic) {
  RandomLayouts random(3);
  const Layout::Shape shape{13, 11};
  const Layout from = random.layout(shape, 8), to = random.layout(shape, 8);
  const ReshardConfig config = fine_config("aabbaabc");
  EXPECT_EQ(plan_reshard(from, to, config), plan_reshard(from, to, config));
  EXPECT_EQ(plan_sum(from, to, config), plan_sum(from, to, config));
}

// --- the way back ----------------------------------------------------------------------------

/// Small integers, so that every order of adding gives the same bits.
std::vector<float> small_values(std::size_t count, std::mt19937& engine) {
  std::uniform_int_distribution<int> any(-8, 8);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(any(engine));
  return values;
}

RankTensors independent_values(const Layout& layout, int ranks, std::mt19937& engine) {
  RankTensors tensors;
  for (int rank = 0; rank < ranks; ++rank)
    tensors.push_back(small_values(static_cast<std::size_t>(layout.count(RankId(rank))), engine));
  return tensors;
}

/// What the ranks' tensors add up to.
std::vector<float> added_up(const RankTensors& tensors, const Layout& layout) {
  std::vector<float> sum(static_cast<std::size_t>(layout.count()), 0.0f);
  for (std::size_t rank = 0; rank < tensors.size(); ++rank) {
    const auto elements = elements_of(layout, RankId(static_cast<int>(rank)));
    for (std::size_t i = 0; i < elements.size(); ++i)
      sum[static_cast<std::size_t>(elements[i])] += tensors[rank][i];
  }
  return sum;
}

double product(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double product(const RankTensors& a, const RankTensors& b) {
  double sum = 0;
  for (std::size_t rank = 0; rank < a.size(); ++rank) sum += product(a[rank], b[rank]);
  return sum;
}

/// The tensor that all replicas agree on.
std::vector<float> agreed(const RankTensors& tensors, const Layout& layout) {
  std::vector<float> tensor(static_cast<std::size_t>(layout.count()));
  for (std::size_t rank = 0; rank < tensors.size(); ++rank) {
    const auto elements = elements_of(layout, RankId(static_cast<int>(rank)));
    for (std::size_t i = 0; i < elements.size(); ++i)
      tensor[static_cast<std::size_t>(elements[i])] = tensors[rank][i];
  }
  EXPECT_EQ(spread(tensor, layout, static_cast<int>(tensors.size())), tensors);
  return tensor;
}

/// ⟨Ax, y⟩ = ⟨x, Aᵀy⟩, where partial gradients of all replicas count and equal ones count once.
TEST(ReshardAdjoint, ProductsAgree) {
  RandomLayouts random(4);
  std::mt19937 engine(5);
  for (int i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) {
    const int ranks = random.number(1, 8);
    const Layout::Shape shape = random.shape();
    const Layout from = random.layout(shape, ranks), to = random.layout(shape, ranks);
    SCOPED_TRACE(to_string(from) + "\n  to " + to_string(to));
    const ReshardPlan plan = plan_reshard(from, to, fine_config(random.letters(ranks)));
    const auto count = static_cast<std::size_t>(from.count());
    const std::vector<float> x = small_values(count, engine);
    const RankTensors image = play(plan, spread(x, from, ranks));

    const ReshardPlan summing = adjoint(plan, GradientKind::partial);
    const RankTensors partial = independent_values(to, ranks, engine);
    expect_sound(summing, ranks);
    EXPECT_EQ(product(image, partial), product(x, agreed(play(summing, partial), from)));

    const ReshardPlan picking = adjoint(plan, GradientKind::replicate);
    const std::vector<float> y = small_values(count, engine);
    EXPECT_EQ(product(agreed(image, to), y),
              product(x, agreed(play(picking, spread(y, to, ranks)), from)));
  }
}

TEST(ReshardAdjoint, PartialGradientsAddUpElementByElement) {
  RandomLayouts random(6);
  std::mt19937 engine(7);
  for (int i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) {
    const int ranks = random.number(1, 9);
    const Layout::Shape shape = random.shape();
    const Layout from = random.layout(shape, ranks), to = random.layout(shape, ranks);
    SCOPED_TRACE(to_string(from) + "\n  to " + to_string(to));
    const ReshardPlan plan = plan_sum(from, to, fine_config(random.letters(ranks)));
    const RankTensors summands = independent_values(from, ranks, engine);
    expect_sound(plan, ranks);
    EXPECT_EQ(play(plan, summands), spread(added_up(summands, from), to, ranks));
  }
}

TEST(ReshardAdjoint, AddsInRankOrderThenClusterByCluster) {
  // 2^24 + 1 is not a float32: only (2^24 + -2^24) + 1 keeps the one.
  const float big = 16777216.0f;
  const Layout from = replicated({1}, 0, 3), to = replicated({1}, 3, 1);
  const RankTensors summands{{big}, {1.0f}, {-big}, {}};
  EXPECT_EQ(play(plan_sum(from, to, fine_config("aaaa")), summands)[3][0], 0.0f);
  EXPECT_EQ(play(plan_sum(from, to, fine_config("abac")), summands)[3][0], 1.0f);
  EXPECT_EQ(play(plan_sum(from, to, fine_config("abbb")), summands)[3][0], 1.0f);
}

TEST(ReshardAdjoint, AGatherBecomesASliceAndASliceAnAllGather) {
  const Layout cut = even_cut({12}, 0, 0, 3), whole = replicated({12}, 0, 3);
  const ReshardPlan slice =
      adjoint(plan_reshard(cut, whole, fine_config()), GradientKind::replicate);
  EXPECT_TRUE(slice.messages.empty());
  const ReshardPlan gather =
      adjoint(plan_reshard(whole, cut, fine_config()), GradientKind::replicate);
  EXPECT_EQ(gather.moved.value(), 2u * 12 * 4);
  EXPECT_TRUE(gather.sums.empty());
}

TEST(ReshardAdjoint, ABroadcastIsAddedOnlyWhenPartial) {
  const Layout root = replicated({12}, 0, 1), all = replicated({12}, 0, 4);
  const ReshardPlan broadcast = plan_reshard(root, all, fine_config("aabb"));
  const ReshardPlan picks = adjoint(broadcast, GradientKind::replicate);
  EXPECT_TRUE(picks.messages.empty());
  const ReshardPlan adds = adjoint(broadcast, GradientKind::partial);
  EXPECT_FALSE(adds.sums.empty());
  EXPECT_EQ(adds.crossed.value(), 12u * 4);
}

TEST(ReshardAdjoint, ColocatedReplicasReduceScatterAndAllGather) {
  const Layout all = replicated({40}, 0, 4);
  const ReshardPlan plan = plan_sum(all, all, fine_config());
  EXPECT_EQ(plan.moved.value(), 2u * 3 * 40 * 4);
  std::map<RankId, std::uint64_t> sent;
  for (const ReshardMessage& message : plan.messages) sent[message.from] += message.size.value();
  for (const auto& [rank, bytes] : sent) EXPECT_EQ(bytes, 240u);
}

// --- rounds ----------------------------------------------------------------------------------

TEST(MessageRounds, UseAsManyRoundsAsTheBusiestRankHasMessages) {
  std::mt19937 engine(8);
  for (int i = 0; i < 300; ++i) {
    const int senders = 1 + static_cast<int>(engine() % 12);
    const int receivers = 1 + static_cast<int>(engine() % 12);
    std::vector<std::pair<RankId, RankId>> messages;
    std::map<int, int> degree;
    int most = 0;
    for (unsigned n = engine() % 90; n > 0; --n) {
      const int from = static_cast<int>(engine() % static_cast<unsigned>(senders));
      const int to = static_cast<int>(engine() % static_cast<unsigned>(receivers));
      messages.emplace_back(RankId(from), RankId(to));
      most = std::max({most, ++degree[from], ++degree[100 + to]});
    }
    const MessageRounds rounds = message_rounds(messages);
    EXPECT_EQ(rounds.count, most);
    std::set<std::pair<int, int>> seen;
    for (std::size_t k = 0; k < messages.size(); ++k) {
      EXPECT_GE(rounds.round[k], 0);
      EXPECT_LT(rounds.round[k], most);
      EXPECT_TRUE(seen.emplace(rounds.round[k], messages[k].first.value()).second);
      EXPECT_TRUE(seen.emplace(rounds.round[k], 100 + messages[k].second.value()).second);
    }
  }
}

TEST(MessageRounds, MoreThanOneWordOfRounds) {
  std::vector<std::pair<RankId, RankId>> messages;
  for (int from = 0; from < 70; ++from)
    for (int to = 0; to < 70; ++to) messages.emplace_back(RankId(from), RankId((to * 37) % 70));
  EXPECT_EQ(message_rounds(messages).count, 70);
}

// --- bad input and the cache -----------------------------------------------------------------

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Reshard, SaysWhatIsWrong) {
  const Layout line = even_cut({12}, 0, 0, 3);
  EXPECT_NE(message_of([&] {
              plan_reshard(line, even_cut({3, 4}, 0, 0, 3), {});
            }).find("cannot reshard 12 to 3x4"),
            std::string::npos);
  const std::string unknown = message_of([&] { plan_reshard(line, line, fine_config("a")); });
  EXPECT_NE(unknown.find("rank 1 is in no cluster"), std::string::npos);
  EXPECT_NE(unknown.find("rank 2 is in no cluster"), std::string::npos);
  ReshardConfig config;
  config.cards = {"x"};
  EXPECT_NE(message_of([&] { plan_reshard(line, line, config); }).find("cards for 1 ranks"),
            std::string::npos);
}

TEST(ReshardCache, FindsEqualLayoutsAndForgetsTheOldest) {
  ReshardCache cache(RankId(0), 2);
  const Layout a = even_cut({12}, 0, 0, 3), b = even_cut({12}, 0, 0, 2), c = replicated({12}, 0, 2);
  const ReshardConfig config = fine_config();
  const auto first = cache.find(a, b, config);
  EXPECT_EQ(cache.find(even_cut({12}, 0, 0, 3), b, config), first);
  EXPECT_EQ(cache.planned(), 1u);

  ReshardConfig wider = config;
  wider.type = DataType::f64;
  EXPECT_NE(cache.find(a, b, wider), first);
  EXPECT_NE(cache.find(a, b, config, GradientKind::partial), first);
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.planned(), 3u);
  EXPECT_NE(cache.find(a, b, config), first);
  cache.find(a, b, config, GradientKind::partial);
  EXPECT_EQ(cache.planned(), 4u);
  cache.find(b, c, config);
  EXPECT_EQ(cache.size(), 2u);
}

}  // namespace
}  // namespace heteroperf
