// Plans and shipped clusters as their users meet them.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "metrics/base/text_file.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/plan_json.hpp"
#include "tests/golden/command.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;

/// A plan of the language model `nano` for four ranks.
Plan nano_plan() {
  EvenPlanRequest request;
  request.pipeline = request.data = 2;
  request.micro_batches = 4;
  request.micro_batch = 2;
  request.schedule = "zb-h1";
  Plan plan = even_plan(build_model("nano"), request);
  plan.workload.emplace();
  plan.workload->name = "llm";
  plan.workload->size = "nano";
  return plan;
}

std::string write(const ScratchFolder& folder, const Plan& plan) {
  const std::string path = folder / "plan.json";
  std::ofstream(path) << plan_text(plan);
  return path;
}

TEST(SimulateVerb, TimesAPlanOnANamedCluster) {
  const ScratchFolder folder;
  const std::string path = write(folder, nano_plan());
  const CommandResult run = heteroperf(
      {"simulate", path, "--cluster", "fast2_slow6", "--trace", folder / "trace.json", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  const double step_s = report.at("step_time_s");
  EXPECT_GT(step_s, 0);
  EXPECT_DOUBLE_EQ(report.at("throughput"), 16 / step_s);
  ASSERT_EQ(report.at("per_rank").size(), 4u);
  for (const Json& rank : report.at("per_rank")) {
    EXPECT_NEAR(rank.at("compute_s").get<double>() + rank.at("idle_s").get<double>(), step_s,
                1e-9 * step_s);
    EXPECT_GT(rank.at("peak_bytes"), 0);
  }
  EXPECT_FALSE(report.at("critical_path").empty());
  for (const char* key : {"bubble_rate_makespan", "bubble_rate_span", "instructions", "wall_s"}) {
    EXPECT_TRUE(report.contains(key)) << key;
  }
  EXPECT_FALSE(Json::parse(std::ifstream(folder / "trace.json")).empty());
}

/// Fast ranks that hold what slow ones hold compute for a shorter time, and wait.
TEST(SimulateVerb, EveryRankHasItsOwnReplicasTime) {
  const ScratchFolder folder;
  EvenPlanRequest request;
  request.data = 8;
  Plan plan = even_plan(build_model("nano"), request);
  plan.workload = nano_plan().workload;
  plan.cluster = "fast2_slow6";
  const CommandResult run =
      heteroperf({"simulate", write(folder, plan), "--trace", folder / "trace.json", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  const double fast = report.at("per_rank").at(0).at("compute_s");
  const double slow = report.at("per_rank").at(7).at("compute_s");
  EXPECT_GT(slow, 2 * fast);
  const double all = 2 * fast + 6 * slow;
  EXPECT_NEAR(report.at("bubble_rate"), 1 - all / (8 * report.at("step_time_s").get<double>()),
              1e-12);
  std::map<int, double> traced;
  const Json trace = Json::parse(std::ifstream(folder / "trace.json"));
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") traced[event.at("tid")] += event.at("dur").get<double>();
  }
  ASSERT_EQ(traced.size(), 8u);
  EXPECT_GT(traced.at(8), 2 * traced.at(1));
}

TEST(SimulateVerb, APlanMayNameItsCluster) {
  const ScratchFolder folder;
  Plan plan = nano_plan();
  plan.cluster = "three_vendors";
  const CommandResult run = heteroperf({"simulate", write(folder, plan)});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("three vendors"), std::string::npos) << run.out;
}

TEST(SimulateVerb, WhatAPlanLacksIsSaidAtOnce) {
  const ScratchFolder folder;
  Plan plan = nano_plan();
  plan.workload.reset();
  const CommandResult bare = heteroperf({"simulate", write(folder, plan)});
  EXPECT_EQ(bare.exit_code, 2);
  EXPECT_NE(bare.err.find("does not say its workload"), std::string::npos) << bare.err;
  EXPECT_NE(bare.err.find("does not say its cluster"), std::string::npos) << bare.err;
  const CommandResult other = heteroperf({"simulate", folder / "plan.json", "--workload", "llm",
                                          "--size", "micro", "--cluster", "laptop"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("the plan is for the graph"), std::string::npos) << other.err;
  EXPECT_NE(other.err.find("a plan of 4 ranks"), std::string::npos) << other.err;
  const CommandResult costs =
      heteroperf({"simulate", folder / "plan.json", "--cluster", "laptop", "--costs", "1,1,1,0"});
  EXPECT_EQ(costs.exit_code, 2);
  const CommandResult name = heteroperf({"simulate", folder / "plan.json", "--workload", "llm",
                                         "--size", "nano", "--cluster", "fast2_slow5"});
  EXPECT_EQ(name.exit_code, 2);
  EXPECT_NE(name.err.find("fast2_slow6"), std::string::npos) << name.err;
}

TEST(ListVerb, ShowsTheShippedClusters) {
  const CommandResult run = heteroperf({"list", "devices", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::string names;
  const Json list = Json::parse(run.out);
  for (const Json& item : list.at("items")) {
    names += item.at("name").get<std::string>() + " ";
  }
  for (const char* name : {"laptop", "fast2_slow6", "a100_v100_like", "three_vendors"}) {
    EXPECT_NE(names.find(name), std::string::npos) << names;
  }
}

TEST(PlanVerb, SaysWhatAnObjectiveLacks) {
  const CommandResult run = heteroperf({"plan", "llm", "--size", "nano", "--cluster", "fast2_slow6",
                                        "--objective", "energy", "--json"});
  EXPECT_EQ(run.exit_code, 2);
  const Json problem = Json::parse(run.out);
  EXPECT_NE(problem.at("error").at("message").get<std::string>().find("idle_watts"),
            std::string::npos)
      << run.out;
}

TEST(PlanVerb, PlacesComponentsAndComparesWithTheCentricPlan) {
  const ScratchFolder folder;
  const std::string path = folder / "plan.json";
  const CommandResult run =
      heteroperf({"plan", "two-tower", "--size", "micro", "--cluster", "a100_v100_like",
                  "--compare", "homogeneous,centric", "-o", path});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(std::ifstream(path));
  const double step_s = report.at("predicted").at("step_time_s");
  const Json& placements = report.at("placements");
  EXPECT_EQ(placements.at(0).at("step_time_s"), step_s);
  std::set<std::string> names;
  for (const Json& each : placements) {
    names.insert(each.at("placement"));
    EXPECT_GE(each.value("step_time_s", step_s), step_s);
  }
  EXPECT_TRUE(names.contains("chain") && names.contains("centric"));
  EXPECT_NEAR(report.at("centric").at("speedup").get<double>(),
              report.at("centric").at("step_time_s").get<double>() / step_s, 1e-9);
  EXPECT_EQ(report.at("comparison").size(), 2u);
  EXPECT_EQ(heteroperf({"verify", path}).exit_code, 0);
  std::string text = read_text_file(path);
  const std::string key = "\"speedup\":";
  text.replace(text.find(key) + key.size(), 1, "9");
  EXPECT_NE(heteroperf({"verify", folder.write("forged.json", text)}).exit_code, 0);
}

TEST(PlanVerb, ScoresAnImportedPlanBesideItsOwn) {
  const ScratchFolder folder;
  const std::string path = write(folder, nano_plan());
  const CommandResult run = heteroperf({"plan", "llm", "--size", "nano", "--cluster", "fast2_slow6",
                                        "--import", "plan:" + path, "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  const Json& imported = report.at("imported").at(0);
  EXPECT_EQ(imported.at("source"), "plan:" + path);
  EXPECT_GT(imported.at("step_time_s"), 0);
  EXPECT_LT(imported.at("ratio"), 1);
  EXPECT_EQ(heteroperf({"plan", "llm", "--cluster", "fast2_slow6", "--import", "paln:x"}).exit_code,
            2);
  EXPECT_EQ(heteroperf({"plan", "llm", "--import", "sailor:x", "--cluster", "a=1"}).exit_code, 2);
  EXPECT_EQ(heteroperf({"plan", "--cluster", "fast2_slow6"}).exit_code, 2);
}

TEST(PlanVerb, AProfileChangesThePlanAndIsVerifiedWithIt) {
  const ScratchFolder folder;
  std::ofstream(folder / "profile.json")
      << R"({"_format":"heteroperf-efficiency","_version":1,"operations":[{"class":"fast",)"
      << R"("operation":"gemm","precision":"fp32","ops_per_second":1e9,"provenance":"probe",)"
      << R"("source":"by hand"}],"devices":[],"links":[]})";
  const std::vector<std::string> plain{"plan",      "llm",         "--size", "nano",
                                       "--cluster", "fast2_slow6", "--json"};
  std::vector<std::string> profiled = plain;
  profiled.insert(profiled.end(),
                  {"--profile", folder / "profile.json", "-o", folder / "plan.json"});
  const CommandResult before = heteroperf(plain), after = heteroperf(profiled);
  ASSERT_EQ(after.exit_code, 0) << after.err;
  const auto step_s = [](const CommandResult& run) {
    return Json::parse(run.out).at("predicted").at("step_time_s").get<double>();
  };
  EXPECT_GT(step_s(after), 1.2 * step_s(before));
  EXPECT_EQ(heteroperf({"verify", folder / "plan.json"}).exit_code, 0);
  const CommandResult simulated = heteroperf({"simulate", folder / "plan.json", "--json"});
  EXPECT_DOUBLE_EQ(Json::parse(simulated.out).at("step_time_s").get<double>(), step_s(after));
}

}  // namespace
}  // namespace heteroperf::testing
