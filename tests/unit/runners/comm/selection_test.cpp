#include "runners/comm/selection/selection.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "metrics/error.hpp"
#include "metrics/random.hpp"
#include "runners/comm/discovery/discover.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/selection/size_sweep.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t no_limit = ~std::uint64_t{0};

SelectionRule rule(Algorithm algorithm, std::uint64_t first, std::uint64_t last) {
  return {algorithm, Bytes(first), Bytes(last)};
}

TEST(ParseSelection, ANameCoversEverySize) {
  for (const Algorithm algorithm : all_algorithms()) {
    EXPECT_EQ(parse_selection(to_string(algorithm)), std::vector{rule(algorithm, 0, no_limit)});
  }
  EXPECT_TRUE(parse_selection("auto").empty());
}

TEST(ParseSelection, RangesHaveBinaryUnitsAndBothEnds) {
  const std::vector expected{rule(Algorithm::recursive_doubling, 0, 8192),
                             rule(Algorithm::ring, 8193, no_limit)};
  EXPECT_EQ(parse_selection("recursive_doubling:0-8K;ring:8193-max"), expected);
  EXPECT_EQ(parse_selection(" ring : 8193 - max ; recursive_doubling:0-8k "), expected);
  EXPECT_EQ(parse_selection("tree:1M-2G;leader:3G-3G"),
            (std::vector{rule(Algorithm::tree, 1ULL << 20, 2ULL << 30),
                         rule(Algorithm::leader, 3ULL << 30, 3ULL << 30)}));
}

struct BadSelection {
  const char* text;
  std::vector<const char*> words;  ///< one per problem
};

TEST(ParseSelection, NamesEveryProblem) {
  const BadSelection cases[] = {
      {"", {"empty part"}},
      {"ring:0-8;", {"empty part"}},
      {"rign", {"ring"}},
      {"ring:", {"not a range"}},
      {"ring:8", {"not a range"}},
      {"ring:0-8-9", {"not a range"}},
      {"ring:-8", {"not a range"}},
      {"ring:0-8X", {"not a range"}},
      {"ring:K-8K", {"not a range"}},
      {"ring:0-18446744073709551616", {"not a range"}},
      {"ring:0-18446744073709551615K", {"not a range"}},
      {"ring:9-8", {"is empty"}},
      {"ring:0-8K;tree:8K-9K", {"overlap"}},
      {"ring;tree", {"overlap"}},
      {"ring:0-9;tree:1-2;leader:3-4", {"overlap", "overlap"}},
      {"rign:0-8;;tree:9-3;ring:0-9;leader:5-20", {"ring", "empty part", "is empty", "overlap"}},
  };
  for (const BadSelection& bad : cases) {
    try {
      parse_selection(bad.text);
      ADD_FAILURE() << "accepted: " << bad.text;
    } catch (const UserError& error) {
      ASSERT_EQ(error.problems().size(), bad.words.size()) << bad.text << ": " << error.what();
      for (std::size_t i = 0; i < bad.words.size(); ++i) {
        EXPECT_NE(error.problems()[i].text().find(bad.words[i]), std::string::npos)
            << error.problems()[i].text();
      }
    }
  }
}

// Latency, time per byte one way, time per byte summed.
constexpr double alpha = 10e-6, beta = 1e-9, gamma_s = 0.25e-9;

RankClusters clusters_of_sizes(const std::vector<int>& sizes) {
  std::vector<std::string> labels;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    labels.insert(labels.end(), static_cast<std::size_t>(sizes[k]), fmt::format("c{}", k));
  }
  return clusters_by_label(labels, static_cast<int>(labels.size()));
}

LinkCurve line(double latency_s, double seconds_per_byte) {
  return {Seconds(latency_s), BytesPerSecond(1 / seconds_per_byte)};
}

CostModel constant_model(const std::vector<int>& sizes) {
  CostModel model;
  model.clusters = clusters_of_sizes(sizes);
  model.inside.assign(sizes.size(), line(alpha, beta));
  model.reduction = line(0, gamma_s);
  model.native = line(5 * alpha, 5 * beta);
  if (sizes.size() == 1) return model;
  model.between = line(10 * alpha, 8 * beta);
  model.bf16_codec = line(0, beta / 10);
  model.int8_codec = line(0, beta / 5);
  return model;
}

