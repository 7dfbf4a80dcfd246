#include "runners/plan/rivals/sailor/sailor_planning.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "metrics/base/error.hpp"
#include "runners/plan/rivals/sailor/sailor_score.hpp"
#include "tests/unit/runners/plan/rivals/sailor/small_sailor.hpp"

namespace heteroperf {
namespace {

SailorPlanningRequest request_for(const SmallSailor& small, const std::string& cluster) {
  SailorPlanningRequest request;
  request.source = small.folder.string();
  request.cluster = cluster;
  request.time_limit_s = 1e9;
  return request;
}

std::string problem_of(const SailorPlanningRequest& request) {
  try {
    plan_sailor(request);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SailorPlanning, EveryCostModelGivesAPlanThatItsOwnNumbersHold) {
  const SmallSailor small;
  small.write();
  for (const char* name : {"own", "sailor", "sailor+"}) {
    SailorPlanningRequest request = request_for(small, "fast=4,slow=8");
    request.cost_model = parse_cost_model(name);
    request.compare = true;
    const SailorPlanReport report = plan_sailor(request);
    check_sailor_plan(report.tables, report.chosen.plan);
    EXPECT_EQ(report.chosen.formula_s, sailor_step_time_s(report.tables, report.chosen.plan));
    EXPECT_LT(report.lower_bound_s, report.seconds(report.chosen));
    EXPECT_GT(report.lower_bound_s, 0.3 * report.seconds(report.chosen));
    ASSERT_TRUE(report.hsr().has_value());
    EXPECT_GT(*report.hsr(), 0.5);
    const Json json = Json::parse(sailor_plan_json_text(report));
    EXPECT_EQ(json.at("cost_model"), name);
    EXPECT_EQ(json.at("predicted").at("step_time_s"), report.seconds(report.chosen));
    for (const Json& rank : json.at("memory")) EXPECT_LE(rank.at("bytes"), rank.at("limit_bytes"));
  }
}

TEST(SailorPlanning, APeersPlanStandsBeside) {
  const SmallSailor small;
  small.write();
  const auto file = small.folder / "peer.json";
  const Json replica = Json::parse(R"([[["fast", 1, "here"]], 1])");
  const Json plan{{"pipeline_list",
                   Json::array({{{"layers_per_stage", {{0, 1, 2, 3}}},
                                 {"tmp_per_stage", Json::array({Json::array({replica, replica})})},
                                 {"dp", {2}}}})},
                  {"mbs", 2}};
  SmallSailor::write(file, plan.dump());
  SailorPlanningRequest request = request_for(small, "fast=4");
  request.peers = {file.string()};
  const SailorPlanReport report = plan_sailor(request);
  ASSERT_EQ(report.peers.size(), 1u);
  EXPECT_GE(report.peers[0].formula_s, report.chosen.formula_s);
  EXPECT_GT(report.peers[0].simulated_s, 0);
  EXPECT_NE(sailor_plan_table(report).find("peer.json"), std::string::npos);
}

TEST(SailorPlanning, DevicesFromAListAndATrace) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  EXPECT_EQ(sailor_devices(tables, "slow=3,fast=1"), (SailorDevices{1, 3}));
  const auto trace = small.folder / "trace.csv";
  SmallSailor::write(trace, ",Timestamp,fast_here,slow_here\n0,1.0,2,4\n1,2.0,3,5\n");
  EXPECT_EQ(sailor_devices(tables, trace.string()), (SailorDevices{2, 4}));
  EXPECT_EQ(sailor_devices(tables, trace.string() + ":1"), (SailorDevices{3, 5}));
  EXPECT_THROW(sailor_devices(tables, trace.string() + ":2"), UserError);
}

TEST(SailorPlanning, WhatIsWrongIsSaid) {
  const SmallSailor small;
  small.write();
  const auto expect = [](const SailorPlanningRequest& request, const std::string& words) {
    const std::string message = problem_of(request);
    EXPECT_NE(message.find(words), std::string::npos) << words << "\nnot in: " << message;
  };
  expect(request_for(small, "fsat=4"), "fast");
  expect(request_for(small, "fast=four"), "fast=four");
  expect(request_for(small, "fast=0,slow=0"), "no devices");
  expect(request_for(small, "fast=-1"), "fast=-1");
  SailorPlanningRequest other = request_for(small, "fast=4");
  other.model = "tinny";
  expect(other, "tiny");
  EXPECT_THROW(parse_cost_model("sailors"), UserError);
}

TEST(SailorPlanning, ItsFileVerifiesAndAChangedOneDoesNot) {
  const SmallSailor small;
  small.write();
  const std::string file = (small.folder / "plan.json").string();
  for (const char* name : {"own", "sailor", "sailor+"}) {
    SailorPlanningRequest request = request_for(small, "fast=4,slow=8");
    request.cost_model = parse_cost_model(name);
    const std::string text = sailor_plan_json_text(plan_sailor(request));
    SmallSailor::write(file, text);
    ASSERT_TRUE(is_sailor_plan_file(file));
    EXPECT_TRUE(verify_sailor_plan_file(file).ok()) << verify_sailor_plan_file(file).to_json();
    Json changed = Json::parse(text);
    changed["predicted"]["step_time_s"] = 0.9 * changed["predicted"]["step_time_s"].get<double>();
    SmallSailor::write(file, changed.dump());
    EXPECT_FALSE(verify_sailor_plan_file(file).ok());
    changed = Json::parse(text);
    changed["cluster"] = "fast=1,slow=1";
    SmallSailor::write(file, changed.dump());
    EXPECT_FALSE(verify_sailor_plan_file(file).ok());
  }
}

TEST(SailorPlanning, MissingProfilesAreNamedAndCanBeFilled) {
  SmallSailor small;
  small.profiles["tiny"]["slow"]["4"].erase("2");
  small.profiles["tiny"]["slow"].erase("1");
  small.write();
  SailorPlanningRequest request = request_for(small, "fast=1,slow=2");
  const SailorPlanReport without = plan_sailor(request);
  ASSERT_EQ(without.notes.size(), 1u);
  EXPECT_NE(without.notes[0].find("slow tp1 micro-batch 1; slow tp2 micro-batch 1; slow tp2 "
                                  "micro-batch 4 (--fill-profiles"),
            std::string::npos)
      << without.notes[0];
  const int slow = without.tables.place("slow");
  EXPECT_TRUE(std::isinf(without.tables.compute_s({slow, 2}, 4, {0, 4})));
  request.fill_profiles = true;
  const SailorPlanReport with = plan_sailor(request);
  EXPECT_NE(with.notes[0].find("analytic"), std::string::npos);
  EXPECT_LE(with.chosen.formula_s, without.chosen.formula_s);
  // The sample's times are in proportion to the samples, so that scaling is exact.
  EXPECT_DOUBLE_EQ(with.tables.compute_s({slow, 2}, 4, {0, 4}),
                   2 * with.tables.compute_s({slow, 2}, 2, {0, 4}));
  EXPECT_DOUBLE_EQ(with.tables.compute_s({slow, 1}, 1, {0, 4}),
                   0.5 * with.tables.compute_s({slow, 1}, 2, {0, 4}));
}

TEST(SailorPlanning, AHundredThousandDevicesEnd) {
  const SmallSailor small;
  small.write();
  SailorPlanningRequest request = request_for(small, "fast=50000,slow=50000");
  request.time_limit_s = 2;
  const SailorPlanReport report = plan_sailor(request);
  EXPECT_GT(report.chosen.formula_s, 0);
}

}  // namespace
}  // namespace heteroperf
