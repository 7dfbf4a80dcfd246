#include "runners/plan/times/stage_times.hpp"

#include <algorithm>
#include <cmath>

#include "runners/cluster/cluster.hpp"
#include "runners/plan/tensor/tensor_parallel.hpp"
#include "tests/unit/runners/plan/plan_cases.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

StageTimes times_of(const ModelGraph& graph, const Plan& plan, const Cluster& cluster) {
  return stage_times({graph}, cut_graph(graph, plan), plan, cluster);
}

TEST(StageTimes, ByHand) {
  const ModelGraph graph = linear_chain(1);
  Plan plan = chain_plan(graph, {3});
  plan.stages[0].replicas = {{{RankId(0)}, 3, "", 0}, {{RankId(1)}, 1, "", 0}};
  plan.stages[1].replicas = {{{RankId(2)}, 4, "", 0}};
  Cluster cluster = flat_cluster(3, 1e6, 1e-3, 1e6);
  cluster.efficiency.push_back({"one", "memory", "", "fp32", OpsPerSecond(1e30), ""});
  const StageTimes times = times_of(graph, plan, cluster);
  // y0: {4, 8} x {8, 8} is 512 operations a sample, the head 1024; tables and losses count 0.
  EXPECT_DOUBLE_EQ(times.compute[0][0].forward_s, 3 * 512e-6);
  EXPECT_DOUBLE_EQ(times.compute[0][1].forward_s, 512e-6);
  EXPECT_DOUBLE_EQ(times.compute[1][0].input_gradient_s, 4 * 1024e-6);
  EXPECT_DOUBLE_EQ(times.compute[1][0].weight_gradient_s, 4 * 1024e-6);
  EXPECT_EQ(times.compute[0][0].recompute_s, 0);
  // Three samples of {4, 8} floats.
  EXPECT_DOUBLE_EQ(times.activation_s[0], 1e-3 + 384e-6);
  EXPECT_DOUBLE_EQ(times.gradient_s[0], times.activation_s[0]);
  // 128 + 64 parameters in a ring of two.
  EXPECT_DOUBLE_EQ(times.reduction_s[0], 768e-6 + 2e-3);
  EXPECT_EQ(times.reduction_s[1], 0);
  EXPECT_DOUBLE_EQ(times.agreement_s, 2 * (1e-3 + 16e-6));
  EXPECT_NEAR(times.optimizer_s[0], 0, 1e-20);
}

// Of 3 items a sample has 3, of 1 to 3 usually 2; each takes 256 operations and 64 bytes.
TEST(StageTimes, GoByTheUsualItems) {
  for (const int fewest : {3, 1}) {
    const ModelGraph graph = items_in_text(fewest, 3);
    Plan plan = chain_plan(graph, {3});
    for (PlanStage& stage : plan.stages) stage.replicas.front().micro_batch = 2;
    Cluster cluster = flat_cluster(2, 1e6, 1e-3, 1e6);
    cluster.efficiency.push_back({"one", "memory", "", "fp32", OpsPerSecond(1e30), ""});
    const double items = 2 * (fewest + 3) / 2.0;
    StageTimes times = times_of(graph, plan, cluster);
    EXPECT_DOUBLE_EQ(times.compute[0][0].forward_s, items * 256e-6);
    EXPECT_DOUBLE_EQ(times.compute[0][0].input_gradient_s, items * 256e-6);
    EXPECT_DOUBLE_EQ(times.compute[0][0].weight_gradient_s, items * 256e-6);
    EXPECT_DOUBLE_EQ(times.compute[1][0].forward_s, 2 * 2048e-6);
    EXPECT_DOUBLE_EQ(times.activation_s[0], 1e-3 + items * 64e-6);
    // By bytes alone. Tables read tokens and read and write rows; the sequence takes all items.
    cluster.classes[0].rates["fp32"] = OpsPerSecond(1e30);
    cluster.efficiency[0].rate = OpsPerSecond(1e6);
    times = times_of(graph, plan, cluster);
    EXPECT_DOUBLE_EQ(times.compute[0][0].forward_s, (items * (144 + 128) + 256) * 1e-6);
    EXPECT_DOUBLE_EQ(times.compute[1][0].forward_s,
                     (2 * (576 + 576 + 768 + 512) + items * 64 + 512) * 1e-6);
  }
}