double seconds_of(const CostModel& model, Algorithm algorithm, std::uint64_t bytes,
                  std::uint64_t segment = 65536) {
  return predict_all_reduce(model, algorithm, {Bytes(bytes), WireFormat::fp32, Bytes(segment)})
      .value();
}

void expect_near(double got, double expected) {
  EXPECT_NEAR(got, expected, 1e-9 * expected + 1e-15);
}

TEST(CostModel, FlatFormulasOfThakurRabenseifnerGropp) {
  constexpr double n = 1 << 20;
  for (const int p : {2, 4, 8, 16}) {
    const CostModel model = constant_model({p});
    const double steps = std::log2(p), q = (p - 1.0) / p;
    expect_near(seconds_of(model, Algorithm::native, 1 << 20), 5 * (alpha + n * beta));
    expect_near(seconds_of(model, Algorithm::recursive_doubling, 1 << 20),
                steps * (alpha + n * (beta + gamma_s)));
    expect_near(seconds_of(model, Algorithm::ring, 1 << 20),
                2 * (p - 1) * alpha + 2 * q * n * beta + q * n * gamma_s);
    expect_near(seconds_of(model, Algorithm::rabenseifner, 1 << 20),
                2 * steps * alpha + 2 * q * n * beta + q * n * gamma_s);
  }
}

TEST(CostModel, RanksBeyondAPowerOfTwoFold) {
  constexpr double n = 1 << 20;
  for (const int p : {3, 5, 6, 7}) {
    const CostModel model = constant_model({p});
    const int steps = p < 4 ? 1 : 2;
    const double fold = 2 * (alpha + n * beta) + n * gamma_s;
    const double q = 1 - std::exp2(-steps);
    expect_near(seconds_of(model, Algorithm::recursive_doubling, 1 << 20),
                fold + steps * (alpha + n * (beta + gamma_s)));
    expect_near(seconds_of(model, Algorithm::rabenseifner, 1 << 20),
                fold + 2 * steps * alpha + q * n * (2 * beta + gamma_s));
  }
}

// Two clusters of two: ranks 0 and 1 talk to 2 and 3 at once over one card.
TEST(CostModel, MessagesThatCrossShareTheCard) {
  const CostModel model = constant_model({2, 2});
  constexpr double n = 1 << 20, near = alpha + n * beta;
  expect_near(seconds_of(model, Algorithm::recursive_doubling, 1 << 20),
              near + 10 * alpha + 2 * n * 8 * beta + 2 * n * gamma_s);
  // The ring leaves each cluster once.
  const double block = n / 4, across = 10 * alpha + block * 8 * beta;
  expect_near(seconds_of(model, Algorithm::ring, 1 << 20), 6 * across + 3 * block * gamma_s);
  // Half of the vector to the nearest rank, a quarter over the card from both, and back.
  expect_near(seconds_of(model, Algorithm::rabenseifner, 1 << 20),
              2 * (alpha + n / 2 * beta) + 2 * (10 * alpha + 2 * n / 4 * 8 * beta) +
                  (n / 2 + n / 4) * gamma_s);
  CostModel interleaved = model;
  interleaved.clusters = clusters_by_label({"a", "b", "a", "b"}, 4);
  expect_near(seconds_of(interleaved, Algorithm::ring, 1 << 20),
              6 * (10 * alpha + 2 * block * 8 * beta) + 3 * block * gamma_s);
}

TEST(CostModel, SegmentsInFlight) {
  constexpr double n = 1 << 20, c = 65536, message = alpha + c * beta, sum = c * gamma_s;
  const CostModel four = constant_model({4});
  // Blocks of four segments, each sum shorter than a message: 3 steps of 4 messages, twice.
  expect_near(seconds_of(four, Algorithm::segmented_ring, 1 << 20), 2 * 3 * 4 * message);
  // One segment per block is the ring.
  expect_near(seconds_of(four, Algorithm::segmented_ring, 1 << 20, 1 << 18),
              seconds_of(four, Algorithm::ring, 1 << 20));
  // Two levels there and back; then 15 segments more, each two messages and two sums at the top.
  expect_near(seconds_of(four, Algorithm::tree, 1 << 20),
              2 * (2 * message + 2 * sum) + (n / c - 1) * (2 * message + 2 * sum));
}

