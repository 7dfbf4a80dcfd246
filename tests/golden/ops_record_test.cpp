// Records of `ops` as compare and gate take them. One is measured; the others are that one with
// times of their own, since no machine gives the same times again.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Edit = std::function<void(Json& record)>;

std::string metric_of(const Json& timing) {
  return "operator:" + timing.at("device").get<std::string>() + "/fp32/llm-nano/" +
         timing.at("operator").get<std::string>() + "/" + timing.at("shape").get<std::string>() +
         "/" + timing.at("pass").get<std::string>();
}

void scale(Json& timing, double factor) {
  timing["least_s"] = factor * timing.at("least_s").get<double>();
  for (Json& seconds : timing.at("ci95")) seconds = factor * seconds.get<double>();
  for (Json& seconds : timing.at("samples_s")) seconds = factor * seconds.get<double>();
}

class OpsRecords : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const ScratchFolder folder;
    const CommandResult result =
        heteroperf({"ops", "llm", "--size", "nano", "--score", "--threads", "1", "-q"},
                   folder.path(), {"HETEROPERF_OPS_RECORD=r"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    std::ifstream record(folder.path() + "/r/record.json");
    ASSERT_TRUE(record);
    measured_ = Json::parse(record);
  }

  /// Five records below `side`, whose times are some thousandths apart.
  void write(const std::string& side, const Edit& edit) {
    constexpr double noise[] = {0.001, -0.002, 0.003, 0, -0.001};
    for (std::size_t k = 0; k < std::size(noise); ++k) {
      Json record = measured_;
      ++written_;
      record["run_id"] = "ops-" + std::to_string(written_);
      record["created_utc"] = "2026-01-01T10:00:" + std::to_string(10 + written_) + "Z";
      const double factor = 1 + noise[(k + written_) % std::size(noise)];
      for (Json& timing : record.at("timings")) scale(timing, factor);
      Json& throughput = record.at("metrics").at("throughput");
      throughput["value"] = throughput.at("value").get<double>() / factor;
      for (Json& end : throughput.at("ci95")) end = end.get<double>() / factor;
      edit(record);
      const std::string home = folder_.path() + "/" + side + "/" + std::to_string(k);
      std::filesystem::create_directories(home);
      std::ofstream(home + "/record.json") << record;
    }
  }

  CommandResult ask(std::vector<std::string> words) { return heteroperf(words, folder_.path()); }
  CommandResult gate() {
    return ask({"gate", "--base", "base", "--head", "head", "--junit", "g.xml", "--json"});
  }

  static Json measured_;
  ScratchFolder folder_;
  std::size_t written_ = 0;
};
Json OpsRecords::measured_;

const Edit nothing = [](Json&) {};

TEST_F(OpsRecords, TellWhoMeasuredWhatOnWhichMachine) {
  EXPECT_EQ(measured_.at("_format"), "heteroperf-operators");
  for (const char* place :
       {"/run_id", "/created_utc", "/program/git_commit", "/program/version", "/seed",
        "/system/cpu/model/value", "/system/libtorch", "/scale/devices/0/threads",
        "/workload/precision", "/metrics/throughput/ci95", "/reproduce"}) {
    EXPECT_TRUE(measured_.contains(Json::json_pointer(place))) << place;
  }
  EXPECT_FALSE(measured_.at("validity").at("rankable"));
  ASSERT_FALSE(measured_.at("timings").empty());
  for (const Json& timing : measured_.at("timings")) {
    const std::vector<double> samples = timing.at("samples_s");
    EXPECT_GE(samples.size(), 6u);
    EXPECT_EQ(timing.at("least_s"), *std::ranges::min_element(samples));
    EXPECT_EQ(timing.at("ci95")[0], timing.at("least_s")) << timing;
  }
}

