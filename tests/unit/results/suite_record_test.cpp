#include "results/suite_record.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "metrics/error.hpp"
#include "metrics/text_file.hpp"
#include "results/run_folder.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

using OrderedJson = nlohmann::ordered_json;

const SuitePlan some_plan{"20260101T101500Z-suite-0123abcd", "2026-01-01T10:15:00Z", {"a", "b"}};

SampleRun run_of(double step_s, int steps = 30) {
  SampleRunOptions options;
  options.step_s = step_s;
  options.steps = steps;
  return fixed_run(options);
}

class SuiteRecord : public testing::Test {
 protected:
  RunFiles files(const std::string& workload) const { return {folder_.path() / workload}; }
  OrderedJson built() const {
    return OrderedJson::parse(build_suite_record(folder_.path(), some_plan));
  }
  double record_value(const std::string& workload, const char* pointer) const {
    return OrderedJson::parse(read_text_file(files(workload).record()))
        .at(OrderedJson::json_pointer(pointer));
  }

  TemporaryFolder folder_;
};

TEST_F(SuiteRecord, ScoreIsOperationsOverSeconds) {
  run_of(12).write_finished(files("a"));
  run_of(6, 60).write_finished(files("b"));
  const OrderedJson suite = built();
  double operations = 0, seconds = 0;
  for (const char* name : {"a", "b"}) {
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
  run_of(12).write_finished(files("a"));
  EXPECT_FALSE(built().contains("metrics"));
  EXPECT_EQ(built().at("validity").at("class"), "invalid");
  EXPECT_EQ(built().at("status"), "partial");
  SampleRun bad = run_of(12);
  bad.last<ChecksumEvent>().fingerprint = "other";
  bad.write_finished(files("b"));
  EXPECT_FALSE(built().contains("metrics"));
  EXPECT_EQ(built().at("validity").at("class"), "invalid");
  EXPECT_EQ(built().at("validity").at("rankable"), false);
}

TEST_F(SuiteRecord, TellsOfUnequalWindows) {
  run_of(12).write_finished(files("a"));
  run_of(14).write_finished(files("b"));
  EXPECT_EQ(built().at("validity").at("reasons").at(0).at("rule"), "equal_windows");
  run_of(13).write_finished(files("b"));
  EXPECT_TRUE(built().at("validity").at("reasons").empty());
}

TEST_F(SuiteRecord, PlanIsReadBack) {
  EXPECT_FALSE(read_suite_plan(folder_.path()).has_value());
  write_suite_record(folder_.path(), some_plan);
  const auto plan = read_suite_plan(folder_.path());
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->run_id, some_plan.run_id);
  EXPECT_EQ(plan->created_utc, some_plan.created_utc);
  EXPECT_EQ(plan->workloads, some_plan.workloads);
}

TEST_F(SuiteRecord, NamesOfWorkloadsLeadNowhereElse) {
  for (const char* name : {"", "..", "a/b", "/tmp"}) {
    SuitePlan plan = some_plan;
    plan.workloads.front() = name;
    write_suite_record(folder_.path(), plan);
    EXPECT_THROW(read_suite_plan(folder_.path()), UserError) << name;
  }
}

TEST_F(SuiteRecord, NamesAMalformedRecordOrSuite) {
  run_of(12).write_finished(files("a"));
  const std::string good = read_text_file(files("a").record());
  for (const std::string& bad :
       {std::string("{"), std::string("[]"), std::string("{\"_format\":\"other\",\"_version\":1}"),
        std::string("{\"_format\":\"heteroperf-record\",\"_version\":1}"),
        good.substr(0, good.size() / 2)}) {
    write_file_atomically(files("a").record(), bad);
    try {
      built();
      FAIL() << bad;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(files("a").record().string()), std::string::npos);
    }
    write_file_atomically(RunFiles{folder_.path()}.suite(), bad);
    EXPECT_THROW(read_suite_plan(folder_.path()), UserError);
  }
}

}  // namespace
}  // namespace heteroperf