TEST(CostModel, BridgesSetThePaceOfClusters) {
  constexpr double n = 1 << 20, c = 65536, message = alpha + c * beta, sum = c * gamma_s;
  CostModel model = constant_model({2, 2});
  const double across = 10 * alpha + 8 * c * beta;
  // Up, over the bridge and down once; a sum of two ranks, one of two clusters.
  const double first = 2 * message + across + 2 * sum;
  expect_near(seconds_of(model, Algorithm::leader, 1 << 20), first + (n / c - 1) * across);
  // Two cards carry half each.
  for (RankCluster& cluster : model.clusters.clusters) {
    cluster.bridges = {{cluster.ranks[0], "x", 0.5}, {cluster.ranks[1], "y", 0.5}};
  }
  expect_near(seconds_of(model, Algorithm::split_rail, 1 << 20), first + (n / c - 1) * across / 2);
  // Three clusters: bridges share the sums, 2/3 of a segment out and the same back.
  model = constant_model({1, 1, 1});
  const double third = 10 * alpha + c * 2 / 3 * 8 * beta;
  const double both = 10 * alpha + c * 4 / 3 * 8 * beta;
  EXPECT_NEAR(seconds_of(model, Algorithm::leader, 1 << 20),
              2 * third + 2.0 / 3 * sum + (n / c - 1) * both, 1e-7);
}

LinkCurve random_curve(RandomStream& random) {
  std::vector<LinkCurve::Point> points;
  double time = 1e-6 * (0.1 + random.unit());
  for (std::uint64_t n = 256; n <= 64 << 20; n *= 4) {
    points.push_back({Bytes(n), Seconds(time)});
    time *= 1 + 4 * random.unit();
  }
  return LinkCurve(points);
}

CostModel random_model(RandomStream& random) {
  std::vector<int> sizes;
  const std::uint64_t clusters = 1 + random.below(3);
  for (std::uint64_t k = 0; k < clusters; ++k)
    sizes.push_back(1 + static_cast<int>(random.below(4)));
  CostModel model = constant_model(sizes);
  for (LinkCurve& curve : model.inside) curve = random_curve(random);
  for (LinkCurve* curve : {&model.between, &model.reduction, &model.native, &model.bf16_codec,
                           &model.int8_codec, &model.inside_stream, &model.between_stream}) {
    *curve = random_curve(random);
  }
  return model;
}

bool runs_on(Algorithm algorithm, const CostModel& model) {
  const bool across = algorithm == Algorithm::leader || algorithm == Algorithm::split_rail;
  return !across || model.clusters.clusters.size() > 1;
}

TEST(CostModel, NoAlgorithmGetsFasterWithSize) {
  RandomStream random(7);
  for (int round = 0; round < 200; ++round) {
    const CostModel model = random_model(random);
    for (const Algorithm algorithm : all_algorithms()) {
      if (!runs_on(algorithm, model)) continue;
      double before = 0;
      for (std::uint64_t n = 0; n <= std::uint64_t{256} << 20; n = n * 3 / 2 + 1000) {
        const double time = seconds_of(model, algorithm, n);
        EXPECT_GE(time, before * (1 - 1e-12))
            << to_string(algorithm) << " of " << n << " B, round " << round;
        EXPECT_TRUE(std::isfinite(time));
        before = time;
      }
    }
  }
}

TEST(CostModel, TheBestSegmentIsThatOfTryingAll) {
  RandomStream random(11);
  for (int round = 0; round < 100; ++round) {
    const CostModel model = random_model(random);
    const Bytes bytes(random.below(std::uint64_t{64} << 20));
    for (const Algorithm algorithm :
         {Algorithm::segmented_ring, Algorithm::tree, Algorithm::leader, Algorithm::split_rail}) {
      if (!runs_on(algorithm, model)) continue;
      const Bytes best = best_segment(model, algorithm, {bytes, WireFormat::fp32, Bytes(0)});
      const double shortest = seconds_of(model, algorithm, bytes.value(), best.value());
      const bool crosses = model.clusters.clusters.size() > 1;
      const std::uint64_t limit =
          crosses ? longest_bridge_segment(WireFormat::fp32).value() : std::uint64_t{512} << 10;
      EXPECT_LE(best.value(), limit);
      for (std::uint64_t size = 16384; size <= limit; size *= 2) {
        EXPECT_LE(shortest, seconds_of(model, algorithm, bytes.value(), size));
      }
      EXPECT_LE(shortest, seconds_of(model, algorithm, bytes.value(), limit));
    }
  }
}

