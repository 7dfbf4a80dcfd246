// The verb `report` over runs that were never run, and its pages in a real browser where there is
// one.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "metrics/base/text_file.hpp"
#include "results/record/run_folder.hpp"
#include "tests/golden/command.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

constexpr int no_browser = 77;

class ReportVerb : public ::testing::Test {
 protected:
  CommandResult report(Words words) const {
    words.insert(words.begin(), "report");
    return heteroperf(words, folder_.path());
  }
  void write(const std::string& name, const SampleRun& run) const {
    run.write_finished({folder_ / name});
  }
  std::string page(const std::string& name) const { return read_text_file(folder_ / name); }
  bool says(const std::string& file, const std::string& text) const {
    return page(file).find(text) != std::string::npos;
  }

  /// Opens a page in headless Chromium; nothing where there is none.
  std::optional<Json> look_at(const std::string& file) const {
    Command command({"/usr/bin/env", "python3", HETEROPERF_CHECK_REPORT, file, "--json"},
                    folder_.path());
    const CommandResult result = command.finish(std::chrono::seconds(240));
    if (result.exit_code == no_browser || result.exit_code == 127) return std::nullopt;
    EXPECT_EQ(result.exit_code, 0) << file << ": " << result.out << result.err;
    return Json::parse(result.out, nullptr, false);
  }

  ScratchFolder folder_;
};

TEST_F(ReportVerb, LiesInTheRunsFolder) {
  write("run", fixed_run());
  const CommandResult result = report({"run"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "run/report.html\n");
  EXPECT_TRUE(says("run/report.html", "20260101T101500Z-image-0123abcd"));
  EXPECT_EQ(heteroperf({"verify", "run"}, folder_.path()).exit_code, 0);
}

TEST_F(ReportVerb, GoesWhereItIsTold) {
  write("run", fixed_run());
  const CommandResult result = report({"run/record.json", "-o", "page.html", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json.at("report"), "page.html");
  EXPECT_EQ(json.at("runs"), 1);
  EXPECT_EQ(json.at("bytes"), fs::file_size(folder_ / "page.html"));
  EXPECT_FALSE(fs::exists(folder_ / "run/report.html"));
}

TEST_F(ReportVerb, OfSeveralRunsAndOfTheirFolderIsTheSame) {
  for (int i = 0; i < 6; ++i) store_run(folder_ / "runs", {.number = i});
  ASSERT_EQ(report({"runs", "-o", "folder.html"}).exit_code, 0);
  ASSERT_EQ(report({"runs/run-000", "runs/run-001", "runs/run-002", "runs/run-003", "runs/run-004",
                    "runs/run-005", "-o", "list.html"})
                .exit_code,
            0);
  EXPECT_EQ(page("folder.html"), page("list.html"));
  EXPECT_TRUE(says("folder.html", "6 runs"));
  EXPECT_TRUE(says("folder.html", "newest 4 of 6"));
  EXPECT_EQ(report({"runs"}).out, "runs/report.html\n");
}

TEST_F(ReportVerb, OfRunsThatDidNotEnd) {
  SampleRun failed = fixed_run();
  failed.last<StopEvent>() = {RunStatus::failed, "rank 1 was lost", 6};
  write("failed", failed);
  SampleRun killed = fixed_run();
  killed.lines.resize(killed.lines.size() - 4);
  killed.write({folder_ / "killed"});
  SampleRun torn = killed;
  torn.write({folder_ / "torn"});
  std::ofstream(folder_ / "torn/journal.jsonl", std::ios::app) << "{\"t_ns\":12,\"ra";
  EXPECT_EQ(report({"failed"}).exit_code, 0);
  EXPECT_TRUE(says("failed/report.html", "rank 1 was lost"));
  for (const std::string name : {"killed", "torn"}) {
    EXPECT_EQ(report({name}).exit_code, 0);
    EXPECT_TRUE(says(name + "/report.html", "The run did not end"));
  }
}

TEST_F(ReportVerb, OfRecordsThatWereEdited) {
  write("run", fixed_run());
  edit_file(folder_ / "run/record.json", "\"value\": ", "\"value\": 9");
  EXPECT_EQ(report({"run"}).exit_code, 0);
  EXPECT_TRUE(says("run/report.html", "record.json is not what the journal gives"));
  write("garbage", fixed_run());
  folder_.write("garbage/record.json", "\xff\xfe{");
  EXPECT_EQ(report({"garbage"}).exit_code, 0);
  EXPECT_TRUE(says("garbage/report.html", "record.json is not what the journal gives"));
}

TEST_F(ReportVerb, ExitCodesOfBadInput) {
  EXPECT_EQ(report({}).exit_code, 2);
  EXPECT_EQ(report({"nowhere"}).exit_code, 2);
  fs::create_directories(folder_ / "empty");
  EXPECT_EQ(report({"empty"}).exit_code, 2);
  folder_.write("foreign/notes.txt", "hello");
  EXPECT_EQ(report({"foreign"}).exit_code, 2);
  write("run", fixed_run());
  EXPECT_EQ(report({"run", "--trace", "nowhere.json"}).exit_code, 2);
  store_run(folder_ / "other", {});
  EXPECT_EQ(report({"run", "other", "--trace", "run/record.json"}).exit_code, 2);
  EXPECT_EQ(report({"run", "-o", "no/such/folder/page.html"}).exit_code, 2);
  EXPECT_EQ(report({"run", "-o", "run"}).exit_code, 2);
  EXPECT_EQ(report({"run", "-o", "/dev/full"}).exit_code, 5);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));  // written to, not replaced
  edit_file(folder_ / "run/journal.jsonl", "\"gradient_norm\":1.5", "\"gradient_norm\":2.5");
  const CommandResult damaged = report({"run", "--json"});
  EXPECT_EQ(damaged.exit_code, 9);
  EXPECT_EQ(Json::parse(damaged.out).at("error").at("kind"), "verification");
}

