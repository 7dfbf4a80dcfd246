#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "metrics/base/error.hpp"
#include "runners/plan/rivals/trainers/trainer_plans.hpp"
#include "tests/unit/runners/plan/rivals/block_plan.hpp"

namespace heteroperf {
namespace {

const std::vector<BlockStage> mixed = {
    {6, 1, 2, 4, "A800"}, {2, 1, 4, 4, "BI150"}, {4, 2, 1, 2, "A800"}};
const std::vector<BlockStage> equal = {{3, 2, 2, 4, "a"}, {4, 2, 2, 4, "a"}};

TEST(StageBlocks, NodesOfBlocks) {
  EXPECT_EQ(block_of_node("block12.attn.qkv"), 12);
  EXPECT_EQ(block_of_node("block3"), 3);
  EXPECT_EQ(block_of_node("blocks.3"), -1);
  EXPECT_EQ(block_of_node("block3x.up"), -1);
  EXPECT_EQ(block_of_node("embedding"), -1);
}

TEST(FlagScaleExport, NeighboursAlikeAreOneMesh) {
  const FlagScaleSetup setup =
      flagscale_setup(block_plan({{3, 2, 2, 4, "a"}, {4, 2, 2, 4, "a"}, {1, 4, 1, 2, "b"}}));
  EXPECT_EQ(setup.meshes, (std::vector<FlagScaleMesh>{{2, 1, 1, 2, 2, "a"}, {1, 1, 1, 4, 1, "b"}}));
  EXPECT_EQ(setup.layer_split, (std::vector<int>{3, 4, 1}));
  EXPECT_EQ(setup.micro_batch, 4);
  EXPECT_EQ(setup.global_batch, 6 * 8);
  EXPECT_EQ(setup.stages(), 3);
}

TEST(FlagScaleExport, Text) {
  Plan plan = block_plan(mixed);
  plan.zero_stage = 1;
  plan.stages[1].recomputation = Recomputation::full;
  EXPECT_EQ(flagscale_text(flagscale_setup(plan)),
            "system:\n"
            "  tensor_model_parallel_size: 2\n"
            "  pipeline_model_parallel_size: 3\n"
            "  context_parallel_size: 1\n"
            "  use_distributed_optimizer: true\n"
            "  hetero:\n"
            "    enable_hetero: true\n"
            "    hetero_process_meshes: [2, 1, 1, 1, 1, 4, 1, 1, 1, 1, 1, 1, 1, 2, 1]\n"
            "    hetero_device_types: [\"A800\", \"BI150\", \"A800\"]\n"
            "    hetero_pipeline_layer_split: [6, 2, 4]\n"
            "  recompute:\n"
            "    recompute_granularity: full\n"
            "    recompute_method: uniform\n"
            "    recompute_num_layers: 1\n"
            "    recompute_granularity_per_stage_micro_batch:\n"
            "      - [1, 6, 0]\n"
            "      - [1, 6, 1]\n"
            "      - [1, 6, 0]\n"
            "model:\n"
            "  num_layers: 12\n"
            "  micro_batch_size: 4\n"
            "  global_batch_size: 24\n");
}

TEST(MegatronExport, Text) {
  Plan plan = block_plan(equal);
  EXPECT_EQ(megatron_arguments(plan),
            "--tensor-model-parallel-size 2\n"
            "--pipeline-model-parallel-size 2\n"
            "--pipeline-model-parallel-layout \"Et*3|t*4,L\"\n"
            "--num-layers 7\n"
            "--micro-batch-size 4\n"
            "--global-batch-size 48\n");
  for (PlanStage& stage : plan.stages) stage.recomputation = Recomputation::full;
  plan.zero_stage = 1;
  EXPECT_NE(
      megatron_arguments(plan).find("--recompute-granularity full\n--recompute-method uniform\n"
                                    "--recompute-num-layers 1\n--use-distributed-optimizer\n"),
      std::string::npos);
}

/// The replicas of every stage share their samples' sequences instead of dealing the samples.
Plan with_shared_sequences(Plan plan) {
  for (PlanStage& stage : plan.stages) {
    const auto parts = static_cast<std::int32_t>(stage.replicas.size());
    for (const ReplicaId r : stage.replicas.ids()) stage.replicas[r].part = {r.value(), parts};
  }
  return plan;
}

TEST(Exporters, ContextParallelism) {
  const Plan plan = with_shared_sequences(block_plan(equal));
  const auto parts = plan.stages[0].replicas.size();
  ASSERT_GT(parts, 1U);
  EXPECT_NE(megatron_arguments(plan).find(fmt::format("--context-parallel-size {}\n", parts)),
            std::string::npos);
  const FlagScaleSetup setup = flagscale_setup(plan);
  EXPECT_EQ(setup.meshes.front().context, static_cast<int>(parts));
  EXPECT_EQ(setup.meshes.front().data, 1);
}

TEST(MegatronExport, EmbeddingOrHeadAlone) {
  Plan plan = block_plan({{0, 1, 1, 1, ""}, {1, 1, 1, 1, ""}, {2, 1, 1, 1, ""}, {0, 1, 1, 1, ""}});
  EXPECT_NE(megatron_arguments(plan).find("\"E|t|t*2|L\""), std::string::npos);
}

TEST(MegatronExport, InterleavedStagesShareRanks) {
  Plan plan = block_plan({{1, 1, 2, 1, ""}, {1, 1, 2, 1, ""}, {1, 1, 2, 1, ""}, {2, 1, 2, 1, ""}});
  plan.schedule = "interleaved-1f1b";
  plan.chunks = 2;
  for (StageId s = 2; s < 4; ++s) plan.stages[s].replicas = plan.stages[s - 2].replicas;
  const std::string text = megatron_arguments(plan);
  EXPECT_NE(text.find("--pipeline-model-parallel-size 2\n"), std::string::npos);
  EXPECT_NE(text.find("\"Et|t|t|t*2,L\""), std::string::npos);
}

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

using Change = std::function<void(Plan&)>;

void expect_refused(const std::vector<BlockStage>& stages, bool by_flagscale, bool by_megatron,
                    const std::string& words, const Change& change) {
  Plan plan = block_plan(stages);
  change(plan);
  const std::string flagscale = message_of([&] { flagscale_setup(plan); });
  const std::string megatron = message_of([&] { megatron_arguments(plan); });
  EXPECT_EQ(flagscale.find(words) != std::string::npos, by_flagscale) << words << ": " << flagscale;
  EXPECT_EQ(megatron.find(words) != std::string::npos, by_megatron) << words << ": " << megatron;
}

TEST(Exporters, NameWhatCannotBeSaid) {
  const auto both = [](const std::string& words, const Change& change) {
    expect_refused(equal, true, true, words, change);
  };
  both("the schedule is zb-h1", [](Plan& p) { p.schedule = "zb-h1"; });
  both("2 chunks per position", [](Plan& p) { p.chunks = 2; });
  both("the wire from stage 0 to 1 is int8", [](Plan& p) { p.wires = {{0, 1, WireFormat::int8}}; });
  both("block 2 is cut between stages 0 and 1", [](Plan& p) {
    p.stages[1].nodes.insert(p.stages[1].nodes.begin(), p.stages[0].nodes.back());
    p.stages[0].nodes.pop_back();
  });
  both("stage 0 has the node 'final_norm'",
       [](Plan& p) { p.stages[0].nodes.emplace_back("final_norm"); });
  both("stage 1 has the node 'embedding'",
       [](Plan& p) { p.stages[1].nodes.insert(p.stages[1].nodes.begin(), "embedding"); });
  both("take 4 and 3 samples", [](Plan& p) { p.stages[1].replicas[1].micro_batch = 3; });
  both("stage 1 has rank 5 where 4 is next", [](Plan& p) {
    std::swap(p.stages[1].replicas[0].ranks[0], p.stages[1].replicas[0].ranks[1]);
  });
  both("no transformer blocks", [](Plan& p) {
    for (PlanStage& stage : p.stages) stage.nodes = {"input"};
  });
}

TEST(Exporters, FlagScaleAlone) {
  const auto flagscale = [](const std::string& words, const Change& change) {
    expect_refused(equal, true, false, words, change);
  };
  flagscale("are on a and b", [](Plan& p) { p.stages[1].replicas[1].device_class = "b"; });
  flagscale("do not say their device class", [](Plan& p) {
    for (StageReplica& r : p.stages[0].replicas) r.device_class.clear();
  });
  flagscale("recomputes selectively", [](Plan& p) {
    for (PlanStage& stage : p.stages) stage.recomputation = Recomputation::selective;
  });
  expect_refused({{0, 1, 1, 1, "a"}, {2, 1, 1, 1, "a"}}, true, false, "stage 0 has no transformer",
                 [](Plan&) {});
}

TEST(Exporters, MegatronAlone) {
  const auto megatron = [](const std::string& words, const Change& change) {
    expect_refused(mixed, false, true, words, change);
  };
  megatron("stages 0 and 1 have 2 and 4 tensor-parallel ranks", [](Plan&) {});
  megatron("stages 0 and 2 have 1 and 2 replicas", [](Plan&) {});
  megatron("stages 0 and 1 recompute differently",
           [](Plan& p) { p.stages[1].recomputation = Recomputation::full; });
}

TEST(Exporters, AllProblemsAtOnce) {
  Plan plan = block_plan(equal);
  plan.stages[0].replicas[0].micro_batch = 1;
  plan.stages[1].replicas[1].device_class = "b";
  plan.stages[1].recomputation = Recomputation::selective;
  const std::string message = message_of([&] { flagscale_setup(plan); });
  for (const char* words : {"samples", "are on a and b", "selectively"}) {
    EXPECT_NE(message.find(words), std::string::npos) << words << "\nnot in: " << message;
  }
}

}  // namespace
}  // namespace heteroperf
