#include "runners/plan/ready/ready_plan.hpp"

#include "runners/plan/ready/plan_schedule.hpp"
#include "runners/plan/ready/rank_bytes.hpp"
#include "tests/unit/runners/plan/plan_cases.hpp"
#include "workloads/graph_memory.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

std::vector<MemoryLedger> ledgers(const ModelGraph& graph, const Plan& plan,
                                  Precision precision = Precision::fp32) {
  const StagedGraph staged = cut_graph(graph, plan);
  const Schedule schedule = plan_schedule(graph, staged, plan);
  const TrainingTask task{graph, precision};
  RankBytes bytes(task, staged, plan);
  return plan_memory(bytes, schedule, simulate(schedule));
}

// One sample keeps: tokens 32, the embedding's output 128, y0's 128, logits 256, targets 32 and
// softmax sums 16 bytes.
constexpr std::uint64_t one_sample = 592;

TEST(PlanMemory, ByHand) {
  const ModelGraph graph = linear_chain(1);
  const MemoryLedger ledger = ledgers(graph, chain_plan(graph, {}))[0];
  EXPECT_EQ(ledger.weights, Bytes(4 * (128 + 64 + 128)));
  EXPECT_EQ(ledger.gradients, ledger.weights);
  EXPECT_EQ(ledger.optimizer, Bytes(2 * ledger.weights.value()));
  EXPECT_EQ(ledger.activations, Bytes(one_sample));
  // The gradient of y0 is made while all but the logits' statistics is still there.
  EXPECT_EQ(ledger.buffers, Bytes(128 - 48));
}

// An item keeps 16 bytes of tokens and 64 of its embedding, and 64 go on to the next stage.
TEST(PlanMemory, HoldsTheMostItems) {
  for (const int fewest : {3, 0}) {
    const ModelGraph graph = items_in_text(fewest, 3);
    Plan plan = chain_plan(graph, {3});
    for (PlanStage& stage : plan.stages) stage.replicas.front().micro_batch = 2;
    const auto of_ranks = ledgers(graph, plan);
    EXPECT_EQ(of_ranks[0].activations, Bytes(6 * (16 + 64)));
    EXPECT_EQ(of_ranks[0].buffers, Bytes(6 * (64 + 64)));
  }
}

TEST(PlanMemory, WhatIsInFlightCounts) {
  const ModelGraph graph = linear_chain(1);
  Plan plan = chain_plan(graph, {});
  plan.schedule = "gpipe";
  plan.micro_batches = 3;
  plan.stages[0].replicas[0].micro_batch = 2;
  EXPECT_EQ(ledgers(graph, plan)[0].activations, Bytes(6 * one_sample));
  plan.schedule = "1f1b";
  EXPECT_EQ(ledgers(graph, plan)[0].activations, Bytes(2 * one_sample));
}

TEST(PlanMemory, FullRecomputationKeepsTheInputsAlone) {
  const ModelGraph graph = linear_chain(1);
  Plan plan = chain_plan(graph, {});
  plan.schedule = "gpipe";
  plan.micro_batches = 3;
  plan.stages[0].recomputation = Recomputation::full;
  EXPECT_EQ(ledgers(graph, plan)[0].activations, Bytes(2 * 32 + one_sample));
}

TEST(PlanMemory, BetweenBAndWInputsOfWeightsAndGradientsOfOutputsStay) {
  const ModelGraph graph = linear_chain(1);
  Plan plan = chain_plan(graph, {});
  plan.schedule = "zb-h1";
  // Tokens, x, y0 and the gradients of x, y0 and the logits.
  EXPECT_EQ(ledgers(graph, plan)[0].activations, Bytes(32 + 128 + 128 + 128 + 128 + 256));
}

