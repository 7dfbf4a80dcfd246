// Exports of runs that were never run, read by the parsers of those who made the formats.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "metrics/base/text_file.hpp"
#include "results/journal_checks/plan_outline.hpp"
#include "results/record/run_folder.hpp"
#include "tests/golden/python_reader.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr const char* awkward_host = "a \"b\\c\" ,\n\xff</x>";

class Exports : public ::testing::Test {
 protected:
  /// A run whose names need escaping; step 4 has this loss, step 5 this gradient norm.
  void store_awkward(double loss = 1, double gradient_norm = 1) {
    SampleRun run = sample_of({.number = 1});
    run.last<SystemEvent>().system.text = Json{{"host", {{"value", awkward_host}}}}.dump(
        -1, ' ', false, Json::error_handler_t::replace);
    std::size_t n = 0;
    for (JournalLine& line : run.lines) {
      auto* step = std::get_if<StepEvent>(&line.event);
      if (step == nullptr) continue;
      if (n == 4) step->loss = loss;
      if (n == 5) step->gradient_norm = gradient_norm;
      ++n;
    }
    run.write_finished(RunFiles{folder_ / "awkward"});
  }

  std::string exported(const std::string& run, const std::string& format, const Words& more = {}) {
    const std::string file = folder_ / (run + "." + format);
    Words words{"export", folder_ / run, "--to", format, "-o", file};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = heteroperf(words, folder_.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return file;
  }

  Json read(const std::string& script, const std::string& file, const Words& modules) {
    const auto python = python_with(modules);
    if (!python) return {};
    return Json::parse(read_with(*python, script, {file}));
  }

  Json record_of(const std::string& run) const {
    return Json::parse(read_text_file(folder_ / run + "/record.json"));
  }

  ScratchFolder folder_;
};

double number(const Json& cell) { return std::stod(cell.get<std::string>()); }

TEST_F(Exports, CsvOfTheRecordsNumbers) {
  store_run(folder_.path(), {.number = 1});
  const Json csv = read("read_csv.py", exported("run-001", "csv"), {});
  if (csv.is_null()) GTEST_SKIP() << "no python3";
  EXPECT_EQ(csv.at("header"), (Json{"metric", "value", "unit", "ci95_low", "ci95_high"}));
  const Json record = record_of("run-001");
  std::map<std::string, Json> rows;
  for (const Json& row : csv.at("rows")) rows[row.at(0)] = row;
  const Json ops = record.at("metrics").at("ops_per_second");
  EXPECT_EQ(number(rows.at("ops_per_second").at(1)), ops.at("value"));
  EXPECT_EQ(rows.at("ops_per_second").at(2), "op/s");
  EXPECT_EQ(number(rows.at("ops_per_second").at(3)), ops.at("ci95").at(0));
  EXPECT_EQ(rows.at("operations_strict").at(1), record.at("operations").at("strict"));
  EXPECT_EQ(rows.at("throughput").at(2), record.at("metrics").at("throughput").at("unit"));
}

TEST_F(Exports, CsvOfStepsKeepsWhatIsNotFinite) {
  store_awkward(nan, std::numeric_limits<double>::infinity());
  const Json csv = read("read_csv.py", exported("awkward", "csv", {"--table", "steps"}), {});
  if (csv.is_null()) GTEST_SKIP() << "no python3";
  const std::vector<std::string> header = csv.at("header");
  const auto column = [&](const char* name) {
    return static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin());
  };
  const Json& rows = csv.at("rows");
  EXPECT_EQ(rows.size(), record_of("awkward").at("metrics").at("total_steps"));
  EXPECT_EQ(rows.at(4).at(column("loss")), "nan");
  EXPECT_EQ(rows.at(5).at(column("gradient_norm")), "inf");
  EXPECT_EQ(rows.at(2).at(column("step")), "2");
  EXPECT_GT(number(rows.at(0).at(column("ops_strict"))), 0);
}