TEST_F(ReportVerb, OfSeveralSaysWhichIsDamaged) {
  store_run(folder_ / "runs", {.number = 0});
  store_run(folder_ / "runs", {.number = 1});
  edit_file(folder_ / "runs/run-001/journal.jsonl", "\"gradient_norm\":1.5",
            "\"gradient_norm\":2.5");
  const CommandResult result = report({"runs"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(says("runs/report.html", "No part for a run: runs/run-001/journal.jsonl"));
  EXPECT_TRUE(says("runs/report.html", "<h2>run-000</h2>"));
}

TEST_F(ReportVerb, OfNamesThatAreNotUtf8) {
  const std::string name = "run-\xff\xfe\xe2\x80\xa8";
  write(name, fixed_run());
  const CommandResult result = report({name, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("runs"), 1);
  EXPECT_TRUE(fs::exists(fs::path(folder_ / name) / "report.html"));
}

/// A trace of one instruction that says this of itself.
std::string trace_of(const std::string& kind, const std::string& run_id) {
  return R"({"_format":"heteroperf-trace","_version":1,"otherData":{"kind":")" + kind +
         R"(","run_id":")" + run_id +
         R"("},"traceEvents":[{"ph":"X","name":"F 0.0","tid":1,"ts":0,"dur":2}]})";
}
constexpr const char* sample_run_id = "20260101T101500Z-image-0123abcd";

TEST_F(ReportVerb, ShowsTheTraceThatItIsGiven) {
  write("run", planned_run());
  folder_.write("trace.json", trace_of("measured", sample_run_id));
  EXPECT_EQ(report({"run", "--trace", "trace.json"}).exit_code, 0);
  EXPECT_TRUE(says("run/report.html", "Measured: the trace trace.json"));
  EXPECT_TRUE(says("run/report.html", "data-chart=\"r0-pipeline\""));
  folder_.write("trace.json", trace_of("simulated", sample_run_id));
  EXPECT_EQ(report({"run", "--trace", "trace.json"}).exit_code, 0);
  EXPECT_TRUE(says("run/report.html", "Predicted: the simulated trace trace.json"));
  EXPECT_TRUE(says("run/report.html", "Measured: none."));
}

