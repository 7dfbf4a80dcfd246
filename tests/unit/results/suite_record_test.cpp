#include "results/record/suite_record.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/record/ruleset.hpp"
#include "results/record/run_folder.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

using OrderedJson = nlohmann::ordered_json;

namespace fs = std::filesystem;

SampleRun run_of(const std::string& workload, double step_s, int steps = 30) {
  SampleRunOptions options;
  options.step_s = step_s;
  options.steps = steps;
  return part_of_suite(fixed_run(options), whole_suite(), workload);
}

class SuiteRecord : public testing::Test {
 protected:
  RunFiles files(const std::string& workload) const { return {folder_.path() / workload}; }
  OrderedJson built(const SuitePlan& plan = whole_suite()) const {
    return OrderedJson::parse(build_suite_record(folder_.path(), plan));
  }
  /// Of the first fault, as in a message.
  std::string fault(const SuitePlan& plan = whole_suite(),
                    const std::vector<std::string>& recorded = {}) const {
    const auto found = look_at_suite(folder_.path(), plan, recorded).fault;
    return found ? found->expected + ", found " + found->actual : "";
  }
  double record_value(const std::string& workload, const char* pointer) const {
    return OrderedJson::parse(read_text_file(files(workload).record()))
        .at(OrderedJson::json_pointer(pointer));
  }

  TemporaryFolder folder_;
};

TEST_F(SuiteRecord, ScoreIsOperationsOverSeconds) {
  run_of("image", 12).write_finished(files("image"));
  run_of("automl-image", 4, 90).write_finished(files("automl-image"));
  run_of("llm", 6, 60).write_finished(files("llm"));
  const OrderedJson suite = built();
  double operations = 0, seconds = 0;
  for (const char* name : suite_workloads) {
    const double window_s = record_value(name, "/metrics/window_s");
    operations += window_s * record_value(name, "/metrics/ops_per_second/value");
    seconds += window_s;
  }
  const double value = suite.at("metrics").at("ops_per_second").at("value");
  EXPECT_NEAR(value, operations / seconds, value * 1e-9);
  EXPECT_LE(suite.at("metrics").at("ops_per_second").at("ci95").at(0), value);
  EXPECT_GE(suite.at("metrics").at("ops_per_second").at("ci95").at(1), value);
  EXPECT_EQ(suite.at("validity").at("class"), "closed");
  EXPECT_EQ(suite.at("status"), "complete");
}

TEST_F(SuiteRecord, HasNoScoreWhenAWorkloadIsInvalidOrMissing) {
  for (const char* name : {"image", "automl-image"}) run_of(name, 12).write_finished(files(name));
  EXPECT_FALSE(built().contains("metrics"));
  EXPECT_EQ(built().at("validity").at("class"), "invalid");
  EXPECT_EQ(built().at("status"), "partial");
  SampleRun bad = run_of("llm", 12);
  bad.last<ChecksumEvent>().fingerprint = "other";
  bad.write_finished(files("llm"));
  EXPECT_FALSE(built().contains("metrics"));
  EXPECT_EQ(built().at("validity").at("class"), "invalid");
  EXPECT_EQ(built().at("validity").at("rankable"), false);
}

TEST_F(SuiteRecord, TellsOfUnequalWindows) {
  for (const char* name : {"image", "automl-image"}) run_of(name, 12).write_finished(files(name));
  run_of("llm", 14).write_finished(files("llm"));
  EXPECT_EQ(built().at("validity").at("reasons").at(0).at("rule"), "equal_windows");
  EXPECT_EQ(built().at("validity").at("rankable"), false);
  run_of("llm", 13).write_finished(files("llm"));
  EXPECT_TRUE(built().at("validity").at("reasons").empty());
}

TEST_F(SuiteRecord, PlanIsReadBack) {
  const SuitePlan plan = whole_suite();
  EXPECT_FALSE(read_suite_record(folder_.path()).has_value());
  run_of("image", 12).write_finished(files("image"));
  write_suite_record(folder_.path(), plan);
  const auto suite = read_suite_record(folder_.path());
  ASSERT_TRUE(suite.has_value());
  EXPECT_EQ(suite->plan, plan);
  EXPECT_EQ(suite->recorded, std::vector<std::string>{"image"});
}

TEST_F(SuiteRecord, NamesOfWorkloadsLeadNowhereElse) {
  write_suite_record(folder_.path(), whole_suite());
  const fs::path path = RunFiles{folder_.path()}.suite();
  const std::string good = read_text_file(path);
  for (const char* name : {"", "..", "a/b", "/tmp"}) {
    SuitePlan plan = whole_suite();
    plan.workloads.front() = name;
    EXPECT_THROW(build_suite_record(folder_.path(), plan), UserError) << name;
    edit_file(path, "\"folder\": \"image\"", fmt::format("\"folder\": \"{}\"", name));
    EXPECT_THROW(read_suite_record(folder_.path()), UserError) << name;
    write_file_atomically(path, good);
  }
}

TEST_F(SuiteRecord, WithoutAWorkloadOfTheRulesetItIsPartial) {
  SuitePlan plan = whole_suite();
  plan.workloads.pop_back();
  store_suite(folder_.path(), plan);
  EXPECT_EQ(fault(plan), "");
  const OrderedJson suite = built(plan);
  EXPECT_EQ(suite.at("status"), "partial");
  EXPECT_FALSE(suite.contains("metrics"));
  const OrderedJson& validity = suite.at("validity");
  EXPECT_EQ(validity.at("class"), "open");
  EXPECT_EQ(validity.at("rankable"), false);
  EXPECT_EQ(validity.at("reasons").at(0).at("rule"), "whole_suite");
  EXPECT_EQ(validity.at("reasons").at(0).at("actual"), "image automl-image");
  EXPECT_EQ(suite_contradiction(folder_.path()), "");
  EXPECT_EQ(why_no_suite_score(folder_.path()),
            "a partial suite: it has image automl-image of image automl-image llm");
}

