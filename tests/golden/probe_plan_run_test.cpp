// From a machine to a run: `probe`, `plan` and `run`, each on what the one before it wrote.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

Json read_probed_json(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

void write(const std::string& path, const Json& document) {
  std::ofstream(path) << document.dump();
}

CommandResult probe_nano(const ScratchFolder& folder, const Words& more = {}) {
  Words words{"probe", "llm",           "--size", "nano",           "--ranks", "2",  "--precision",
              "fp32",  "--micro-batch", "1,4",    "--seconds-each", "0.001",   "-o", "me.json"};
  words.insert(words.end(), more.begin(), more.end());
  return heteroperf(words, folder.path());
}

CommandResult plan_nano(const ScratchFolder& folder, const Words& more = {}) {
  Words words{"plan",    "llm", "--size", "nano",      "--cluster", "me.json",
              "--batch", "16",  "-o",     "plan.json", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return heteroperf(words, folder.path());
}

std::set<std::string> operations_of(const Json& cluster) {
  std::set<std::string> names;
  for (const Json& entry : cluster.at("efficiency")) {
    const std::string name = entry.at("operation");
    if (name.find('/') == std::string::npos) continue;
    names.insert(name);
    EXPECT_EQ(entry.at("provenance"), "probe") << entry;
    EXPECT_EQ(entry.at("precision"), "fp32") << entry;
    EXPECT_NE(entry.at("source").get<std::string>().find("llm nano fp32"), std::string::npos);
    EXPECT_NE(entry.at("shape"), "") << entry;
    const double rate = entry.at("ops_per_second");
    EXPECT_TRUE(std::isfinite(rate) && rate > 0) << entry;
  }
  return names;
}

/// One machine for all that is asked of it: a probe takes some seconds.
class ProbePlanRun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new ScratchFolder();
    probed_ = new CommandResult(probe_nano(*folder_));
  }
  static void TearDownTestSuite() {
    delete probed_;
    delete folder_;
  }
  static inline ScratchFolder* folder_ = nullptr;
  static inline CommandResult* probed_ = nullptr;
};