/// Tokens of which each has a query, a key and a value of 8 numbers.
ModelGraph attention_alone(std::int64_t length) {
  ModelGraph graph;
  Input input;
  input.kind = InputKind::tokens;
  input.length = length;
  const NodeId tokens = graph.add("tokens", input, {});
  const NodeId packed = graph.add("x", Embedding{4, 24}, {tokens});
  const NodeId core = graph.add("core", Attention{1, 1, 8, true}, {packed});
  const NodeId head = graph.add("head", Linear{4, false, ""}, {core});
  graph.add("loss", CrossEntropy{}, {head});
  return graph;
}

// Two ranks have half of the operations each and pass keys and values round: of 3 samples of 16
// tokens 768 floats, half of which each rank lacks. Attention has 128 pairs a sample, 32 operations
// each in F and 64 in B, of which half pass until a rank needs the other's keys; nothing covers
// the sums of their gradients.
TEST(StageTimes, KeysGoRoundWhileOthersAreWorkedOn) {
  const ModelGraph graph = attention_alone(16);
  Plan plan = chain_plan(graph, {});
  plan.stages[0].replicas = {{{RankId(0)}, 3, "", 0}};
  struct Case {
    double bandwidth, message_s, forward_wait_s, backward_wait_s;
  };
  const double half_forward_s = 3 * 128 * 32e-6 / 4;
  for (const Case& link : {Case{1e6, 2.536e-3, 0, 0}, Case{1e5, 16.36e-3, 16.36e-3 - half_forward_s,
                                                           16.36e-3 - 2 * half_forward_s}}) {
    Cluster cluster = flat_cluster(2, 1e6, 1e-3, link.bandwidth);
    cluster.efficiency.push_back({"one", "memory", "", "fp32", OpsPerSecond(1e30), ""});
    Plan shared = plan;
    shared.stages[0].replicas = {{{RankId(0)}, 3, "", 0, {0, 2}}, {{RankId(1)}, 3, "", 0, {1, 2}}};
    const StageTimes::Compute alone = times_of(graph, plan, cluster).compute[0][0];
    const StageTimes times = times_of(graph, shared, cluster);
    for (const StageTimes::Compute& part : times.compute[0]) {
      EXPECT_NEAR(part.forward_s, alone.forward_s / 2 + link.forward_wait_s, 1e-12);
      EXPECT_NEAR(part.input_gradient_s,
                  alone.input_gradient_s / 2 + link.backward_wait_s + link.message_s, 1e-12);
      EXPECT_NEAR(part.weight_gradient_s, alone.weight_gradient_s / 2, 1e-12);
    }
    EXPECT_GT(times.reduction_s[0], 0);
    shared.stages[0].recomputation = Recomputation::selective;
    EXPECT_NEAR(times_of(graph, shared, cluster).compute[0][0].input_gradient_s,
                times.compute[0][0].input_gradient_s + 2 * half_forward_s + link.forward_wait_s,
                1e-12);
  }
}

/// The time of a chain's only stage on one device with these efficiency entries.
StageTimes::Compute chain_times(const std::vector<Efficiency>& entries, std::int64_t samples = 1) {
  const ModelGraph graph = linear_chain(1);
  Plan plan = chain_plan(graph, {});
  plan.stages[0].replicas[0].micro_batch = samples;
  Cluster cluster = flat_cluster(1, 1e6, 0, 1e6);
  cluster.efficiency = entries;
  return times_of(graph, plan, cluster).compute[0][0];
}

TEST(StageTimes, WhatMovesBytesIsNotFree) {
  const StageTimes::Compute times =
      chain_times({{"one", "memory", "", "fp32", OpsPerSecond(1e3), ""}}, 2);
  // Of a sample: the table reads 4 indices of 8 bytes and 4 rows of 32, writes 128; y0 reads and
  // writes 128, the head reads 128 and writes 256, the loss reads 256. Weights: 256 and 512 bytes.
  EXPECT_DOUBLE_EQ(times.forward_s, (2 * (32 + 256 + 256 + 384 + 256) + 768) / 1e3);
  // The loss makes 256 of 256; head and y0 have their inputs' gradients from their outputs'.
  EXPECT_DOUBLE_EQ(times.input_gradient_s, (2 * (512 + 384 + 256) + 768) / 1e3);
  // Of both weights; the table's rows are read and written.
  EXPECT_DOUBLE_EQ(times.weight_gradient_s, (2 * (384 + 256 + 384) + 2 * 768) / 1e3);
}

TEST(StageTimes, AClassThatSaysNothingOfItsMemoryMovesAByteInTheTimeOfFourOperations) {
  const StageTimes::Compute unsaid = chain_times({});
  const StageTimes::Compute said =
      chain_times({{"one", "memory", "", "fp32", OpsPerSecond(0.25e6), ""}});
  EXPECT_DOUBLE_EQ(unsaid.forward_s, said.forward_s);
  EXPECT_DOUBLE_EQ(unsaid.weight_gradient_s, said.weight_gradient_s);
}