TEST_F(Exports, CsvOfTrialsQuotesTheirJson) {
  search_run().write_finished(RunFiles{folder_ / "search"});
  const Json csv = read("read_csv.py", exported("search", "csv", {"--table", "trials"}), {});
  if (csv.is_null()) GTEST_SKIP() << "no python3";
  EXPECT_GE(csv.at("rows").size(), 6u);
  const CommandResult bad =
      heteroperf({"export", folder_ / "search", "--to", "csv", "--table", "trial"}, ".");
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_NE(bad.err.find("Did you mean 'trials'?"), std::string::npos) << bad.err;
}

TEST_F(Exports, OpenMetricsIsReadByPrometheus) {
  store_awkward();
  const Json families =
      read("read_openmetrics.py", exported("awkward", "openmetrics"), {"prometheus_client"});
  if (families.is_null()) GTEST_SKIP() << "no prometheus_client";
  std::map<std::string, Json> by_name;
  for (const Json& family : families) by_name[family.at("name")] = family;
  const Json record = record_of("awkward");
  const Json& info = by_name.at("heteroperf_run").at("samples").at(0).at("labels");
  EXPECT_EQ(info.at("run_id"), record.at("run_id"));
  EXPECT_EQ(info.at("host"), record.at("system").at("host").at("value"));
  const Json& strict = by_name.at("heteroperf_strict_operations_per_second");
  EXPECT_EQ(strict.at("unit"), "operations_per_second");
  EXPECT_EQ(by_name.at("heteroperf_step_time_median_seconds").at("samples").at(0).at("value"),
            record.at("metrics").at("step_time_s").at("median"));
  // 2026-01-01T00:01:00Z, then the run.
  const double end = 1767225660 + record.at("metrics").at("wall_s").get<double>();
  EXPECT_NEAR(strict.at("samples").at(0).at("timestamp").get<double>(), end, 0.002);
}

TEST_F(Exports, OpenMetricsOfSeveralRunsKeepsFamiliesTogether) {
  for (int i = 0; i < 3; ++i) store_run(folder_ / "runs", {.number = i});
  const Json families =
      read("read_openmetrics.py", exported("runs", "openmetrics"), {"prometheus_client"});
  if (families.is_null()) GTEST_SKIP() << "no prometheus_client";
  EXPECT_EQ(families.at(0).at("samples").size(), 3u);
  EXPECT_GE(families.at(1).at("samples").size(), 3u);
}

TEST_F(Exports, MlperfsOwnCheckerTakesTheLog) {
  store_awkward();
  const Json log = read("read_mllog.py", exported("awkward", "mllog"), {"mlperf_logging", "yaml"});
  if (log.is_null()) GTEST_SKIP() << "no mlperf_logging";
  EXPECT_EQ(log.at("valid"), true) << log.at("said").get<std::string>();
  std::map<std::string, Json> last;
  double before = 0;
  for (const Json& line : log.at("lines")) {
    last[line.at("key")] = line;
    EXPECT_GE(line.at("ms").get<double>(), before);
    before = line.at("ms");
  }
  const Json record = record_of("awkward");
  EXPECT_EQ(last.at("seed").at("value"), 42);
  EXPECT_EQ(last.at("global_batch_size").at("value"), record.at("workload").at("samples_per_step"));
  EXPECT_EQ(last.at("eval_accuracy").at("value"), record.at("metrics").at("quality").at("value"));
  EXPECT_EQ(last.at("run_stop").at("metadata").at("status"), "success");
}

/// Values of the log's points in time.
std::map<std::string, Json> logged(const std::string& file) {
  std::map<std::string, Json> values;
  std::istringstream lines(read_text_file(file));
  constexpr std::string_view prefix = ":::MLLOG ";
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line.substr(prefix.size()));
    if (event.at("event_type") == "POINT_IN_TIME") values[event.at("key")] = event.at("value");
  }
  return values;
}

Json replica_on(const std::vector<int>& ranks, int micro_batch) {
  return {{"ranks", ranks}, {"micro_batch", micro_batch}};
}