TEST(PlanMemory, ReplicasAndTensorParallelRanksHoldTheirShares) {
  const ModelGraph graph = build_model("nano");
  Plan plan = chain_plan(graph, {});
  plan.stages[0].replicas[0].micro_batch = 2;
  const MemoryLedger alone = ledgers(graph, plan)[0];
  plan.stages[0].replicas[0].ranks.emplace_back(1);
  const std::vector<MemoryLedger> tensor = ledgers(graph, plan);
  EXPECT_LT(tensor[0].weights.value(), 0.6 * static_cast<double>(alone.weights.value()));
  EXPECT_LT(tensor[0].activations, alone.activations);
  plan.stages[0].replicas = {{{RankId(0)}, 1, "", 0}, {{RankId(1)}, 1, "", 0}};
  plan.zero_stage = 1;
  const std::vector<MemoryLedger> data = ledgers(graph, plan);
  EXPECT_EQ(data[1].weights, alone.weights);
  EXPECT_EQ(data[1].activations.value(), alone.activations.value() / 2);
  EXPECT_NEAR(data[1].optimizer / alone.optimizer, 0.5, 1e-3);
}

TEST(PlanMemory, MastersAreFloatsUnderBf16) {
  const ModelGraph graph = linear_chain(1);
  const MemoryLedger ledger = ledgers(graph, chain_plan(graph, {}), Precision::bf16)[0];
  const std::uint64_t elements = 128 + 64 + 128;
  EXPECT_EQ(ledger.weights, Bytes(2 * elements));
  EXPECT_EQ(ledger.gradients, Bytes(6 * elements));
  EXPECT_EQ(ledger.optimizer, Bytes(12 * elements));
}

TEST(PlanMemory, ATiedTableIsHeldOnceOnARankAndOnceOnEachThatUsesIt) {
  const ModelGraph graph = build_model("gpt2");
  const auto table = static_cast<std::uint64_t>(element_count(
      graph
          .node(graph.find(
              std::get<Linear>(graph.nodes()[graph.nodes().size() - 2].attributes).tied_to))
          .parameters[0]
          .shape));
  const MemoryLedger alone = ledgers(graph, chain_plan(graph, {}))[0];
  EvenPlanRequest request;
  request.pipeline = 2;
  const std::vector<MemoryLedger> both = ledgers(graph, even_plan(graph, request));
  const std::uint64_t sum = both[0].weights.value() + both[1].weights.value();
  EXPECT_EQ(sum, alone.weights.value() + (table + 15) / 16 * 64);
}

// A whole model in one stage keeps what the count of workloads says, but for what fusion saves.
TEST(PlanMemory, AWholeModelKeepsWhatItsGraphSays) {
  for (const char* name : {"nano", "resnet18", "llama-7b", "bert-base"}) {
    const ModelGraph graph = build_model(name);
    Plan plan = chain_plan(graph, {});
    plan.stages[0].replicas[0].micro_batch = 4;
    const MemoryLedger ledger = ledgers(graph, plan)[0];
    const double wanted = static_cast<double>(activation_bytes(graph, 4, Precision::fp32).value());
    EXPECT_LE(static_cast<double>(ledger.activations.value()), 1.01 * wanted) << name;
    EXPECT_GE(static_cast<double>(ledger.activations.value()), 0.8 * wanted) << name;
  }
}

TEST(PlanMemory, MoreMicroBatchesNeverTakeLess) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 12; ++trial) {
    const ModelGraph graph = random_graph(random, 8);
    Plan plan = chain_plan(graph, {3, 5, 7});
    plan.schedule = trial % 2 == 0 ? "gpipe" : "zb-h2";
    std::vector<std::uint64_t> before(4, 0);
    for (const int micro_batches : {1, 3, 6}) {
      plan.micro_batches = micro_batches;
      const std::vector<MemoryLedger> now = ledgers(graph, plan);
      for (std::size_t rank = 0; rank < 4; ++rank) {
        EXPECT_GE(now[rank].activations.value(), before[rank]);
        before[rank] = now[rank].activations.value();
      }
    }
  }
}

}  // namespace
}  // namespace heteroperf
