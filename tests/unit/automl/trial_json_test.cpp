#include "automl/trial_json.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "metrics/base/error.hpp"
#include "tests/unit/automl/sample_graphs.hpp"

namespace heteroperf {
namespace {

Trial sample_trial() {
  Search search(small_resnet(), {});
  search.propose();
  Trial trial = search.propose();
  trial.parent = 0;
  trial.steps = 300;
  trial.rung = 1;
  return trial;
}

TrialOutcome sample_outcome() {
  TrialOutcome outcome;
  outcome.id = 7;
  outcome.state = TrialState::stopped;
  outcome.quality = 0.1 + 0.2;
  outcome.loss = 1.0 / 3.0;
  outcome.steps = 900;
  outcome.ops = Ops::parse("340282366920938463463374607431768211455");
  outcome.reason = "not among the best";
  outcome.milestones = {{0.25, 2.5}, {0.3, std::nan("")}};
  return outcome;
}

using Json = nlohmann::ordered_json;

Json trial_to_json(const Trial& trial) {
  return message_to_json(Assignment{trial, ""}).at("trial");
}
Trial trial_from_json(const Json& json) {
  return message_from_json<Assignment>({{"trial", json}}, "assignment").trial.value();
}
Json outcome_to_json(const TrialOutcome& outcome) {
  return message_to_json(Decision{std::nullopt, 0, outcome}).at("outcome");
}
TrialOutcome outcome_from_json(const Json& json) {
  return message_from_json<Decision>({{"rung", 0}, {"outcome", json}}, "decision").outcome.value();
}
TrialReport report_from_json(const Json& json) {
  return message_from_json<TrialReport>(json, "trial report");
}

TEST(TrialJson, TrialsRoundTrip) {
  const auto json = trial_to_json(sample_trial());
  const auto again = trial_to_json(trial_from_json(Json::parse(json.dump())));
  EXPECT_EQ(again.dump(), json.dump());
  const Trial trial = trial_from_json(json);
  EXPECT_EQ(trial.hyper, sample_trial().hyper);
  EXPECT_EQ(trial.seed, sample_trial().seed);
  EXPECT_EQ(trial.graph.hash(), sample_trial().graph.hash());
  EXPECT_TRUE(json.at("seed").is_string());
}

TEST(TrialJson, AnInitialTrialHasNeitherParentNorMorph) {
  Search search(small_resnet(), {});
  const auto json = trial_to_json(search.propose());
  EXPECT_FALSE(json.contains("parent"));
  EXPECT_FALSE(json.contains("morph"));
  EXPECT_FALSE(trial_from_json(json).parent.has_value());
}

TEST(TrialJson, OutcomesRoundTripWithoutNan) {
  const auto json = outcome_to_json(sample_outcome());
  EXPECT_EQ(json.dump().find("null"), std::string::npos);
  EXPECT_EQ(json.at("ops"), "340282366920938463463374607431768211455");
  const TrialOutcome outcome = outcome_from_json(Json::parse(json.dump()));
  EXPECT_EQ(outcome_to_json(outcome).dump(), json.dump());
  EXPECT_EQ(outcome.quality, sample_outcome().quality);
  EXPECT_EQ(outcome.ops, sample_outcome().ops);
  EXPECT_TRUE(std::isnan(outcome.milestones[1].loss));
}

TEST(TrialJson, MessagesRoundTrip) {
  TrialReport report;
  report.id = 3;
  report.quality = std::nan("");
  report.steps = 12;
  report.health = TrialReport::Health::diverged;
  report.reason = "loss is inf";
  const auto report_json = message_to_json(report);
  EXPECT_EQ(message_to_json(report_from_json(report_json)).dump(), report_json.dump());
  EXPECT_TRUE(std::isnan(report_from_json(report_json).quality));

  for (const Assignment& assignment : {Assignment{sample_trial(), {}}, Assignment{{}, "closed"}}) {
    const auto json = message_to_json(assignment);
    EXPECT_EQ(message_to_json(message_from_json<Assignment>(json, "assignment")).dump(),
              json.dump());
  }
  for (const Decision& decision :
       {Decision{900, 2, {}}, Decision{std::nullopt, 0, sample_outcome()}, Decision{}}) {
    const auto json = message_to_json(decision);
    EXPECT_EQ(message_to_json(message_from_json<Decision>(json, "decision")).dump(), json.dump());
  }
}

TEST(TrialJson, EveryStateHasAName) {
  for (TrialState state : {TrialState::completed, TrialState::stopped, TrialState::diverged,
                           TrialState::failed, TrialState::truncated}) {
    EXPECT_EQ(find_value<TrialState>(to_string(state)), state);
  }
  EXPECT_FALSE(find_value<TrialState>("complete"));
}

TEST(TrialJson, ReportsAllProblemsOfAnObject) {
  auto json = outcome_to_json(sample_outcome());
  json.erase("steps");
  json["ops"] = 12;
  json["qualty"] = 1;
  json["state"] = "stoped";
  try {
    outcome_from_json(json);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.problems().size(), 4u) << error.what();
    EXPECT_NE(std::string(error.what()).find("Did you mean \"quality\"?"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("Did you mean \"stopped\"?"), std::string::npos);
  }
}

TEST(TrialJson, RefusesWrongTypes) {
  const auto with = [](const char* key, Json value) {
    auto json = trial_to_json(sample_trial());
    json[key] = std::move(value);
    return json;
  };
  EXPECT_THROW(trial_from_json(with("id", -1)), UserError);
  EXPECT_THROW(trial_from_json(with("id", "1")), UserError);
  EXPECT_THROW(trial_from_json(with("rung", 4294967296)), UserError);
  EXPECT_THROW(trial_from_json(with("seed", 12)), UserError);
  EXPECT_THROW(trial_from_json(with("seed", "18446744073709551616")), UserError);
  EXPECT_THROW(trial_from_json(with("seed", "12x")), UserError);
  EXPECT_THROW(trial_from_json(with("parent", "0")), UserError);
  EXPECT_THROW(trial_from_json(with("graph", 1)), UserError);
  EXPECT_THROW(trial_from_json(with("hyper", 1)), UserError);
  EXPECT_THROW(trial_from_json(Json::array()), UserError);
  EXPECT_THROW(message_from_json<Decision>({{"rung", 0}, {"until_step", -3}}, "decision"),
               UserError);
  EXPECT_THROW(report_from_json({{"id", 1}, {"steps", 2}, {"health", "well"}}), UserError);
}

}  // namespace
}  // namespace heteroperf