TEST(StageTimes, EveryOperatorIsLaunched) {
  const std::vector<Efficiency> memory{{"one", "memory", "", "fp32", OpsPerSecond(1e30), ""}};
  std::vector<Efficiency> launched = memory;
  launched.push_back({"one", "launch", "", "fp32", OpsPerSecond(100), ""});
  const StageTimes::Compute without = chain_times(memory), with = chain_times(launched);
  // Table, y0, head, loss; B of all but the table; W of all but the loss.
  EXPECT_NEAR(with.forward_s - without.forward_s, 4 * 0.01, 1e-12);
  EXPECT_NEAR(with.input_gradient_s - without.input_gradient_s, 3 * 0.01, 1e-12);
  EXPECT_NEAR(with.weight_gradient_s - without.weight_gradient_s, 3 * 0.01, 1e-12);
}

TEST(StageTimes, ProductsAreDoneInWholeTiles) {
  const std::vector<Efficiency> memory{{"one", "memory", "", "fp32", OpsPerSecond(1e30), ""}};
  std::vector<Efficiency> tiled = memory;
  tiled.push_back({"one", "gemm_tile", "16x16x4", "fp32", OpsPerSecond(1e6), ""});
  // Three samples of {4, 8} x {8, 8} and {4, 8} x {8, 16}: 12 rows take those of one tile.
  EXPECT_DOUBLE_EQ(chain_times(tiled, 3).forward_s, (2 * 16 * 16 * 8 + 2 * 16 * 16 * 8) / 1e6);
  // {8, 12} x {12, 8} and {16, 12} x {12, 8}, both in one tile's rows and columns.
  EXPECT_DOUBLE_EQ(chain_times(tiled, 3).weight_gradient_s, 2 * (2 * 16 * 16 * 12) / 1e6);
  EXPECT_DOUBLE_EQ(chain_times(memory, 3).forward_s, 3 * 1536 / 1e6);
}

TEST(StageTimes, NoStageIsFree) {
  const ModelGraph graph = build_model("nano");
  for (std::size_t end = 2; end < graph.nodes().size(); ++end) {
    const Plan plan = chain_plan(graph, {end});
    for (const auto& replicas : times_of(graph, plan, flat_cluster(2, 1e6, 0, 1e6)).compute) {
      EXPECT_GT(replicas[0].forward_s, 0) << end;
    }
  }
}

TEST(StageTimes, WireFormatsShortenMessages) {
  const ModelGraph graph = linear_chain(1);
  Plan plan = chain_plan(graph, {3});
  const Cluster cluster = flat_cluster(2, 1e6, 0, 1e6);
  EXPECT_DOUBLE_EQ(times_of(graph, plan, cluster).activation_s[0], 128e-6);
  plan.wires = {{0, 1, WireFormat::bf16}};
  EXPECT_DOUBLE_EQ(times_of(graph, plan, cluster).activation_s[0], 64e-6);
  plan.wires = {{0, 1, WireFormat::int8}};
  EXPECT_DOUBLE_EQ(times_of(graph, plan, cluster).activation_s[0], 36e-6);
}

TEST(StageTimes, TheEfficiencyMatrixWinsOverTheClass) {
  const ModelGraph graph = linear_chain(1);
  const Plan plan = chain_plan(graph, {});
  Cluster cluster = flat_cluster(1, 1e6, 0, 1e6);
  cluster.efficiency.push_back({"one", "gemm", "4x8x8", "fp32", OpsPerSecond(2e6), ""});
  cluster.efficiency.push_back({"one", "gemm", "400x800x800", "fp32", OpsPerSecond(8e6), ""});
  cluster.efficiency.push_back({"one", "gemm", "4x8x8", "bf16", OpsPerSecond(16e6), ""});
  cluster.efficiency.push_back({"one", "memory", "", "fp32", OpsPerSecond(1e12), ""});
  const StageTimes times = times_of(graph, plan, cluster);
  EXPECT_NEAR(times.compute[0][0].forward_s, 1536 / 2e6, 1e-8);
  // Seven words of each of 320 parameters.
  EXPECT_DOUBLE_EQ(times.optimizer_s[0], 7 * 4 * 320e-12);
}

