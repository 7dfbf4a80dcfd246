#include "suite/planning/plan_sources.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "metrics/base/error.hpp"
#include "runners/plan/plan_json.hpp"

namespace heteroperf {
namespace {

template <class Action>
std::string plan_error_of(Action&& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

DeviceClass paced(const char* name) {
  DeviceClass made;
  made.name = name;
  made.kind = DeviceKind::paced;
  made.memory = Bytes(1 << 20);
  return made;
}

/// Ranks 0 and 2 are fast, the others slow; ranks 1 and 3 have a link of their own.
Cluster mixed() {
  Cluster cluster;
  cluster.name = "mixed";
  cluster.classes = {paced("fast"), paced("slow")};
  for (const char* name : {"fast", "slow", "fast", "slow"}) {
    cluster.ranks.push_back({name, "", name, {}});
  }
  cluster.links.resize(2);
  cluster.links[0].from = cluster.links[0].to = "slow";
  cluster.links[1].ranks = std::pair(RankId(1), RankId(3));
  return cluster;
}

Plan plan_of(int ranks) {
  Plan plan;
  plan.stages.resize(1);
  for (int rank = 0; rank < ranks; ++rank) {
    plan.stages[0].replicas.push_back({{RankId(rank)}, 1, "", 0});
  }
  return plan;
}

int ranks_of(const RunConfig& config, const PlanSources& sources, int cores, int world = 0) {
  return with_ranks(config, sources, cores, world).scale.ranks;
}

TEST(WithRanks, ClusterAndPlanBringTheirs) {
  EXPECT_EQ(ranks_of({}, {"mixed.json", mixed(), std::nullopt}, 2), 4);
  EXPECT_EQ(ranks_of({}, {"", std::nullopt, plan_of(3)}, 2), 3);
  EXPECT_EQ(ranks_of({}, {}, 2, 5), 5);
}

TEST(WithRanks, DegreesAskForWholeReplicas) {
  RunConfig config;
  EXPECT_EQ(ranks_of(config, {}, 2), 0) << "left to the placement";
  config.plan.pipeline = 4;
  EXPECT_EQ(ranks_of(config, {}, 2), 4);
  EXPECT_EQ(ranks_of(config, {}, 9), 8);
  config.plan.data = 3;
  EXPECT_EQ(ranks_of(config, {}, 9), 12);
  config.scale.ranks = 12;
  EXPECT_EQ(ranks_of(config, {}, 9), 12);
}

TEST(WithRanks, TellEveryContradiction) {
  RunConfig config;
  config.cluster.file = "mixed.json";
  config.plan.file = "plan.json";
  config.scale.ranks = 5;
  const std::string text = plan_error_of([&] {
    ranks_of(config, {"mixed.json", mixed(), plan_of(3)}, 2);
  });
  EXPECT_NE(text.find("--plan plan.json does not fit --cluster mixed.json (3 and 4 ranks)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("--ranks 5 does not fit --cluster mixed.json (5 and 4 ranks)"),
            std::string::npos)
      << text;
  EXPECT_NE(plan_error_of([] {
              RunConfig asked;
              asked.scale.ranks = 3;
              ranks_of(asked, {}, 2, 2);
            }).find("--ranks 3 does not fit the launcher's world"),
            std::string::npos);
}

TEST(WithRanks, DegreesFitTheCluster) {
  RunConfig config;
  config.cluster.file = "mixed.json";
  config.plan.pipeline = 3;
  EXPECT_NE(plan_error_of([&] {
              ranks_of(config, {"mixed.json", mixed(), std::nullopt}, 2);
            }).find("pp 3 x tp 1 does not fit 4 ranks"),
            std::string::npos);
}

TEST(WithRanks, WhatNeedsAClusterIsRefusedWhereThePlanHasNone) {
  RunConfig config;
  config.plan.file = "plan.json";
  config.pace.dilation = 2;
  config.with_baselines = true;
  const std::string text = plan_error_of([&] {
    ranks_of(config, {"", std::nullopt, plan_of(3)}, 2);
  });
  EXPECT_NE(text.find("pace.dilation=2 changes nothing"), std::string::npos) << text;
  EXPECT_NE(text.find("--with-baselines has nothing to run"), std::string::npos) << text;
}

TEST(PartOfCluster, NumbersRanksAndTheirLinksAnew) {
  const Cluster slow = part_of_cluster(mixed(), {RankId(1), RankId(3)});
  ASSERT_EQ(slow.ranks.size(), 2u);
  EXPECT_EQ(slow.ranks[1].device_class, "slow");
  ASSERT_EQ(slow.links.size(), 2u);
  EXPECT_EQ(slow.links[1].ranks, std::pair(RankId(0), RankId(1)));
  EXPECT_EQ(part_of_cluster(mixed(), {RankId(0), RankId(2)}).links.size(), 1u);
}

TEST(RanksByClass, InTheOrderOfTheFirstRank) {
  const auto classes = ranks_by_class(mixed());
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes[0].device_class, "fast");
  EXPECT_EQ(classes[0].ranks, (std::vector<RankId>{RankId(0), RankId(2)}));
  EXPECT_EQ(class_of(mixed(), RankId(3)).name, "slow");
}

TEST(IsEmulated, AllOrNoneOfTheRanks) {
  Cluster cluster = mixed();
  EXPECT_TRUE(is_emulated(cluster));
  cluster.classes[1].kind = DeviceKind::cpu;
  EXPECT_NE(plan_error_of([&] { is_emulated(cluster); }).find("'fast' is paced, 'slow' is not"),
            std::string::npos);
  cluster.classes[0].kind = DeviceKind::cpu;
  EXPECT_FALSE(is_emulated(cluster));
}

TEST(PlanSources, ARunTakesTheWorkloadOfItsPlanWhereItSaysNothing) {
  const std::string file = ::testing::TempDir() + "/plan_of_a_size.json";
  Plan plan = plan_of(1);
  plan.stages[0].nodes = {"x"};
  plan.workload = PlanWorkload{"llm", "micro", "", "bf16", "adamw", 64, 0, ""};
  std::ofstream(file) << plan_text(plan);
  const auto value = [](const std::vector<Setting>& settings, const std::string& path) {
    for (const Setting& one : settings) {
      if (one.path == path) return one.value;
    }
    return std::string();
  };
  const std::vector<Setting> bare{{"workload", "llm"}, {"plan.file", file}};
  const auto taken = with_workload_of_plan(bare);
  EXPECT_EQ(value(taken, "model.size"), "micro");
  EXPECT_EQ(value(taken, "model.precision"), "bf16");
  EXPECT_EQ(value(taken, "model.sequence_length"), "64");
  EXPECT_EQ(value(taken, "optimizer.name"), "adamw");
  EXPECT_EQ(value(taken, "model.name"), "");
  const auto told = with_workload_of_plan(
      {{"workload", "llm"}, {"plan.file", file}, {"model.size", "nano", "--size"}});
  EXPECT_EQ(value(told, "model.size"), "nano");
  const auto size_of = [&](const std::vector<Setting>& given) {
    return with_workload_of_plan(given).size();
  };
  EXPECT_EQ(size_of({{"workload", "image"}, {"plan.file", file}}), 2u);
  EXPECT_EQ(size_of({{"workload", "llm"}}), 1u);
  EXPECT_EQ(size_of({{"workload", "llm"}, {"plan.file", "/nowhere/plan.json"}}), 2u);
}

TEST(PlanSources, BothFilesAreTold) {
  RunConfig config;
  config.cluster.file = "/nowhere/cluster.json";
  config.plan.file = "/nowhere/plan.json";
  const std::string text = plan_error_of([&] { read_plan_sources(config); });
  EXPECT_NE(text.find("cluster.json"), std::string::npos) << text;
  EXPECT_NE(text.find("plan.json"), std::string::npos) << text;
}

}  // namespace
}  // namespace heteroperf
