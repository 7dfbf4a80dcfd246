#include "runners/comm/selection/cost_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/runners/comm/cost_models.hpp"

namespace heteroperf {
namespace {

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

}  // namespace
}  // namespace heteroperf