TEST(StageTimes, RecomputationIsAForwardOfTheStageOrOfItsAttention) {
  const ModelGraph graph = build_model("nano");
  Plan plan = chain_plan(graph, {});
  Cluster cluster = flat_cluster(1, 1e6, 0, 1e6);
  cluster.efficiency.push_back({"one", "memory", "", "fp32", OpsPerSecond(1e30), ""});
  const StageTimes::Compute none = times_of(graph, plan, cluster).compute[0][0];
  plan.stages[0].recomputation = Recomputation::full;
  const StageTimes::Compute full = times_of(graph, plan, cluster).compute[0][0];
  EXPECT_DOUBLE_EQ(full.recompute_s, none.forward_s);
  plan.stages[0].recomputation = Recomputation::selective;
  const StageTimes::Compute selective = times_of(graph, plan, cluster).compute[0][0];
  double attention = 0;
  for (const LayerCounts& layer : count_graph(graph).layers) {
    if (layer.kind == "attention") attention += layer.strict.forward.to_double() / 1e6;
  }
  ASSERT_GT(attention, 0);
  EXPECT_NEAR(selective.input_gradient_s - none.input_gradient_s, attention, 1e-9 * attention);
  EXPECT_EQ(selective.recompute_s, 0);
}

TEST(StageTimes, TensorParallelRanksShareWorkAndPayForSums) {
  const ModelGraph graph = build_model("nano");
  Plan plan = chain_plan(graph, {});
  const auto forward = [&](Cluster cluster) {
    cluster.efficiency.push_back({"one", "memory", "", "fp32", OpsPerSecond(1e30), ""});
    return times_of(graph, plan, cluster).compute[0][0].forward_s;
  };
  const double alone = forward(flat_cluster(2, 1e6, 0, 1e18));
  plan.stages[0].replicas[0].ranks.emplace_back(1);
  const double shared = forward(flat_cluster(2, 1e6, 0, 1e18));
  EXPECT_NEAR(shared, alone / 2, 0.02 * alone);
  const TensorShard shard = tensor_shard(graph, 2, 0);
  const auto sums =
      std::count(shard.output_is_partial.begin(), shard.output_is_partial.end(), true);
  ASSERT_GT(sums, 0);
  // A ring of two: two messages for each sum, and two sums of a loss over a cut vocabulary.
  const double latency = forward(flat_cluster(2, 1e6, 1, 1e18)) - shared;
  EXPECT_NEAR(latency, 2.0 * (static_cast<double>(sums) + 2), 1e-6);
}

TEST(StageTimes, TiedWeightsAreSummedOverAllTheirHolders) {
  std::mt19937_64 random(3);
  ModelGraph graph;
  do {
    graph = random_graph(random, 4);
  } while (std::get<Linear>(graph.node(graph.find("head")).attributes).tied_to.empty());
  const Plan plan = chain_plan(graph, {4});
  const StageTimes times = times_of(graph, plan, flat_cluster(2, 1e6, 1e-3, 1e6));
  EXPECT_DOUBLE_EQ(times.reduction_s[0], 16 * 8 * 4e-6 + 2e-3);
  EXPECT_DOUBLE_EQ(times.reduction_s[1], times.reduction_s[0]);
}

TEST(StageTimes, EverythingMissingIsSaidAtOnce) {
  const ModelGraph graph = linear_chain(2);
  Plan plan = chain_plan(graph, {3});
  Cluster cluster = flat_cluster(1, 1e6, 0, 1e6);
  cluster.classes[0].rates.clear();
  const std::string text = problems_of([&] { times_of(graph, plan, cluster); });
  EXPECT_TRUE(says(text, "the plan names rank 1"));
  EXPECT_TRUE(says(text, "device class 'one' has no rate for fp32"));
}

TEST(ShippedClusters, AreSoundAndFoundByName) {
  for (const std::string& name : shipped_cluster_names()) {
    const Cluster cluster = shipped_cluster(name);
    check_cluster(cluster);
    EXPECT_EQ(cluster.name, find_cluster(name).name) << name;
    for (const DeviceClass& one : cluster.classes) EXPECT_TRUE(one.emulated()) << name;
    const ModelGraph graph = build_model("nano");
    EvenPlanRequest request;
    request.data = static_cast<int>(cluster.ranks.size());
    const Plan plan = even_plan(graph, request);
    EXPECT_GT(times_of(graph, plan, cluster).compute[0][0].forward_s, 0) << name;
  }
  EXPECT_TRUE(says(problems_of([] { shipped_cluster("labtop"); }), "laptop"));
  EXPECT_TRUE(
      says(problems_of([] { find_cluster("./laptop"); }), "cannot read the cluster file ./laptop"));
}

}  // namespace
}  // namespace heteroperf