TEST(CostModel, WireFormatsShortenTheBridgeAlone) {
  const CostModel model = constant_model({2, 2});
  for (const Algorithm algorithm : all_algorithms()) {
    const auto seconds = [&](WireFormat wire) {
      return predict_all_reduce(model, algorithm, {Bytes(16 << 20), wire, Bytes(65536)}).value();
    };
    const double plain = seconds(WireFormat::fp32);
    const bool across = algorithm == Algorithm::leader || algorithm == Algorithm::split_rail;
    if (!across) {
      EXPECT_EQ(seconds(WireFormat::bf16), plain) << to_string(algorithm);
      EXPECT_EQ(seconds(WireFormat::int8), plain) << to_string(algorithm);
      continue;
    }
    EXPECT_LT(seconds(WireFormat::bf16), plain / 1.3) << to_string(algorithm);
    EXPECT_LT(seconds(WireFormat::int8), seconds(WireFormat::bf16)) << to_string(algorithm);
  }
}

TEST(CostModel, CorrectionsHoldAtTheirSizesAndBetween) {
  CostModel model = constant_model({4});
  model.corrections = {{Algorithm::ring, Bytes(1 << 10), 2.0},
                       {Algorithm::tree, Bytes(1 << 12), 9.0},
                       {Algorithm::ring, Bytes(1 << 14), 4.0}};
  const auto factor = [&](std::uint64_t bytes) {
    const CallShape call{Bytes(bytes), WireFormat::fp32, Bytes(65536)};
    return predict_all_reduce(model, Algorithm::ring, call) /
           uncorrected_all_reduce(model, Algorithm::ring, call);
  };
  EXPECT_DOUBLE_EQ(factor(16), 2.0);
  EXPECT_DOUBLE_EQ(factor(1 << 10), 2.0);
  EXPECT_DOUBLE_EQ(factor(1 << 12), 3.0);
  EXPECT_DOUBLE_EQ(factor(1 << 14), 4.0);
  EXPECT_DOUBLE_EQ(factor(1 << 20), 4.0);
}

TEST(SelectAllReduce, TheFastestByTheModel) {
  RandomStream random(13);
  for (int round = 0; round < 200; ++round) {
    const CostModel model = random_model(random);
    const CallShape call{Bytes(random.below(std::uint64_t{64} << 20)), WireFormat::fp32, Bytes(0)};
    const Choice choice = select_all_reduce({}, model, call);
    int candidates = 0;
    for (const Algorithm algorithm : all_algorithms()) {
      if (!runs_on(algorithm, model)) {
        EXPECT_NE(choice.algorithm, algorithm);
        continue;
      }
      ++candidates;
      CallShape shape = call;
      shape.segment = best_segment(model, algorithm, call);
      const Seconds time = predict_all_reduce(model, algorithm, shape);
      EXPECT_LE(*choice.predicted, time) << to_string(algorithm);
      if (algorithm == choice.algorithm) {
        EXPECT_EQ(*choice.predicted, time);
        EXPECT_EQ(choice.segment, shape.segment);
      }
    }
    EXPECT_EQ(choice.reason, fmt::format("fastest of {} by the model", candidates));
  }
}

TEST(SelectAllReduce, OfEqualsTheFirst) {
  CostModel model = constant_model({1});
  model.native = LinkCurve();  // all are free with one rank
  EXPECT_EQ(select_all_reduce({}, model, {Bytes(1024)}).algorithm, Algorithm::native);
  model = constant_model({2, 2});
  model.native = line(1, 1);
  // One bridge each: both do the same.
  model.corrections = {{Algorithm::recursive_doubling, Bytes(1), 1e6},
                       {Algorithm::ring, Bytes(1), 1e6},
                       {Algorithm::segmented_ring, Bytes(1), 1e6},
                       {Algorithm::rabenseifner, Bytes(1), 1e6},
                       {Algorithm::tree, Bytes(1), 1e6}};
  const CallShape call{Bytes(1 << 20), WireFormat::fp32, Bytes(65536)};
  EXPECT_EQ(predict_all_reduce(model, Algorithm::leader, call),
            predict_all_reduce(model, Algorithm::split_rail, call));
  EXPECT_EQ(select_all_reduce({}, model, call).algorithm, Algorithm::leader);
}

