#include "runners/plan/times/measured_operations.hpp"

#include <cmath>
#include <limits>
#include <set>

#include "runners/cluster/cluster_json.hpp"
#include "runners/plan/memory/stage_memory.hpp"
#include "runners/plan/times/rate_use.hpp"
#include "runners/plan/times/stage_times.hpp"
#include "tests/unit/runners/plan/plan_cases.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

const ProbeSource source{"one", "a machine", "2026-11-22T00:00:00Z", "llm nano"};

/// A machine without a clock: every operation of a model takes a time of its own.
struct KernelTable {
  ModelOperations model;
  std::vector<OperationSeconds> seconds;
};
KernelTable kernels(const ModelGraph& graph, Precision precision = Precision::fp32) {
  KernelTable table{model_operations(graph, precision), {}};
  for (std::size_t i = 0; i < table.model.operations.size(); ++i) {
    const double s = 1e-3 * static_cast<double>(i + 1);
    table.seconds.push_back({s, 2 * s, s, 2.5 * s, 7});
  }
  return table;
}

Cluster probed(const ModelGraph& graph, std::int64_t samples) {
  const KernelTable table = kernels(graph);
  EfficiencyMatrix matrix;
  add_measured(table.model, samples, Precision::fp32, table.seconds, source, matrix);
  Cluster cluster = flat_cluster(1, 1e9, 0, 1e9);
  apply(matrix, cluster);
  return cluster;
}

Plan one_stage_plan(const ModelGraph& graph, std::int64_t samples) {
  Plan plan = chain_plan(graph, {});
  plan.stages[0].replicas[0].micro_batch = samples;
  return plan;
}

StageTimes::Compute compute(const ModelGraph& graph, const Cluster& cluster, std::int64_t samples,
                            OptimizerKind optimizer = OptimizerKind::adamw) {
  const Plan plan = one_stage_plan(graph, samples);
  return stage_times({graph, Precision::fp32, optimizer}, cut_graph(graph, plan), plan, cluster)
      .compute[0][0];
}

RateUse use(const ModelGraph& graph, const Cluster& cluster, std::int64_t samples,
            Precision precision = Precision::fp32) {
  const Plan plan = one_stage_plan(graph, samples);
  return rate_use(graph, cut_graph(graph, plan), plan, cluster, precision);
}

TEST(ModelOperations, LikeOnesAreThereOnce) {
  for (const char* name : {"nano", "resnet18", "gpt2", "llama-7b", "vit-b-16"}) {
    const ModelGraph graph = build_model(name);
    const ModelOperations model = model_operations(graph, Precision::fp32);
    const Plan plan = one_stage_plan(graph, 1);
    const StagedGraph staged = cut_graph(graph, plan);
    ShardTable shards(graph);
    const auto groups = fused_nodes({staged, 0, shards.of(1, 0)});
    EXPECT_LT(model.operations.size(), groups.size()) << name;
    std::set<NodeId> known;
    for (const FusedWork& one : model.operations) known.insert(one.last);
    EXPECT_EQ(known.size(), model.operations.size()) << name;
    std::size_t last_nodes = 0;
    for (const NodeId as : model.measured_as) {
      if (as.value() < 0) continue;
      ++last_nodes;
      EXPECT_TRUE(known.contains(as)) << name;
    }
    EXPECT_EQ(last_nodes, groups.size()) << name;
  }
}