TEST_F(ReportVerb, RefusesEveryOtherTrace) {
  write("run", planned_run());
  const auto refused = [&](const std::string& text, const std::string& what) {
    folder_.write("t.json", text);
    const CommandResult result = report({"run", "--trace", "t.json"});
    EXPECT_EQ(result.exit_code, 2) << what;
    EXPECT_NE(result.err.find(what), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_FALSE(fs::exists(folder_ / "run/report.html")) << what;
  };
  refused("{", "t.json");
  refused(R"({"traceEvents":[{"ph":"X","name":"F 0.0","tid":1,"ts":0,"dur":2}]})",
          "t.json is not a trace");
  refused(page("run/record.json"), "t.json is a run's record, a trace is wanted");
  refused(trace_of("measured", "another"), "t.json is a measured trace of run another");
  refused(trace_of("simulated", "another"), "t.json is a simulated trace of run another");
  refused(trace_of("simulated", ""), "t.json is a simulated trace of no run");
  refused(
      R"({"_format":"heteroperf-trace","_version":1,"otherData":{"kind":"measured","run_id":")" +
          std::string(sample_run_id) + R"("},"traceEvents":[]})",
      "no span is in the trace t.json");
  const CommandResult schedule =
      heteroperf({"schedule", "1f1b", "--ranks", "2", "--micro-batches", "4", "--format", "trace"});
  refused(schedule.out, "t.json is a simulated trace of no run");
}

/// Another run may have written the file since that the configuration names.
TEST_F(ReportVerb, TakesOnlyTheRunsOwnTraceByItself) {
  SampleRun sample = planned_run();
  sample.last<ConfigEvent>().config.text = R"({"trace":"shared.json"})";
  write("run", sample);
  folder_.write("shared.json", trace_of("measured", "another"));
  EXPECT_EQ(report({"run"}).exit_code, 0);
  EXPECT_TRUE(says("run/report.html", "shared.json is a measured trace of run another"));
  folder_.write("shared.json", trace_of("measured", sample_run_id));
  EXPECT_EQ(report({"run"}).exit_code, 0);
  EXPECT_TRUE(says("run/report.html", "Measured: the trace shared.json"));
}

TEST_F(ReportVerb, SaysThatTheRunsOwnTraceIsDamaged) {
  write("run", planned_run());
  folder_.write("run/trace.json", "{");
  EXPECT_EQ(report({"run"}).exit_code, 0);
  EXPECT_TRUE(says("run/report.html", "Measured: none. run/trace.json"));
}

/// `report` has no option for what a plan does not say.
TEST_F(ReportVerb, OfAPlanWithoutItsWorkloadSaysWhatItLacks) {
  write("run", planned_run());
  folder_.write("run/plan.json",
                R"({"_format":"heteroperf-plan","_version":1,"schedule":"1f1b","chunks":1,)"
                R"("micro_batches":1,"stages":[{"nodes":["input"],)"
                R"("replicas":[{"ranks":[0],"micro_batch":1}]}]})");
  EXPECT_EQ(report({"run"}).exit_code, 0);
  EXPECT_TRUE(says("run/report.html", "Predicted: none. The plan.json does not say its workload"));
  EXPECT_FALSE(says("run/report.html", "--workload"));
}

TEST_F(ReportVerb, IsSoundInABrowser) {
  SampleRun failed = fixed_run();
  failed.last<StopEvent>() = {RunStatus::failed, "rank 1 was lost", 6};
  SampleRun without_steps = fixed_run();
  without_steps.erase_all<StepEvent>();
  without_steps.erase_all<ChecksumEvent>();
  without_steps.erase_all<EvalEvent>();
  write("closed", fixed_run());
  write("short", fixed_run({.steps = 2}));
  write("mixed", planned_run());
  write("search", search_run());
  write("failed", failed);
  write("stepless", without_steps);
  write("long", fixed_run({.steps = 5000, .step_s = 0.1}));
  for (int i = 0; i < 12; ++i) {
    store_run(folder_ / "several", {.number = i, .step_s = i < 6 ? 12.0 : 14.0});
  }
  for (const std::string name :
       {"closed", "short", "mixed", "search", "failed", "stepless", "long", "several"}) {
    ASSERT_EQ(report({name, "-o", name + ".html"}).exit_code, 0);
    const auto seen = look_at(name + ".html");
    if (!seen) GTEST_SKIP() << "no Chromium or no Python here";
    EXPECT_TRUE(seen->at("problems").empty()) << name << ": " << seen->at("problems");
    const int charts = seen->at("charts");
    EXPECT_EQ(charts > 3, name != "stepless") << name << ": " << charts;
  }
}

}  // namespace
}  // namespace heteroperf::testing