/// Whatever the options were: a plan of a file or of the planner has its own degrees.
TEST_F(Exports, MlperfGetsTheDegreesOfThePlanThatRan) {
  SampleRun run = sample_of({.number = 1});
  run.last<ConfigEvent>().config.text =
      R"({"plan":{"pipeline":1,"tensor":1},"batch":{"micro_batch":0}})";
  run.last<ScaleEvent>().devices = {{"cpu", 4, 1, false}};
  run.last<WorkloadEvent>().samples_per_step = 6;
  Json plan{{"_format", "heteroperf-plan"},
            {"workload", {{"name", "image"}, {"size", "resnet18"}, {"precision", "fp32"}}},
            {"schedule", "interleaved-1f1b"},
            {"chunks", 2},
            {"micro_batches", 2},
            {"stages", Json::array()}};
  for (int stage = 0; stage < 4; ++stage) {
    plan["stages"].push_back(
        {{"replicas", {replica_on({2 * (stage % 2), 2 * (stage % 2) + 1}, 3)}}});
  }
  const auto set_plan = [&] {
    run.last<PlanEvent>() = {{plan.dump()}, read_plan_outline(plan.dump()).shape().line()};
  };
  set_plan();
  run.write_finished(RunFiles{folder_ / "even"});
  const auto even = logged(exported("even", "mllog"));
  EXPECT_EQ(even.at("tensor_parallelism"), 2);
  EXPECT_EQ(even.at("pipeline_parallelism"), 2);
  EXPECT_EQ(even.at("micro_batch_size"), 3);
  EXPECT_EQ(even.at("submission_status"), "research");
  plan["stages"][1]["replicas"] = {replica_on({2}, 2), replica_on({3}, 1)};
  set_plan();
  run.write_finished(RunFiles{folder_ / "uneven"});
  const auto uneven = logged(exported("uneven", "mllog"));
  EXPECT_FALSE(uneven.contains("tensor_parallelism"));
  EXPECT_FALSE(uneven.contains("micro_batch_size"));
  EXPECT_EQ(uneven.at("pipeline_parallelism"), 2);
}

TEST_F(Exports, AreNotMadeOfAJournalThatContradictsItself) {
  SampleRun run = sample_of({.number = 1});
  run.last<StepEvent>().ops_strict += run.last<StepEvent>().ops_strict;
  run.write_finished(RunFiles{folder_ / "forged"});
  const CommandResult refused =
      heteroperf({"export", folder_ / "forged", "--to", "csv"}, folder_.path());
  EXPECT_EQ(refused.exit_code, 9) << refused.out;
  EXPECT_NE(refused.err.find("step_operations"), std::string::npos) << refused.err;
}

TEST_F(Exports, AnInvalidRunIsNoSuccessToMlperf) {
  store_awkward(nan);
  const Json log = read("read_mllog.py", exported("awkward", "mllog"), {"mlperf_logging", "yaml"});
  if (log.is_null()) GTEST_SKIP() << "no mlperf_logging";
  for (const Json& line : log.at("lines")) {
    if (line.at("key") != "run_stop") continue;
    EXPECT_EQ(line.at("metadata").at("status"), "aborted");
  }
}

TEST_F(Exports, GoogleBenchmarksJson) {
  for (int i = 0; i < 3; ++i) store_run(folder_ / "runs", {.number = i, .step_s = 12.0 + i});
  const Json json = Json::parse(read_text_file(exported("runs", "gbench")));
  EXPECT_EQ(json.at("context").at("json_schema_version"), 1);
  EXPECT_EQ(json.at("context").at("date"), "2026-01-01T00:02:00+00:00");
  const Json& entries = json.at("benchmarks");
  ASSERT_EQ(entries.size(), 7u);
  EXPECT_EQ(entries.at(1).at("run_type"), "iteration");
  EXPECT_EQ(entries.at(1).at("repetition_index"), 1);
  const double step_s =
      record_of("runs/run-001").at("metrics").at("step_time_s").at("median").get<double>();
  EXPECT_NEAR(entries.at(1).at("real_time").get<double>(), 1000 * step_s, 1e-6);
  EXPECT_LT(entries.at(1).at("cpu_time"), entries.at(1).at("real_time"));
  EXPECT_EQ(entries.at(3).at("aggregate_name"), "mean");
  EXPECT_NEAR(entries.at(3).at("real_time").get<double>(), 1000 * step_s, 1e-6);
  EXPECT_NEAR(entries.at(5).at("real_time").get<double>(), 1000 * step_s / 13, 1e-6);
  EXPECT_EQ(entries.at(6).at("aggregate_unit"), "percentage");
}

