// Every format has a JSON Schema in results/schemas; files that the program writes are valid by it,
// and what they may not be is not.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "results/run_folder.hpp"
#include "results/suite_record.hpp"
#include "results/sweep/sweep_index.hpp"
#include "tests/golden/python_reader.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

class Schemas : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto python = python_with({"jsonschema"});
    if (!python) GTEST_SKIP() << "no python3 with jsonschema";
    python_ = *python;
  }

  /// A document of this format is to be validated.
  void add(const std::string& format, const std::string& file) {
    arguments_.push_back(std::string(HETEROPERF_SCHEMAS "/heteroperf-") + format +
                         "-1.schema.json=" + file);
  }
  /// What a verb prints with --json; its exit code does not matter.
  void add_printed(const std::string& format, Words words) {
    words.emplace_back("--json");
    const CommandResult result = heteroperf(words, folder_.path());
    const std::string name = "printed-" + std::to_string(arguments_.size()) + ".json";
    add(format, folder_.write(name, result.out));
  }
  Json errors() const { return Json::parse(read_with(python_, "validate.py", arguments_)); }
  void expect_valid() const {
    const Json found = errors();
    ASSERT_EQ(found.size(), arguments_.size());
    for (const auto& [argument, error] : found.items()) {
      EXPECT_TRUE(error.is_null()) << argument << "\n" << error;
    }
  }
  /// Runs first … first + count - 1.
  std::string store(const std::string& name, int first, int count, double step_s = 12) {
    for (int i = first; i < first + count; ++i) {
      store_run(folder_ / name,
                {.number = i, .step_s = step_s + 0.01 * i, .seed = static_cast<std::uint64_t>(i)});
    }
    return folder_ / name;
  }

  ScratchFolder folder_;
  std::string python_;
  Words arguments_;
};

TEST_F(Schemas, RecordsAndJournalsOfEveryKind) {
  std::vector<SampleRun> runs{fixed_run(), planned_run(), search_run(),
                              fixed_run(), fixed_run(),   fixed_run()};
  runs[3].lines.resize(1);                        // killed at once
  runs[4].last<StepEvent>().loss = std::nan("");  // invalid
  runs[5].insert_before_stop(HostLoadEvent{400, 4, 2.5, 1, 0.5, 8.0});
  runs[5].insert_before_stop(WarningEvent{"words", "other_load"});
  runs[5].insert_before_stop(CheckpointEvent{20, 4096, 0.25});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunFiles files{folder_ / std::to_string(i)};
    runs[i].write_finished(files);
    add("record", files.record());
    add("journal", files.journal());
  }
  expect_valid();
}

TEST_F(Schemas, WhatComparingPrints) {
  const std::string a = store("a", 0, 6), b = store("b", 10, 6), slow = store("slow", 20, 6, 24);
  add_printed("comparison", {"compare", a, b});
  add_printed("comparison", {"compare", a + "/run-000", slow + "/run-020"});
  add_printed("gate", {"gate", "--base", a, "--head", b});
  add_printed("gate", {"gate", "--base", a, "--head", slow});
  add_printed("history", {"history", a, slow});
  add_printed("ranking", {"rank", a, b});
  add_printed("verification", {"verify", a + "/run-000"});
  add_printed("pack", {"pack", a + "/run-000", "-o", "x.tar.gz"});
  add_printed("error", {"compare", a, "nowhere"});
  expect_valid();
}