TEST_F(SuiteRecord, WhatJournalsSayDecides) {
  const SuitePlan suite = whole_suite();
  store_suite(folder_.path(), suite);
  EXPECT_EQ(fault(), "");
  const SuiteEvidence evidence = look_at_suite(folder_.path(), suite);
  EXPECT_TRUE(evidence.named);
  EXPECT_EQ(evidence.silent, "");
  SuitePlan other = suite;
  other.workloads.erase(other.workloads.begin());
  EXPECT_EQ(fault(other),
            "workloads image automl-image llm of 2026-01-01T10:15:00Z, as the journal in "
            "automl-image says, found workloads automl-image llm of 2026-01-01T10:15:00Z");
  other = suite;
  std::swap(other.workloads[0], other.workloads[1]);
  EXPECT_NE(fault(other), "");
  other = suite;
  other.created_utc = "2026-01-01T10:16:00Z";
  EXPECT_NE(fault(other), "");
  other = suite;
  other.run_id = "another";
  EXPECT_EQ(fault(other), "a run of another in image, found one of " + suite.run_id);
  other = suite;
  other.workloads = {"llm", "llm", "llm"};
  EXPECT_EQ(fault(other), "each workload once, found llm twice");
}

TEST_F(SuiteRecord, EachWorkloadIsTheSuitesOwnRun) {
  const SuitePlan suite = whole_suite();
  store_suite(folder_.path(), suite);
  fs::remove(files("llm").journal());
  EXPECT_EQ(fault(), "a journal in llm, found record.json alone");
  fs::remove_all(files("llm").folder);
  EXPECT_EQ(fault(), "") << "it may have been stopped before";
  EXPECT_EQ(fault(suite, {"image", "llm"}),
            "the run of llm, which suite.json has a record of, found no run in its folder");
  fs::copy(files("image").folder, files("llm").folder);
  EXPECT_EQ(fault(), "the suite's run of llm in its folder, found that of image");
  part_of_suite(fixed_run(), whole_suite("another"), "llm").write_finished(files("llm"));
  EXPECT_EQ(fault(), "a run of " + suite.run_id + " in llm, found one of another");
  fixed_run().write_finished(files("llm"));
  EXPECT_EQ(fault(),
            "a run of " + suite.run_id + " in llm, found a run whose journal names no suite");
  fs::remove_all(files("automl-image").folder);
  EXPECT_EQ(fault(), "a run in automl-image, which comes before llm, found no such run");
}

TEST_F(SuiteRecord, AnOlderSuiteKeepsItsVerdict) {
  const SuitePlan suite{"old", "2026-01-01T10:15:00Z", {"image", "llm"}};
  for (const std::string& workload : suite.workloads) {
    fixed_run().write_finished(files(workload));
  }
  EXPECT_EQ(fault(suite), "");
  EXPECT_EQ(look_at_suite(folder_.path(), suite).silent, "image");
  const OrderedJson now = built(suite);
  EXPECT_EQ(now.at("validity").at("class"), "open");
  EXPECT_EQ(now.at("validity").at("reasons").at(1).at("rule"), "named_suite");
  EXPECT_FALSE(now.contains("metrics"));
  for (const std::string& workload : suite.workloads) {
    edit_file(files(workload).record(), std::string("\"ruleset\": \"") + ruleset_version,
              "\"ruleset\": \"1.7");
  }
  const OrderedJson then = built(suite);
  EXPECT_EQ(then.at("validity").at("class"), "closed");
  EXPECT_EQ(then.at("validity").at("ruleset"), "1.7");
  EXPECT_EQ(then.at("status"), "complete");
  EXPECT_TRUE(then.contains("metrics"));
  write_suite_record(folder_.path(), suite);
  EXPECT_NE(why_no_suite_score(folder_.path()).find("it has image llm of"), std::string::npos);
}

TEST_F(SuiteRecord, TheFirstLineThatItsRunsDoNotGiveIsNamed) {
  store_suite(folder_.path(), whole_suite());
  EXPECT_EQ(suite_contradiction(folder_.path()), "");
  edit_file(RunFiles{folder_.path()}.suite(), "\"class\": \"closed\"", "\"class\": \"review\"");
  EXPECT_EQ(suite_contradiction(folder_.path()),
            "line 8 is \"class\": \"review\", its runs give \"class\": \"closed\"");
}

TEST_F(SuiteRecord, NamesAMalformedRecordOrSuite) {
  run_of("image", 12).write_finished(files("image"));
  const std::string good = read_text_file(files("image").record());
  for (const std::string& bad :
       {std::string("{"), std::string("[]"), std::string("{\"_format\":\"other\",\"_version\":1}"),
        std::string("{\"_format\":\"heteroperf-record\",\"_version\":1}"),
        good.substr(0, good.size() / 2)}) {
    write_file_atomically(files("image").record(), bad);
    try {
      built();
      FAIL() << bad;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(files("image").record().string()),
                std::string::npos);
    }
    write_file_atomically(RunFiles{folder_.path()}.suite(), bad);
    EXPECT_THROW(read_suite_record(folder_.path()), UserError);
  }
}

}  // namespace
}  // namespace heteroperf