TEST(SelectAllReduce, RulesComeFirst) {
  const auto rules = parse_selection("tree:0-1K;ring:2K-max");
  CostModel model = constant_model({4});
  Choice choice = select_all_reduce(rules, model, {Bytes(1024)});
  EXPECT_EQ(choice.algorithm, Algorithm::tree);
  EXPECT_EQ(choice.reason, "forced by rule");
  EXPECT_TRUE(choice.predicted.has_value());
  EXPECT_EQ(choice.segment, Bytes(65536));
  EXPECT_EQ(select_all_reduce(rules, model, {Bytes(1025)}).reason, "fastest of 6 by the model");
  choice = select_all_reduce(rules, std::nullopt, {Bytes(2048), WireFormat::fp32, Bytes(0)});
  EXPECT_EQ(choice.algorithm, Algorithm::ring);
  EXPECT_EQ(choice.segment, Bytes(65536));
  EXPECT_FALSE(choice.predicted.has_value());
}

TEST(SelectAllReduce, NativeWithoutRuleAndModel) {
  const Choice choice = select_all_reduce(parse_selection("ring:0-8"), std::nullopt, {Bytes(9)});
  EXPECT_EQ(choice.algorithm, Algorithm::native);
  EXPECT_FALSE(choice.predicted.has_value());
}

TEST(SelectAllReduce, OnlyBridgesEncode) {
  const CostModel model = constant_model({2, 2});
  for (const Algorithm algorithm : all_algorithms()) {
    const auto rules = parse_selection(to_string(algorithm));
    const Choice choice = select_all_reduce(rules, model, {Bytes(1 << 20), WireFormat::int8});
    EXPECT_EQ(choice.wire, uses_bridges(algorithm) ? WireFormat::int8 : WireFormat::fp32)
        << to_string(algorithm);
  }
}

TEST(SelectAllReduce, OneClusterHasNoLeader) {
  const CostModel model = constant_model({4});
  for (const char* text : {"leader", "split_rail"}) {
    EXPECT_THROW(select_all_reduce(parse_selection(text), model, {Bytes(1)}), UserError);
  }
}

TEST(Selector, RemembersWhatSelectAllReduceSays) {
  RandomStream random(17);
  const auto rules = parse_selection("tree:0-100");
  const CostModel model = random_model(random);
  Selector selector(rules, model);
  for (int round = 0; round < 2000; ++round) {
    const CallShape call{Bytes(random.below(200)),
                         random.below(2) == 0 ? WireFormat::fp32 : WireFormat::bf16,
                         Bytes(random.below(2) * 65536)};
    const Choice fresh = select_all_reduce(rules, model, call);
    const Choice& kept = selector.choose(call);
    ASSERT_EQ(kept.algorithm, fresh.algorithm);
    ASSERT_EQ(kept.segment, fresh.segment);
    ASSERT_EQ(kept.predicted, fresh.predicted);
    ASSERT_EQ(kept.reason, fresh.reason);
    ASSERT_EQ(kept.wire, fresh.wire);
  }
}

/// One task, one rank, by size from 1 KiB on.
std::vector<SizeTimes> sweep_of(const std::vector<std::vector<double>>& times) {
  std::vector<SizeTimes> result;
  for (std::size_t i = 0; i < times.size(); ++i) {
    SizeTimes size{Bytes(std::uint64_t{1024} << (2 * i)), {}, 0, {}};
    for (const double time : times[i]) size.rounds.emplace_back(1, 1, 1, std::vector{time});
    result.push_back(size);
  }
  return result;
}

