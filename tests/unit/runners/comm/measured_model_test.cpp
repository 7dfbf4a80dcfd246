#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "runners/comm/discovery/cost_probe.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/comm/cost_models.hpp"

namespace heteroperf {
namespace {

/// One task, one rank, by size from 1 KiB on.
std::vector<SizeTimes> sweep_of(const std::vector<std::vector<double>>& times) {
  std::vector<SizeTimes> result;
  for (std::size_t i = 0; i < times.size(); ++i) {
    SizeTimes size{Bytes(std::uint64_t{1024} << (2 * i)), {}, 0, {}};
    for (const double time : times[i]) size.rounds.push_back({1, {time}});
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
    const RoundTimes times = time_round(group, tasks);
    EXPECT_EQ(calls, 3);
    for (std::size_t task = 0; task < 2; ++task) {
      const double slowest = times.slowest(task);
      for (int r = 0; r < 3; ++r) {
        const RankId rank(r);
        EXPECT_LE(times.slowest(task, std::span(&rank, 1)), slowest);
      }
      double of_rank_0 = slowest;
      group.broadcast(std::span<double>(&of_rank_0, 1), RankId(0));
      EXPECT_EQ(of_rank_0, slowest);
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
    const std::vector<double> local = digest(model);
    for (const double value : local) EXPECT_TRUE(std::isfinite(value) && value > 0) << value;
    std::vector<double> of_rank_0 = local;
    group.broadcast(std::span<double>(of_rank_0), RankId(0));
    EXPECT_EQ(of_rank_0, local);
  });
}

TEST(MeasureCostModel, AllRanksGetTheSame) {
  measure_and_compare({"a", "a"});
  measure_and_compare({"a", "b", "a", "a"});
  measure_and_compare({"a", "b", "c"});
}

}  // namespace
}  // namespace heteroperf
