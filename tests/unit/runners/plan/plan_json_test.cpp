#include "runners/plan/plan_json.hpp"

#include "tests/unit/runners/plan/plan_cases.hpp"

namespace heteroperf {
namespace {

std::string text_with(const std::string& from, const std::string& to) {
  std::string text = plan_text(chain_plan(linear_chain(2), {3}));
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string problems_with(const std::string& from, const std::string& to) {
  return problems_of([&] { parse_plan(text_with(from, to), "plan.json"); });
}

TEST(PlanJson, RandomPlansRoundTrip) {
  std::mt19937_64 random(23);
  for (int trial = 0; trial < 50; ++trial) {
    const ModelGraph graph = random_graph(random, 8);
    Plan plan = chain_plan(graph, {4, 6});
    plan.graph_hash = random() % 2 == 0 ? graph.hash() : "";
    plan.chunks = static_cast<int>(1 + random() % 4);
    plan.micro_batches = static_cast<int>(1 + random() % 100);
    plan.zero_stage = static_cast<int>(random() % 2);
    if (random() % 2 == 0)
      plan.workload = PlanWorkload{"llm", "nano", "", "bf16", "sgd", 64, 3, "vision"};
    if (random() % 2 == 0) plan.cluster = "fast2_slow6";
    if (random() % 2 == 0) plan.wires = {{0, 1, WireFormat::int8}, {1, 2, WireFormat::bf16}};
    for (PlanStage& stage : plan.stages) {
      stage.recomputation = static_cast<Recomputation>(random() % 3);
      stage.replicas.push_back({{RankId(static_cast<std::int32_t>(random() % 9)), RankId(77)},
                                static_cast<std::int64_t>(1 + random() % 9),
                                random() % 2 == 0 ? "fast \"one\"" : "",
                                static_cast<int>(random() % 2),
                                {static_cast<std::int32_t>(random() % 2), 2}});
    }
    EXPECT_EQ(parse_plan(plan_text(plan), "here"), plan);
  }
}

TEST(PlanJson, WhatItsMakerKnewBetterGoesWithIt) {
  Plan plan = chain_plan(linear_chain(2), {3});
  plan.efficiency.add({"one", "gemm+gelu/forward", "4x8x8", "fp32"},
                      {OpsPerSecond(3e9), {Provenance::probe, "measured today"}});
  plan.efficiency.add({"one", DeviceQuantity::launch_s}, {1e-5, {Provenance::file, "a sheet"}});
  const Plan again = parse_plan(plan_text(plan), "here");
  EXPECT_EQ(again, plan);
  EXPECT_NE(again, chain_plan(linear_chain(2), {3}));
  std::string text = plan_text(plan);
  const std::string rate = "3000000000.0";
  ASSERT_NE(text.find(rate), std::string::npos) << text;
  text.replace(text.find(rate), rate.size(), "-1");
  const std::string problems = problems_of([&] { parse_plan(text, "plan.json"); });
  EXPECT_TRUE(says(problems, "operations[0]"));
  EXPECT_TRUE(says(problems, "must be positive and finite"));
}

TEST(PlanJson, WhatAPlannerAddsIsPassedOver) {
  const Plan plan = chain_plan(linear_chain(2), {3});
  const std::string text =
      text_with("\"schedule\"", "\"predicted\":{\"step_time_s\":1},\"memory\":[],\"schedule\"");
  EXPECT_EQ(parse_plan(text, "here"), plan);
}

TEST(PlanJson, BadFilesAreRefusedWithEveryProblemAndItsPath) {
  EXPECT_TRUE(says(problems_with("\"chunks\":1", "\"chunks\":0,\"shedule\":\"x\""), "chunks"));
  EXPECT_TRUE(says(problems_with("\"chunks\":1", "\"chunks\":0,\"shedule\":\"x\""),
                   "Did you mean \"schedule\""));
  EXPECT_TRUE(says(problems_with("\"recomputation\":\"none\"", "\"recomputation\":\"nine\""),
                   "stages[0].recomputation"));
  EXPECT_TRUE(
      says(problems_with("\"ranks\":[0]", "\"ranks\":[-1]"), "stages[0].replicas[0].ranks"));
  EXPECT_TRUE(says(problems_with("\"micro_batch\":1", "\"micro_batch\":\"1\""), "micro_batch"));
  EXPECT_TRUE(says(problems_with("heteroperf-plan", "heteroperf-plane"), "_format"));
  EXPECT_TRUE(says(problems_with("\"_version\":1", "\"_version\":2"), "version 2"));
  EXPECT_TRUE(says(problems_with("\"schedule\":", "\"shed\":"), "schedule"));
  EXPECT_TRUE(
      says(problems_with("\n  \"stages\":",
                         "\n  \"wires\":[{\"from\":0,\"to\":1,\"format\":\"fp8\"}],\"stages\":"),
           "wires[0].format"));
  EXPECT_TRUE(says(problems_of([] { parse_plan("{\"stages\":", "cut.json"); }), "cut.json"));
  EXPECT_TRUE(says(problems_of([] { read_plan_file("/nonexistent/plan.json"); }),
                   "cannot read the plan file /nonexistent/plan.json"));
}

}  // namespace
}  // namespace heteroperf