TEST_F(Exports, GoogleBenchmarkIsToldWhoSharesACache) {
  SampleRun run = sample_of({.number = 1});
  const auto cache = [](const char* kind, int level, int count) {
    return Json{{"kind", kind}, {"level", level}, {"size_bytes", 1024}, {"count", count}};
  };
  const Json caches{cache("data", 1, 4), cache("unified", 3, 1), cache("unified", 2, 3)};
  run.last<SystemEvent>().system.text =
      Json{{"cpu", {{"logical_cpus", {{"value", 8}}}, {"caches", {{"value", caches}}}}}}.dump();
  run.write_finished(RunFiles{folder_ / "caches"});
  const Json context = Json::parse(read_text_file(exported("caches", "gbench"))).at("context");
  std::vector<int> sharing;
  for (const Json& one : context.at("caches")) sharing.push_back(one.at("num_sharing"));
  EXPECT_EQ(sharing, (std::vector<int>{2, 8, 0}));
}

TEST_F(Exports, AnInvalidRunIsAnErrorToGoogleBenchmark) {
  SampleRun run = sample_of({.number = 1});
  run.last<StepEvent>().loss = std::numeric_limits<double>::quiet_NaN();
  run.write_finished(RunFiles{folder_ / "bad"});
  const Json entry = Json::parse(read_text_file(exported("bad", "gbench"))).at("benchmarks").at(0);
  EXPECT_EQ(entry.at("error_occurred"), true);
  EXPECT_FALSE(entry.contains("ops_per_second"));
}

TEST_F(Exports, GooglesCompareScriptReadsIt) {
  const char* script = "/usr/share/benchmark/compare.py";
  const auto python = python_with({"scipy"});
  if (!python || !fs::exists(script)) GTEST_SKIP() << "no compare.py, or no scipy";
  for (int i = 0; i < 2; ++i) store_run(folder_ / "runs", {.number = i});
  const std::string file = exported("runs", "gbench");
  const CommandResult result =
      Command({*python, script, "--no-color", "benchmarks", file, file}, ".").finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("_median"), std::string::npos) << result.out;
}

TEST_F(Exports, WhatCannotBeExportedIsRefused) {
  store_run(folder_ / "runs", {.number = 1});
  store_run(folder_ / "runs", {.number = 2});
  const auto code = [&](const std::string& path, const std::string& format,
                        const Words& more = {}) {
    Words words{"export", folder_ / path, "--to", format};
    words.insert(words.end(), more.begin(), more.end());
    return heteroperf(words, ".").exit_code;
  };
  EXPECT_EQ(code("runs", "csv"), 2);
  EXPECT_EQ(code("runs", "mllog"), 2);
  EXPECT_EQ(code("nothing", "csv"), 2);
  EXPECT_EQ(code("runs/run-001", "jsonl"), 2);
  EXPECT_EQ(code("runs/run-001", "mllog", {"--table", "steps"}), 2);
  edit_file(folder_ / "runs/run-001/record.json", "\"rankable\": true", "\"rankable\": false");
  EXPECT_EQ(code("runs/run-001", "csv"), 9);
  fs::remove(folder_ / "runs/run-002/record.json");
  EXPECT_EQ(code("runs/run-002", "csv"), 2);
}

}  // namespace
}  // namespace heteroperf::testing