TEST_F(Schemas, SuitesAndSweeps) {
  store("suite", 1, 2);
  write_suite_record(folder_ / "suite",
                     {"suite-1", "2026-01-01T00:00:00Z", {"run-001", "run-002", "not-run"}});
  add("suite", folder_ / "suite/suite.json");
  SweepIndex index;
  index.sweep_id = "s";
  index.created_utc = "2026-01-01T00:00:00Z";
  index.axes = {{"scale.ranks"}};
  index.points = {{{"scale.ranks", "1"}}, {{"scale.ranks", "2"}}};
  index.repeats = 2;
  index.runs = there_and_back(index);
  for (std::size_t i = 0; i < 2; ++i) {
    index.runs[i].state = SweepRunState::complete;
    index.runs[i].exit_code = 0;
    SampleRun run = sample_of({.number = static_cast<int>(i)});
    run.last<ScaleEvent>().devices = {{"cpu", static_cast<std::uint32_t>(i + 1), 1, false}};
    run.write_finished(RunFiles{folder_ / "sweep/" + index.runs[i].folder});
  }
  index.runs[2].state = SweepRunState::failed;
  index.runs[2].reason = "exit code 6";
  index.set_aside.push_back({"aside/x", "running", "no record"});
  write_sweep(folder_ / "sweep", index);
  add("sweep", folder_ / "sweep/sweep.json");
  add_printed("sweep", {"show", folder_ / "sweep"});
  add_printed("sweep-comparison", {"compare", folder_ / "sweep", folder_ / "sweep"});
  add_printed("verification", {"verify", folder_ / "sweep"});
  expect_valid();
}

TEST_F(Schemas, DocumentsThatNeedNoTraining) {
  const std::string plan = folder_ / "plan.json";
  heteroperf({"plan", "llm", "--cluster", "fast2_slow6", "--size", "nano", "-o", plan, "-q"}, ".");
  add("plan", plan);
  const std::string compared = folder_ / "compared.json";
  heteroperf(
      {"plan", "llm", "--cluster", "fast2_slow6", "--size", "nano", "--batch", "5", "--compare",
       "homogeneous", "--import", "plan:" + plan, "--coarsest-wire", "int8", "-o", compared, "-q"},
      ".");
  add("plan", compared);
  for (const char* name : {"1f1b", "zb-h1"}) {
    add_printed("schedule", {"schedule", name, "--ranks", "4", "--micro-batches", "8"});
  }
  add_printed("comm",
              {"comm", "allreduce", "--ranks", "2", "-b", "1K", "-e", "4K", "--iters", "3"});
  for (const auto& file : fs::directory_iterator(HETEROPERF_CLUSTERS)) {
    if (file.path().extension() == ".json") add("cluster", file.path().string());
  }
  expect_valid();
}

TEST_F(Schemas, FilesOfARealRun) {
  const CommandResult result = heteroperf(
      {"run", "llm", "--size", "nano", "--ranks", "2", "--micro-batch", "2", "--steps", "6",
       "--set", "measure.peak_s=0", "--set", "measure.evaluation_samples=4", "-q", "--out", "r"},
      folder_.path());
  if (result.exit_code == 5) GTEST_SKIP() << "this program cannot train";
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* format : {"record", "config", "plan"}) {
    add(format, folder_ / ("r/" + std::string(format) + ".json"));
  }
  add("journal", folder_ / "r/journal.jsonl");
  expect_valid();
}

TEST_F(Schemas, WhatIsWrongIsFound) {
  store("a", 1, 1);
  const std::string record = folder_ / "a/run-001/record.json";
  const std::string good = read_text_file(record);
  const auto broken = [&](const std::string& from, const std::string& to) {
    const std::string text =
        std::regex_replace(good, std::regex(from), to, std::regex_constants::format_first_only);
    EXPECT_NE(text, good) << from;
    add("record", folder_.write("bad-" + std::to_string(arguments_.size()) + ".json", text));
  };
  broken("\"_version\": 1", "\"_version\": 2");
  broken("\"status\": \"complete\"", "\"status\": \"done\"");
  broken("\"rankable\": true", "\"rankable\": \"yes\"");
  broken("\"journal_head\"", "\"journal_top\"");
  broken("\"strict\": \"[0-9]+\"", "\"strict\": 1");
  broken("\"wall_s\"", "\"walls\"");
  broken("\"class\": \"closed\"", "\"class\": \"fine\"");
  broken("\"steps\": ", "\"steps\": -");
  const Json found = errors();
  EXPECT_EQ(found.size(), 8u);
  for (const auto& [argument, error] : found.items()) EXPECT_FALSE(error.is_null()) << argument;
}

}  // namespace
}  // namespace heteroperf::testing