TEST(ModelOperations, AreCalledWhatTheyAre) {
  const ModelOperations model = model_operations(build_model("nano"), Precision::fp32);
  std::set<std::string> names;
  for (const FusedWork& one : model.operations) names.insert(one.operation);
  for (const char* name : {"embedding+position_embedding", "layer_norm", "gemm", "attention",
                           "gemm+add", "gemm+gelu", "cross_entropy"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

/// What the table says of every group of the graph, one after another.
TEST(MeasuredOperations, AreWhatIsPredictedAtTheirShapes) {
  for (const char* name : {"nano", "resnet18"}) {
    const ModelGraph graph = build_model(name);
    const KernelTable table = kernels(graph);
    double forward = 0, input = 0, weight = 0;
    for (const NodeId as : table.model.measured_as) {
      if (as.value() < 0) continue;
      std::size_t i = 0;
      while (table.model.operations[i].last != as) ++i;
      const FusedWork& work = table.model.operations[i];
      const OperationSeconds& took = table.seconds[i];
      if (work.of(TrainingPass::forward, 2).any()) forward += took.forward_s;
      const bool has_input = work.of(TrainingPass::input_gradient, 2).any();
      const bool has_weight = work.of(TrainingPass::weight_gradient, 2).any();
      // Both take what they take at once, shared as 2 : 1.
      if (has_input) input += took.backward_s * (has_weight ? 2.0 / 3 : 1);
      if (has_weight) weight += took.backward_s * (has_input ? 1.0 / 3 : 1);
    }
    const Cluster cluster = probed(graph, 2);
    const StageTimes::Compute times = compute(graph, cluster, 2);
    EXPECT_NEAR(times.forward_s, forward, 1e-9 * forward) << name;
    EXPECT_NEAR(times.input_gradient_s, input, 1e-9 * input) << name;
    EXPECT_NEAR(times.weight_gradient_s, weight, 1e-9 * weight) << name;
    EXPECT_DOUBLE_EQ(use(graph, cluster, 2).fraction(RateBasis::measured), 1) << name;
  }
}

TEST(MeasuredOperations, OtherSizesGoByTheNearestShape) {
  const ModelGraph graph = build_model("nano");
  const Cluster cluster = probed(graph, 2);
  const double at_two = compute(graph, cluster, 2).forward_s;
  const double at_eight = compute(graph, cluster, 8).forward_s;
  // Rates stay: all that grows with the samples takes four times as long.
  EXPECT_GT(at_eight, 3.5 * at_two);
  EXPECT_LE(at_eight, 4 * at_two * (1 + 1e-12));
  const RateUse at_other = use(graph, cluster, 8);
  EXPECT_DOUBLE_EQ(at_other.fraction(RateBasis::other_shape), 1);
}

TEST(MeasuredOperations, TheNearestOfSeveralShapesIsTaken) {
  const ModelGraph graph = build_model("nano");
  const KernelTable table = kernels(graph);
  EfficiencyMatrix matrix;
  std::vector<OperationSeconds> fast = table.seconds;
  for (OperationSeconds& one : fast) one.forward_s /= 100;
  add_measured(table.model, 1, Precision::fp32, table.seconds, source, matrix);
  add_measured(table.model, 16, Precision::fp32, fast, source, matrix);
  Cluster cluster = flat_cluster(1, 1e9, 0, 1e9);
  apply(matrix, cluster);
  EXPECT_LT(compute(graph, cluster, 16).forward_s, compute(graph, cluster, 2).forward_s);
  EXPECT_GT(use(graph, cluster, 16).fraction(RateBasis::measured), 0.999);
}

TEST(MeasuredOperations, WhatIsNotMeasuredStaysAnalytic) {
  const ModelGraph nano = build_model("nano");
  Cluster cluster = probed(nano, 1);
  const RateUse other_model = use(build_model("resnet18"), cluster, 1);
  EXPECT_GT(other_model.fraction(RateBasis::analytic), 0.5);
  for (const RateUse::Operation& one : other_model.operations) {
    const bool convolution = one.operation.starts_with("conv2d");
    EXPECT_EQ(convolution && one.basis != RateBasis::analytic, false) << one.operation;
  }
  cluster.classes[0].rates["bf16"] = OpsPerSecond(2e9);
  EXPECT_DOUBLE_EQ(use(nano, cluster, 1, Precision::bf16).fraction(RateBasis::analytic), 1);
  const Cluster plain = flat_cluster(1, 1e9, 0, 1e9);
  EXPECT_DOUBLE_EQ(use(nano, plain, 1).fraction(RateBasis::analytic), 1);
  // The whole of a step of one micro-batch, whatever it rests on.
  const StageTimes::Compute times = compute(nano, plain, 1);
  EXPECT_NEAR(use(nano, plain, 1).seconds(),
              times.forward_s + times.input_gradient_s + times.weight_gradient_s,
              1e-9 * times.forward_s);
}

TEST(MeasuredOperations, EveryEntrySaysWhoMeasuredWhat) {
  const KernelTable table = kernels(build_model("nano"));
  EfficiencyMatrix matrix;
  add_measured(table.model, 4, Precision::fp32, table.seconds, source, matrix);
  ASSERT_GT(matrix.rates().size(), 10u);
  for (const auto& [key, rate] : matrix.rates()) {
    EXPECT_EQ(rate.origin.provenance, Provenance::probe);
    EXPECT_EQ(rate.origin.source,
              "measured 2026-11-22T00:00:00Z on a machine, llm nano fp32, micro-batch 4, "
              "median of 7");
    EXPECT_EQ(key.precision, "fp32");
    EXPECT_NE(key.shape, "");
    EXPECT_TRUE(std::isfinite(rate.rate.value()) && rate.rate.value() > 0);
  }
}

TEST(MeasuredOperations, WhatWasNotRepeatedIsPassedOver) {
  KernelTable table = kernels(build_model("nano"));
  for (OperationSeconds& one : table.seconds) one = {};
  EfficiencyMatrix matrix;
  add_measured(table.model, 1, Precision::fp32, table.seconds, source, matrix);
  EXPECT_TRUE(matrix.rates().empty());
}

TEST(MeasuredOperations, TimesThatCannotBeAreRefusedAllAtOnce) {
  KernelTable table = kernels(build_model("nano"));
  table.seconds[1].forward_s = std::numeric_limits<double>::infinity();
  table.seconds[2].forward_s = std::numeric_limits<double>::quiet_NaN();
  table.seconds[3].forward_s = -1e-3;
  table.seconds[4].forward_s = 0;
  EfficiencyMatrix matrix;
  const std::string problems = problems_of(
      [&] { add_measured(table.model, 1, Precision::fp32, table.seconds, source, matrix); });
  for (const std::size_t i : {1, 2, 3, 4}) {
    EXPECT_TRUE(says(problems, table.model.operations[i].pass_entries[0])) << i;
  }
  EXPECT_TRUE(says(problems, "llm nano took inf s on a machine"));
  for (const double seconds : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_TRUE(says(problems_of([&] {
                       add_measured_optimizer(OptimizerKind::sgd, 100, Precision::fp32, seconds,
                                              source, matrix);
                     }),
                     "optimizer/sgd 100"));
  }
}

TEST(MeasuredOperations, AnOptimizerIsItsOwn) {
  const ModelGraph graph = linear_chain(1);
  EfficiencyMatrix matrix;
  // 7 words of 4 bytes: 28 bytes each.
  add_measured_optimizer(OptimizerKind::adamw, 1000, Precision::fp32, 28e-6, source, matrix);
  Cluster cluster = flat_cluster(1, 1e6, 0, 1e6);
  apply(matrix, cluster);
  const Plan plan = one_stage_plan(graph, 1);
  const auto optimizer_s = [&](OptimizerKind kind) {
    return stage_times({graph, Precision::fp32, kind}, cut_graph(graph, plan), plan, cluster)
        .optimizer_s[0];
  };
  EXPECT_DOUBLE_EQ(optimizer_s(OptimizerKind::adamw), 320 * 28e-9);
  EXPECT_DOUBLE_EQ(optimizer_s(OptimizerKind::sgd), 320 * 28 / (1e6 / 4));
}

TEST(MeasuredOperations, SurviveTheClusterFile) {
  const ModelGraph graph = build_model("nano");
  const Cluster cluster = probed(graph, 2);
  const Cluster again = cluster_from_json(to_json(cluster), "test");
  EXPECT_EQ(again.efficiency, cluster.efficiency);
  EXPECT_EQ(matrix_of(again), matrix_of(cluster));
  EXPECT_EQ(compute(graph, again, 2).forward_s, compute(graph, cluster, 2).forward_s);
}

TEST(MeasuredOperations, AProbesEntryHoldsAgainstAFiles) {
  const ModelGraph graph = build_model("nano");
  const EfficiencyMatrix measured = matrix_of(probed(graph, 2));
  EfficiencyMatrix sheet;
  for (const auto& [key, rate] : measured.rates()) {
    sheet.add(key, {rate.rate * 10, {Provenance::file, "sheet"}});
  }
  EfficiencyMatrix merged = measured;
  merged.merge(sheet);
  const EfficiencyMatrix::OperationKey pass{"one", "gemm+gelu/forward", "256x512x128", "fp32"};
  ASSERT_TRUE(sheet.rates().contains(pass));
  EXPECT_EQ(merged.rates().at(pass), measured.rates().at(pass));
  EfficiencyMatrix other_way = sheet;
  other_way.merge(measured);
  for (const auto& [key, rate] : measured.rates()) {
    EXPECT_EQ(other_way.rates().at(key), rate) << key.operation;
  }
}

TEST(WorkShape, DistanceIsOfEachExtent) {
  const WorkShape a({2, 3, 4}), b({4, 3, 2}), c({2, 3, 8});
  EXPECT_EQ(a.text(), "2x3x4");
  EXPECT_EQ(a.distance(a), 0);
  EXPECT_DOUBLE_EQ(a.distance(b), 2 * std::log(2));
  EXPECT_DOUBLE_EQ(a.distance(c), std::log(2));
  EXPECT_DOUBLE_EQ(a.distance(WorkShape({48})), std::log(2));
  EXPECT_EQ(a.distance(WorkShape()), std::numeric_limits<double>::max());
  EXPECT_EQ(WorkShape().text(), "");
  EXPECT_EQ(WorkShape().size(), 0);
}

}  // namespace
}  // namespace heteroperf
