#include "runners/plan/ready/ready_plan.hpp"

#include "tests/unit/runners/plan/plan_cases.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

std::string problems(const Plan& plan, const ModelGraph& graph) {
  return problems_of([&] { ReadyPlan({graph}, plan); });
}

TEST(ReadyPlan, EvenPlansPass) {
  const ModelGraph graph = build_model("nano");
  EvenPlanRequest request;
  request.pipeline = 2;
  request.tensor = 2;
  request.data = 2;
  request.micro_batches = 4;
  const Plan plan = even_plan(graph, request);
  EXPECT_EQ(problems(plan, graph), "");
  EXPECT_EQ(problems_of([&] { ReadyPlan({graph}, plan, flat_cluster(8, 1e9, 0, 1e9)); }), "");
}

TEST(ReadyPlan, EachMistakeIsNamed) {
  const ModelGraph graph = linear_chain(6);
  const Plan good = chain_plan(graph, {3, 5});
  ASSERT_EQ(problems(good, graph), "");
  Plan plan = good;
  plan.graph_hash = "0123";
  EXPECT_TRUE(says(problems(plan, graph), "the plan is for the graph 0123"));
  plan = good;
  plan.stages[1].replicas[0].ranks = {RankId(4)};
  EXPECT_TRUE(says(problems(plan, graph), "no stage names ranks 1, 3"));
  plan = good;
  plan.stages[1].replicas.push_back(plan.stages[1].replicas[0]);
  EXPECT_TRUE(says(problems(plan, graph), "stage 1 names rank 1 twice"));
  EXPECT_TRUE(says(problems(plan, graph), "the replicas of stage 1 take 2 samples"));
  plan = good;
  plan.stages[1].replicas[0].part = {1, 2};
  EXPECT_TRUE(says(problems(plan, graph),
                   "a replica of stage 1 has part 1 of 2 of its sequences, where part 0 of 2"));
  plan.stages[1].replicas[0].part = {0, 2};
  EXPECT_TRUE(
      says(problems(plan, graph), "the replicas of stage 1 end with part 0 of 2 of a sequence"));
  plan.stages[1].replicas[0].part = {};
  plan.stages[2].replicas[0].micro_batch = 0;
  EXPECT_TRUE(says(problems(plan, graph), "replica 0 of stage 2 takes 0 samples"));
  plan = good;
  plan.stages[2].replicas[0].ranks.clear();
  EXPECT_TRUE(says(problems(plan, graph), "replica 0 of stage 2 has no ranks"));
  plan = good;
  plan.wires = {{0, 2, WireFormat::bf16}};
  EXPECT_TRUE(says(problems(plan, graph), "a wire format between stages 0 and 2"));
  plan.wires = {{0, 1, WireFormat::bf16}, {0, 1, WireFormat::int8}};
  EXPECT_TRUE(says(problems(plan, graph), "two wire formats"));
  plan = good;
  plan.zero_stage = 2;
  EXPECT_TRUE(says(problems(plan, graph), "ZeRO stage 2"));
  plan = good;
  plan.schedule = "zb-h3";
  EXPECT_TRUE(says(problems(plan, graph), "zb-h3"));
  plan = good;
  plan.micro_batches = 0;
  EXPECT_TRUE(says(problems(plan, graph), "0 micro-batches"));
}

TEST(ReadyPlan, DegreesThatDoNotDivideHeadsAreRefused) {
  const ModelGraph graph = build_model("nano");
  Plan plan = chain_plan(graph, {});
  for (int rank = 1; rank < 7; ++rank) plan.stages[0].replicas[0].ranks.emplace_back(rank);
  EXPECT_TRUE(says(problems(plan, graph), "heads"));
}

TEST(ReadyPlan, AllProblemsAtOnce) {
  const ModelGraph graph = linear_chain(6);
  Plan plan = chain_plan(graph, {3, 5});
  plan.graph_hash = "0123";
  plan.schedule = "oops";
  plan.stages[0].nodes.pop_back();
  plan.stages[1].replicas[0].micro_batch = 7;
  const std::string text = problems(plan, graph);
  for (const char* part : {"0123", "oops", "in no stage", "take 7 samples"}) {
    EXPECT_TRUE(says(text, part));
  }
}