TEST(SizeSweep, CurvesRiseAndKeepTheirSlope) {
  const auto time_of = [](const SizeTimes& size) { return size.time_of(0); };
  EXPECT_TRUE(measured_curve({}, time_of).empty());
  // 1 KiB was disturbed, and so was 16 KiB, which would flatten the end.
  const auto sweep = sweep_of({{5}, {2}, {9}, {10}});
  const auto rising = rising_times(sweep, time_of);
  EXPECT_EQ(rising.front().time, Seconds(2));
  EXPECT_EQ(rising[2].time, Seconds(9));
  const LinkCurve curve = measured_curve(sweep, time_of);
  EXPECT_EQ(curve.points().back().time, Seconds(10));
  const double per_byte = (10.0 - 2) / (65536 - 4096);
  EXPECT_NEAR(1 / curve.bandwidth().value(), per_byte, 1e-12);
}

TEST(SizeSweep, MedianOfManyAndLowerQuartileOfFew) {
  const auto sweep = sweep_of({{1, 2, 9, 9, 9}, {9, 1, 9, 3, 4, 5, 6, 9, 2}});
  EXPECT_EQ(sweep[0].time_of(0), 2);
  EXPECT_EQ(sweep[1].time_of(0), 5);
}

TEST(InterleavedTiming, EveryRankSeesTheSlowest) {
  run_on_threads(3, {}, [](World& world) {
    Communicator& group = *world.communicator;
    int calls = 0;
    const std::vector<TimedTask> tasks{{[&] { ++calls; }, 2, 1}, {[&] { group.barrier(); }}};
    const Timings timings = time_interleaved(group, tasks, 5);
    EXPECT_EQ(calls, 15);
    EXPECT_EQ(timings.rounds(), 5U);
    for (std::size_t task = 0; task < 2; ++task) {
      const auto all = timings.slowest(task);
      ASSERT_EQ(all.size(), 5U);
      for (int r = 0; r < 3; ++r) {
        const RankId rank(r);
        const auto one = timings.slowest(task, std::span(&rank, 1));
        for (std::size_t round = 0; round < 5; ++round) EXPECT_LE(one[round], all[round]);
      }
      std::vector<double> of_rank_0 = all;
      group.broadcast(std::span<double>(of_rank_0), RankId(0));
      EXPECT_EQ(of_rank_0, all);
    }
  });
}

/// Everything the model says, for a comparison of ranks.
std::vector<double> digest(const CostModel& model) {
  std::vector<double> values;
  for (const Algorithm algorithm : all_algorithms()) {
    if (!runs_on(algorithm, model)) continue;
    for (const WireFormat wire : {WireFormat::fp32, WireFormat::bf16, WireFormat::int8}) {
      for (std::uint64_t n = 16; n <= std::uint64_t{64} << 20; n *= 3) {
        CallShape call{Bytes(n), wire, Bytes(0)};
        call.segment = best_segment(model, algorithm, call);
        values.push_back(predict_all_reduce(model, algorithm, call).value());
        values.push_back(static_cast<double>(call.segment.value()));
      }
    }
  }
  return values;
}

void measure_and_compare(const std::vector<std::string>& labels) {
  run_on_threads(static_cast<int>(labels.size()), {}, [&](World& world) {
    Communicator& group = *world.communicator;
    const RankClusters clusters = clusters_by_label(labels, group.size());
    const auto inside =
        group.split(static_cast<int>(clusters.cluster_of(group.rank())), group.rank().value());
    const CostModel model = measure_cost_model(group, *inside, clusters, Bytes(1 << 18));
    EXPECT_EQ(model.clusters, clusters);
    ASSERT_EQ(model.inside.size(), clusters.clusters.size());
    for (std::size_t k = 0; k < model.inside.size(); ++k) {
      EXPECT_EQ(model.inside[k].empty(), clusters.clusters[k].ranks.size() == 1);
    }
    EXPECT_EQ(model.between.empty(), clusters.clusters.size() == 1);
    EXPECT_FALSE(model.native.empty());
    EXPECT_FALSE(model.reduction.empty());
    const std::vector<double> mine = digest(model);
    for (const double value : mine) EXPECT_TRUE(std::isfinite(value) && value > 0) << value;
    std::vector<double> of_rank_0 = mine;
    group.broadcast(std::span<double>(of_rank_0), RankId(0));
    EXPECT_EQ(of_rank_0, mine);
  });
}

TEST(MeasureCostModel, AllRanksGetTheSame) {
  measure_and_compare({"a", "a"});
  measure_and_compare({"a", "b", "a", "a"});
  measure_and_compare({"a", "b", "c"});
}

}  // namespace
}  // namespace heteroperf