TEST_F(OpsRecords, AreRecomputedFromTheirTurns) {
  write("all", nothing);
  const CommandResult whole = ask({"verify", "all"});
  EXPECT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  const std::pair<const char*, Edit> edits[] = {
      {"/timings/1/least_s", [](Json& r) { r["timings"][1]["least_s"] = 1e-9; }},
      {"/timings/0/ci95", [](Json& r) { r["timings"][0]["ci95"][1] = 1; }},
      {"/timings/2/least_s", [](Json& r) { r["timings"][2]["samples_s"][0] = 1e-9; }},
      {"/metrics/throughput/value", [](Json& r) { r["metrics"]["throughput"]["value"] = 1e9; }},
      {"/operators/0/efficiency", [](Json& r) { r["operators"][0]["efficiency"] = 0.1; }},
      {"/scores/0/score", [](Json& r) { r["scores"][0]["score"] = 0.1; }},
      {"/score", [](Json& r) { r["score"] = 0.1; }},
      {"recomputation", [](Json& r) { r["timings"][0]["samples_s"] = Json::array(); }},
      {"recomputation", [](Json& r) { r["timings"][0]["count"] = "many"; }}};
  for (const auto& [check, forge] : edits) {
    const std::string side = "forged" + std::to_string(written_);
    write(side, forge);
    const CommandResult result = ask({"verify", side + "/0", "--json"});
    EXPECT_EQ(result.exit_code, 9) << check << result.out << result.err;
    const Json printed = Json::parse(result.out);
    for (const Json& told : printed.at("checks")) {
      if (told.at("name") == check) {
        EXPECT_FALSE(told.at("ok")) << told;
      }
    }
    EXPECT_NE(result.out.find(check), std::string::npos) << result.out;
  }
}

TEST_F(OpsRecords, OfOneProgramPassTheGate) {
  write("base", nothing);
  write("head", nothing);
  const CommandResult result = gate();
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const Json report = Json::parse(result.out);
  EXPECT_EQ(report.at("verdict"), "pass");
  // Every timing, the throughput, the device's efficiency and the score.
  EXPECT_EQ(report.at("metrics").size(), measured_.at("timings").size() + 3);
}

TEST_F(OpsRecords, ASlowerOperatorFailsTheGateByItsName) {
  const std::string name = metric_of(measured_.at("timings").at(3));
  write("base", nothing);
  write("head", [](Json& record) { scale(record.at("timings").at(3), 1.2); });
  const CommandResult result = gate();
  ASSERT_EQ(result.exit_code, 3) << result.out << result.err;
  const Json printed = Json::parse(result.out);
  for (const Json& metric : printed.at("metrics")) {
    EXPECT_EQ(metric.at("verdict"), metric.at("name") == name ? "regression" : "pass") << metric;
  }
  std::stringstream junit;
  junit << std::ifstream(folder_.path() + "/g.xml").rdbuf();
  EXPECT_NE(junit.str().find(name), std::string::npos);
  EXPECT_EQ(ask({"gate", "--base", "base", "--head", "head", "--ignore", name, "-q"}).exit_code, 0);
  const CommandResult typo =
      ask({"gate", "--base", "base", "--head", "head", "--ignore", name + "s"});
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_NE(typo.err.find("Did you mean '" + name + "'"), std::string::npos) << typo.err;

  const CommandResult compared = ask({"compare", "base", "head", "--json"});
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  const Json comparison = Json::parse(compared.out);
  for (const Json& metric : comparison.at("metrics")) {
    EXPECT_EQ(metric.at("verdict"), metric.at("name") == name ? "slower" : "same") << metric;
  }
}

TEST_F(OpsRecords, OfSomethingElseAreRefused) {
  const std::pair<const char*, Edit> edits[] = {
      {"threads", [](Json& record) { record["scale"]["devices"][0]["threads"] = 7; }},
      {"cpu:base", [](Json& record) { record["scale"]["devices"][0]["class"] = "cpu:base"; }},
      {"precision", [](Json& record) { record["workload"]["precision"] = "bf16"; }},
      {"workload.hash", [](Json& record) { record["workload"]["hash"] = "0"; }},
      {"machine", [](Json& record) { record["system"]["cpu"]["model"]["value"] = "Z80"; }}};
  write("base", nothing);
  for (const auto& [word, edit] : edits) {
    written_ = 5;
    write("head", edit);
    const CommandResult refused = gate();
    EXPECT_EQ(refused.exit_code, 10) << word << refused.out;
    EXPECT_NE(refused.out.find(word), std::string::npos) << refused.out;
    EXPECT_EQ(ask({"compare", "base", "head"}).exit_code, 10) << word;
  }
}

TEST_F(OpsRecords, OfAChecksReportThereAreNoTimes) {
  write("base", nothing);
  write("head", [](Json& record) {
    for (const char* key : {"timings", "devices", "scores"}) record.erase(key);
  });
  const CommandResult refused = ask({"compare", "base", "head"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("holds no times"), std::string::npos) << refused.err;
}

TEST_F(OpsRecords, AreNeverRanked) {
  write("base", nothing);
  const CommandResult ranked = ask({"rank", "base"});
  EXPECT_EQ(ranked.exit_code, 8) << ranked.out;
  EXPECT_NE(ranked.out.find("times of single operators"), std::string::npos) << ranked.out;
}

}  // namespace
}  // namespace heteroperf::testing
