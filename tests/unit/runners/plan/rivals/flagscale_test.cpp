#include "runners/plan/rivals/trainers/trainer_plans.hpp"

#include <gtest/gtest.h>

#include "metrics/base/error.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

constexpr const char* good =
    "system:\n"
    "  pipeline_model_parallel_size: 3\n"
    "  use_distributed_optimizer: True\n"
    "  hetero:\n"
    "    enable_hetero: True\n"
    "    hetero_use_cpu_communication: False\n"
    "    hetero_process_meshes: [2, 1, 1, 1, 1,  4, 1, 1, 1, 1,  1, 1, 1, 2, 1]\n"
    "    hetero_device_types: [A800, BI150, A800]\n"
    "    hetero_pipeline_layer_split: [6, 2, 4]\n"
    "  recompute:\n"
    "    recompute_granularity: full\n"
    "    recompute_granularity_per_stage_micro_batch:\n"
    "      - [1, 30, 0, 2, 0]\n"
    "      - [2, 30, 1, 2, 1]\n"
    "model:\n"
    "  num_layers: 12\n"
    "  micro_batch_size: 2\n"
    "  global_batch_size: 64\n";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

std::string problem_of(const std::string& text) {
  try {
    parse_flagscale(text, "train.yaml");
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(FlagScaleImport, ReadsAConfiguration) {
  const FlagScaleSetup expected{
      {{2, 1, 1, 1, 1, "A800"}, {4, 1, 1, 1, 1, "BI150"}, {1, 1, 1, 2, 1, "A800"}},
      {6, 2, 4},
      {0, 1, 1},
      2,
      64,
      true};
  EXPECT_EQ(parse_flagscale(good, "train.yaml"), expected);
  std::string below = "train:\n";
  for (const char* c = good; *c != '\0'; ++c) {
    if (c == good || c[-1] == '\n') below += "  ";
    below += *c;
  }
  EXPECT_EQ(parse_flagscale(below, "train.yaml"), expected);
}

TEST(FlagScaleImport, WhatItWritesItReads) {
  const FlagScaleSetup setup = parse_flagscale(good, "train.yaml");
  EXPECT_EQ(parse_flagscale(flagscale_text(setup), "again"), setup);
  FlagScaleSetup odd = setup;
  odd.meshes[1].device = "a \"b\" \\ #c: d";
  odd.recomputed = {0, 0, 0};
  EXPECT_EQ(parse_flagscale(flagscale_text(odd), "again"), odd);
}

TEST(FlagScaleImport, LayersAreEvenWithoutASplit) {
  std::string text = replaced(good, "    hetero_pipeline_layer_split: [6, 2, 4]\n", "");
  EXPECT_EQ(parse_flagscale(text, "f").layer_split, (std::vector<int>{4, 4, 4}));
  text = replaced(text, "num_layers: 12", "num_layers: 13");
  EXPECT_NE(problem_of(text).find("13 layers in 3 stages"), std::string::npos);
}

TEST(FlagScaleImport, BadConfigurationsAreNamed) {
  const std::pair<const char*, std::pair<const char*, const char*>> cases[] = {
      {"has 16 numbers", {"1, 2, 1]", "1, 2, 1, 1]"}},
      {"hetero_process_meshes[0] is 0", {"[2, 1, 1", "[0, 1, 1"}},
      {"hetero_process_meshes[0] is two", {"[2, 1, 1", "[two, 1, 1"}},
      {"one name for each of 3 meshes", {"[A800, BI150, A800]", "[A800, BI150]"}},
      {"adds up to 13", {"[6, 2, 4]", "[6, 3, 4]"}},
      {"the meshes have 3", {"[6, 2, 4]", "[6, 6]"}},
      {"pipeline_model_parallel_size is 4", {"parallel_size: 3", "parallel_size: 4"}},
      {"micro_batch_size is 0", {"micro_batch_size: 2", "micro_batch_size: 0"}},
      {"micro_batch_size is 1.5", {"micro_batch_size: 2", "micro_batch_size: 1.5"}},
      {"global_batch_size is 63", {"batch_size: 64", "batch_size: 63"}},
      {"mesh 2 has 2 replicas", {"micro_batch_size: 2", "micro_batch_size: 1"}},
      {"no `system.hetero`", {"  hetero:", "  hotero:"}},
      {"no `model.global_batch_size`", {"global_batch_size", "global_size"}},
      {"use_distributed_optimizer is maybe", {"optimizer: True", "optimizer: maybe"}},
      {"rows for 2 stages", {"- [2, 30, 1, 2, 1]", "- [1, 30, 1, 2, 1]"}},
      {"some of the micro-batches alone", {"- [2, 30, 1, 2, 1]", "- [2, 30, 1, 2, 0]"}},
      {"recompute_granularity is selective", {"granularity: full", "granularity: selective"}},
      {"is not YAML", {"[6, 2, 4]", "[6, 2, 4"}},
      {"asks for 1.09951e+12 ranks", {"[2, 1, 1, 1, 1", "[1048576, 1, 1, 1, 1048576"}},
  };
  for (const auto& [words, change] : cases) {
    const std::string message = problem_of(replaced(good, change.first, change.second));
    EXPECT_NE(message.find(words), std::string::npos) << words << "\nnot in: " << message;
    EXPECT_EQ(message.find("train.yaml"), 0u) << message;
  }
  for (const char* text : {"", "[]", "3", "system: 4", "system: {hetero: []}"}) {
    EXPECT_NE(problem_of(text), "no error") << text;
  }
}

TEST(FlagScaleImport, MissingFilesAreNamed) {
  EXPECT_THROW(read_flagscale_file("/nowhere/train.yaml"), UserError);
}

ModelGraph small_model() {
  ModelOptions options;
  return build_model("nano", options);
}

int blocks_of(const ModelGraph& graph) {
  int blocks = 0;
  while (true) {
    bool found = false;
    for (const Node& node : graph.nodes()) {
      found |= node.name.starts_with("block" + std::to_string(blocks) + ".");
    }
    if (!found) return blocks;
    ++blocks;
  }
}

TEST(FlagScaleImport, APlanForOurModelComesBackAsItWas) {
  const ModelGraph graph = small_model();
  const int blocks = blocks_of(graph);
  ASSERT_GE(blocks, 2);
  FlagScaleSetup setup;
  setup.meshes = {{2, 1, 1, 1, 1, "fast"}, {1, 1, 1, 2, 1, "slow"}};
  setup.layer_split = {1, blocks - 1};
  setup.recomputed = {0, 1};
  setup.micro_batch = 4;
  setup.global_batch = 24;
  const Plan plan = plan_of(setup, graph);
  EXPECT_NO_THROW(ReadyPlan({graph}, plan));
  EXPECT_EQ(plan.ranks(), 4);
  EXPECT_EQ(plan.micro_batches, 6);
  EXPECT_EQ(plan.stages[1].replicas[1].micro_batch, 2);
  EXPECT_EQ(flagscale_setup(plan), setup);
  EXPECT_EQ(plan_of(parse_flagscale(flagscale_text(setup), "text"), graph), plan);
}

TEST(FlagScaleImport, WhatAPlanCannotSayIsRefused) {
  const ModelGraph graph = small_model();
  FlagScaleSetup setup;
  setup.meshes = {{1, 1, 2, 1, 1, "a"}};
  setup.layer_split = {99};
  setup.recomputed = {0};
  try {
    plan_of(setup, graph);
    FAIL();
  } catch (const UserError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("expert parallelism 2"), std::string::npos) << message;
    EXPECT_NE(message.find("model of 99 layers"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace heteroperf