TEST_F(ProbePlanRun, APlanRestsOnWhatWasMeasuredAndTheRunSaysTheSame) {
  ASSERT_EQ(probed_->exit_code, 0) << probed_->err;
  EXPECT_NE(probed_->out.find("rates of single operations"), std::string::npos) << probed_->out;
  const std::set<std::string> names = operations_of(read_probed_json(*folder_ / "me.json"));
  for (const char* name : {"gemm/forward", "gemm/input_gradient", "gemm/weight_gradient",
                           "attention/forward", "attention/input_gradient", "layer_norm/forward",
                           "gemm+gelu/forward", "cross_entropy/forward", "optimizer/adamw"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }

  const CommandResult planned = plan_nano(*folder_);
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Json plan = Json::parse(planned.out);
  const Json& rates = plan.at("rates");
  EXPECT_DOUBLE_EQ(rates.at("analytic_fraction").get<double>(), 0);
  EXPECT_NEAR(
      rates.at("measured_fraction").get<double>() + rates.at("other_shape_fraction").get<double>(),
      1, 1e-9);
  const double predicted = plan.at("predicted").at("step_time_s");
  EXPECT_EQ(heteroperf({"verify", "plan.json"}, folder_->path()).exit_code, 0);

  const CommandResult simulated = heteroperf({"simulate", "plan.json", "--json"}, folder_->path());
  ASSERT_EQ(simulated.exit_code, 0) << simulated.err;
  EXPECT_DOUBLE_EQ(Json::parse(simulated.out).at("step_time_s").get<double>(), predicted);

  const CommandResult run =
      heteroperf({"run", "llm", "--plan", "plan.json", "--steps", "4", "--set", "measure.peak_s=0",
                  "--set", "measure.evaluation_samples=4", "--out", "r", "-q", "--json"},
                 folder_->path());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json record = Json::parse(run.out);
  EXPECT_DOUBLE_EQ(record.at("prediction").at("step_time_s").get<double>(), predicted);
  EXPECT_TRUE(record.at("prediction").contains("error_fraction"));
}

/// A run that names no cluster was made on the probed one when host, ranks and threads are its own.
TEST_F(ProbePlanRun, ARunOfTheProbedMachineIsSetBesideThePrediction) {
  ASSERT_EQ(probed_->exit_code, 0) << probed_->err;
  const auto simulated = [&](const char* ranks) {
    const std::string folder = std::string("plain-") + ranks;
    const CommandResult run =
        heteroperf({"run", "llm", "--size", "nano", "--ranks", ranks, "--steps", "3", "--set",
                    "measure.peak_s=0", "--set", "measure.evaluation_samples=4", "--out", folder,
                    "-q", "--json"},
                   folder_->path());
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return heteroperf({"simulate", folder + "/plan.json", "--cluster", "me.json", "--json"},
                      folder_->path());
  };
  const CommandResult same = simulated("2");
  ASSERT_EQ(same.exit_code, 0) << same.err;
  EXPECT_TRUE(Json::parse(same.out).contains("measured"));
  EXPECT_EQ(simulated("1").exit_code, 2);
}

TEST_F(ProbePlanRun, OtherPrecisionsAndModelsStayAnalyticAndItIsSaid) {
  ASSERT_EQ(probed_->exit_code, 0) << probed_->err;
  const Words bf16{"plan", "llm", "--size", "nano", "--precision", "bf16", "--cluster", "me.json"};
  const CommandResult other_precision = heteroperf(bf16, folder_->path());
  ASSERT_EQ(other_precision.exit_code, 0) << other_precision.err;
  EXPECT_NE(other_precision.out.find("no operation is measured in bf16 (in fp32 they are)"),
            std::string::npos)
      << other_precision.out;
  const CommandResult other_model =
      heteroperf({"plan", "image", "--cluster", "me.json"}, folder_->path());
  ASSERT_EQ(other_model.exit_code, 0) << other_model.err;
  EXPECT_NE(other_model.out.find("% analytic (conv2d/"), std::string::npos) << other_model.out;
}

/// A profile knows better than the cluster's file: plan, simulate and run agree.
TEST_F(ProbePlanRun, AProfileGoesWithItsPlan) {
  ASSERT_EQ(probed_->exit_code, 0) << probed_->err;
  const Json cluster = read_probed_json(*folder_ / "me.json");
  Json profile{{"_format", "heteroperf-efficiency"}, {"_version", 1}};
  for (const Json& entry : cluster.at("efficiency")) {
    if (entry.at("operation").get<std::string>().find('/') == std::string::npos) continue;
    Json slower = entry;
    slower["ops_per_second"] = entry.at("ops_per_second").get<double>() / 3;
    profile["operations"].push_back(slower);
  }
  write(*folder_ / "profile.json", profile);
  const double own = Json::parse(plan_nano(*folder_).out).at("predicted").at("step_time_s");
  const CommandResult planned = plan_nano(*folder_, {"--profile", "profile.json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const double predicted = Json::parse(planned.out).at("predicted").at("step_time_s");
  EXPECT_GT(predicted, 1.5 * own);
  const CommandResult run =
      heteroperf({"run", "llm", "--plan", "plan.json", "--steps", "2", "--set", "measure.peak_s=0",
                  "--set", "measure.evaluation_samples=4", "--out", "p", "-q", "--json"},
                 folder_->path());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_DOUBLE_EQ(Json::parse(run.out).at("prediction").at("step_time_s").get<double>(),
                   predicted);
  const CommandResult again = heteroperf({"simulate", "p/plan.json", "--json"}, folder_->path());
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_DOUBLE_EQ(Json::parse(again.out).at("step_time_s").get<double>(), predicted);
}

TEST_F(ProbePlanRun, EntriesThatCannotBeAreRefused) {
  ASSERT_EQ(probed_->exit_code, 0) << probed_->err;
  const Json cluster = read_probed_json(*folder_ / "me.json");
  const auto spoilt = [&](const Json& rate) {
    Json copy = cluster;
    for (Json& entry : copy.at("efficiency")) {
      if (entry.at("operation") == "attention/forward") entry["ops_per_second"] = rate;
    }
    write(*folder_ / "spoilt.json", copy);
    return heteroperf({"plan", "llm", "--size", "nano", "--cluster", "spoilt.json"},
                      folder_->path());
  };
  for (const Json& rate : {Json(-1), Json(0), Json("fast")}) {
    const CommandResult result = spoilt(rate);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find(rate.is_string() ? "ops_per_second" : "attention/forward"),
              std::string::npos)
        << result.err;
  }
  std::string text = cluster.dump();
  const std::string number = "\"ops_per_second\":";
  text.replace(text.find(number) + number.size(), 1, "1e999");
  std::ofstream(*folder_ / "spoilt.json") << text;
  EXPECT_EQ(
      heteroperf({"plan", "llm", "--size", "nano", "--cluster", "spoilt.json"}, folder_->path())
          .exit_code,
      2);
}

TEST(ProbeOperations, WhatCannotBeMeasuredIsRefusedBeforeAnythingRuns) {
  const ScratchFolder folder;
  const CommandResult result =
      heteroperf({"probe", "lm", "--precision", "fp23", "--micro-batch", "0", "--seconds-each", "0",
                  "--time-limit", "-1", "-o", "c.json"},
                 folder.path());
  EXPECT_EQ(result.exit_code, 2);
  for (const char* part :
       {"'lm'", "'fp23'", "--micro-batch 0", "--seconds-each 0", "--time-limit -1"}) {
    EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n" << result.err;
  }
  const CommandResult contradiction =
      heteroperf({"probe", "llm", "--links-only", "-o", "c.json"}, folder.path());
  EXPECT_EQ(contradiction.exit_code, 2) << contradiction.err;
  const CommandResult meaningless =
      heteroperf({"probe", "image", "--size", "nano", "-o", "c.json"}, folder.path());
  EXPECT_EQ(meaningless.exit_code, 2) << meaningless.err;
  for (const Words& unknown : {Words{"probe", "llm", "--size", "nan", "-o", "c.json"},
                               Words{"probe", "image", "--model", "gpt2", "-o", "c.json"}}) {
    const CommandResult refused = heteroperf(unknown, folder.path());
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_NE(refused.err.find(unknown[3]), std::string::npos) << refused.err;
  }
  EXPECT_FALSE(std::ifstream(folder / "c.json").is_open());
}

TEST(ProbeOperations, AModelThatFitsNowhereAndNoTime) {
  const ScratchFolder folder;
  const CommandResult large =
      heteroperf({"probe", "llm", "--size", "175b", "--ranks", "2", "--micro-batch", "4096",
                  "--precision", "fp32", "-o", "c.json"},
                 folder.path());
  EXPECT_EQ(large.exit_code, 2) << large.err;
  EXPECT_NE(large.err.find("GiB"), std::string::npos) << large.err;
  const CommandResult late = probe_nano(folder, {"--time-limit", "0.000001"});
  ASSERT_EQ(late.exit_code, 0) << late.err;
  EXPECT_NE(late.err.find("not measured: llm nano fp32, micro-batch 1"), std::string::npos)
      << late.err;
  EXPECT_TRUE(operations_of(read_probed_json(folder / "me.json")).empty());
}

}  // namespace
}  // namespace heteroperf::testing