TEST(ReadyPlan, TheMachineMustFit) {
  const ModelGraph graph = build_model("nano");
  EvenPlanRequest request;
  request.pipeline = 2;
  Plan plan = even_plan(graph, request);
  plan.stages[0].replicas[0].device_class = "other";
  Cluster cluster = flat_cluster(2, 1e9, 0, 1e9);
  cluster.classes[0].memory = Bytes(1 << 10);
  const auto check = [&] { ReadyPlan({graph}, plan, cluster); };
  const std::string text = problems_of(check);
  EXPECT_TRUE(says(text, "stage 0 wants rank 0 to be a 'other'"));
  EXPECT_TRUE(says(text, "on rank 1, one (1 KiB available)"));
  cluster.ranks.pop_back();
  EXPECT_TRUE(says(problems_of(check), "a plan of 2 ranks on the cluster 'flat'"));
}

Cluster with_memory(Cluster cluster, double bytes) {
  for (DeviceClass& device : cluster.classes) {
    device.memory = Bytes(static_cast<std::uint64_t>(bytes));
  }
  return cluster;
}

double fullest(const ReadyPlan& ready) {
  double most = 0;
  for (const MemoryLedger& ledger : ready.memory) {
    most = std::max(most, static_cast<double>(ledger.total().value()));
  }
  return most;
}

/// A long pipeline on which micro-batches take more than the weights.
Plan searched_plan() {
  return even_plan(build_model("nano"),
                   {.pipeline = 4, .micro_batch = 8, .micro_batches = 16, .schedule = "auto"});
}

/// A searched order is one that the devices hold.
TEST(ReadyPlan, ASearchedOrderKeepsToTheMemory) {
  const ModelGraph graph = build_model("nano");
  const Cluster cluster = with_memory(flat_cluster(4, 1e9, 0, 1e9), 0);
  const ReadyPlan roomy({graph}, searched_plan(), cluster);
  for (const double part : {0.9, 0.8, 0.7}) {
    const double memory = part * fullest(roomy);
    const ReadyPlan kept({graph}, searched_plan(), with_memory(cluster, memory));
    EXPECT_LE(fullest(kept), memory) << part;
    EXPECT_GE(kept.predicted().step_time_s, roomy.predicted().step_time_s) << part;
  }
}

TEST(ReadyPlan, RecomputesAsLittleAsFits) {
  const ModelGraph graph = build_model("nano");
  const Cluster cluster = with_memory(flat_cluster(4, 1e9, 0, 1e9), 0);
  Plan plan = searched_plan();
  plan.schedule = "1f1b";
  std::vector<double> needed;
  for (const Recomputation recomputation : recomputations) {
    for (PlanStage& stage : plan.stages) stage.recomputation = recomputation;
    needed.push_back(fullest(ReadyPlan({graph}, plan, cluster)));
  }
  for (PlanStage& stage : plan.stages) stage.recomputation = Recomputation::none;
  for (const Recomputation recomputation : recomputations) {
    const double memory = needed[static_cast<std::size_t>(recomputation)];
    const ReadyPlan ready = ready_with_recomputation({graph}, plan, with_memory(cluster, memory));
    for (const PlanStage& stage : ready.plan.stages) {
      const auto level = static_cast<std::size_t>(stage.recomputation);
      EXPECT_LE(needed[level], memory);
      EXPECT_TRUE(level == 0 || needed[level - 1] > memory);
    }
  }
  try {
    ready_with_recomputation({graph}, plan, with_memory(cluster, needed.back() - 4096));
    ADD_FAILURE();
  } catch (const MemoryRefusal& refusal) {
    EXPECT_EQ(refusal.lacking, Bytes(4096));
  }
}

}  // namespace
}  // namespace heteroperf
