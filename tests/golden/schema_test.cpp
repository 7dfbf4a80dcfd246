// Every format has a JSON Schema in results/schemas; files that the program writes are valid by it,
// and what they may not be is not.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/text_file.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/suite_record.hpp"
#include "results/sweep/sweep_index.hpp"
#include "tests/golden/python_reader.hpp"
#include "tests/unit/results/stored_runs.hpp"
#include "workloads/graph/model_graph_json.hpp"
#include "workloads/models/models.hpp"

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
  void expect_taken(const Words& words) {
    const CommandResult result = heteroperf(words, folder_.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  /// `good` with the first of these words replaced is to be found wrong.
  void add_broken(const std::string& format, const std::string& good, const std::string& from,
                  const std::string& to) {
    const std::string text =
        std::regex_replace(good, std::regex(from), to, std::regex_constants::format_first_only);
    EXPECT_NE(text, good) << from;
    add(format, folder_.write("bad-" + std::to_string(arguments_.size()) + ".json", text));
  }
  void expect_invalid() const {
    const Json found = errors();
    ASSERT_EQ(found.size(), arguments_.size());
    for (const auto& [argument, error] : found.items()) EXPECT_FALSE(error.is_null()) << argument;
  }
  Json errors() const { return Json::parse(read_with(python_, "validate.py", arguments_)); }
  void expect_valid() const {
    const Json found = errors();
    ASSERT_EQ(found.size(), arguments_.size());
    for (const auto& [argument, error] : found.items()) {
      EXPECT_TRUE(error.is_null()) << argument << "\n" << error;
    }
  }
  /// A sweep of two points and repetitions, of which the first is complete; runs from `first` on.
  SweepIndex store_sweep(const std::string& name, int first) const {
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
      SampleRun run = sample_of({.number = first + static_cast<int>(i)});
      run.last<ScaleEvent>().devices = {{"cpu", static_cast<std::uint32_t>(i + 1), 1, false}};
      run.last<StartEvent>().sweep = place_of(index, index.runs[i]);
      run.write_finished(RunFiles{folder_ / name + "/" + index.runs[i].folder});
    }
    return index;
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
  runs.push_back(sample_of({.gpus = {"NVIDIA H200", "NVIDIA A100"}}));
  runs[3].lines.resize(1);                        // killed at once
  runs[4].last<StepEvent>().loss = std::nan("");  // invalid
  runs[5].insert_before_stop(HostLoadEvent{400, 4, 2.5, 1, 0.5, 8.0, "a", 0, 1.5, 2.5});
  runs[5].insert_before_stop(HostLoadEvent{400, 4, 0.5, {}, {}, {}, "b", 1});
  runs[5].insert_before_stop(GpuSlowdownEvent{"a", "0000:1b:00.0", 1, 400, 1.5, {}});
  runs[5].insert_before_stop(RankStepsEvent{1, 0, 2, 5, 2, {8, 9, 7}});
  runs[5].insert_before_stop(PeakEvent{1e12, "fp32", "measured", 2e9});
  runs[5].insert_before_stop(PeakEvent{
      2e12, "fp32", "measured", {}, "no room", {"aten::mm 8x8x8"}, {"aten::mm"}, 1e12, 0.0});
  runs[5].insert_before_stop(
      ProductsEvent{"own:2x3x4nn", {{"2x3x4nn", "own", {{"mkl", 2e-6}, {"own", 1e-6}}}}});
  runs[5].insert_before_stop(WarningEvent{"words", "other_load"});
  runs[5].insert_before_stop(CheckpointEvent{20, 4096, 0.25});
  runs.push_back(fixed_run());  // looked at once, and again at its end
  runs.back().lines.insert(runs.back().lines.begin() + 1,
                           {0, UntilEvent{1e-3, 40, 10, 5, 0.05, 3}});
  runs.back().insert_before_stop(LookEvent{0, 100'000'000'000, true});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunFiles files{folder_ / std::to_string(i)};
    runs[i].write_finished(files);
    add("record", files.record());
    add("journal", files.journal());
  }
  expect_valid();
}

/// Those of no sample run too.
TEST_F(Schemas, TheJournalsSchemaHasEveryKindOfLine) {
  const Json schema = Json::parse(
      read_text_file(std::string(HETEROPERF_SCHEMAS "/heteroperf-journal-1.schema.json")));
  std::set<std::string> named, kinds;
  for (const Json& one : schema.at("oneOf")) named.insert(one["properties"]["kind"]["const"]);
  [&]<std::size_t... index>(std::index_sequence<index...>) {
    (kinds.insert(kind_name(Event(std::in_place_index<index>))), ...);
  }
  (std::make_index_sequence<std::variant_size_v<Event>>());
  EXPECT_EQ(named, kinds);
}

TEST_F(Schemas, WhatComparingPrints) {
  const std::string a = store("a", 0, 6), b = store("b", 10, 6), slow = store("slow", 20, 6, 24);
  add_printed("comparison", {"compare", a, b});
  add_printed("comparison", {"compare", a + "/run-000", slow + "/run-020"});
  add_printed("gate", {"gate", "--base", a, "--head", b});
  add_printed("gate", {"gate", "--base", a, "--head", slow});
  heteroperf({"gate", "--base-cmd", "exit 1", "--head-cmd", "exit 1", "--max-load", "1", "--out",
              "broken", "-q"},
             folder_.path());
  add("gate", folder_ / "broken/gate.json");
  add_printed("baselines", {"baseline", "save", "main", a});
  add_printed("baselines", {"baseline", "save", "main", slow});
  add_printed("baselines", {"baseline", "list"});
  add_printed("baselines", {"baseline", "rm", "main"});
  add_printed("history", {"history", a, slow});
  add_printed("ranking", {"rank", a, b});
  add_printed("verification", {"verify", a + "/run-000"});
  add_printed("pack", {"pack", a + "/run-000", "-o", "x.tar.gz"});
  add_printed("error", {"compare", a, "nowhere"});
  expect_valid();
}

TEST_F(Schemas, SuitesAndSweeps) {
  store("older", 1, 2);
  write_suite_record(folder_ / "older",
                     {"suite-1", "2026-01-01T00:00:00Z", {"run-001", "run-002", "not-run"}});
  store_suite(folder_ / "suite", whole_suite());
  for (const char* name : {"older", "suite"}) add("suite", folder_ / name + "/suite.json");
  add("journal", folder_ / "suite/llm/journal.jsonl");
  SweepIndex index = store_sweep("sweep", 0);
  index.runs[2].state = SweepRunState::failed;
  index.runs[2].reason = "exit code 6";
  index.set_aside.push_back({"aside/x", "running", "no record"});
  write_sweep(folder_ / "sweep", index);
  SweepIndex rebuilt = store_sweep("rebuilt", 2);
  rebuilt.unknown = {"what was planned"};
  write_sweep(folder_ / "rebuilt", rebuilt);
  for (const char* name : {"sweep", "rebuilt"}) {
    add("sweep", folder_ / name + "/sweep.json");
    add("journal", folder_ / name + "/" + index.runs[0].folder + "/journal.jsonl");
    add_printed("sweep", {"show", folder_ / name});
  }
  add_printed("sweep-comparison", {"compare", folder_ / "sweep", folder_ / "rebuilt"});
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
  const std::string placed = folder_ / "placed.json";
  heteroperf({"plan", "two-tower", "--cluster", "fast2_slow6", "--size", "nano", "--batch", "32",
              "--compare", "homogeneous,centric", "-o", placed, "-q"},
             ".");
  add("plan", placed);
  for (const char* name : {"1f1b", "zb-h1"}) {
    add_printed("schedule", {"schedule", name, "--ranks", "4", "--micro-batches", "8"});
  }
  add_printed("comm",
              {"comm", "allreduce", "--ranks", "2", "-b", "1K", "-e", "4K", "--iters", "3"});
  for (const auto& file : fs::directory_iterator(HETEROPERF_CLUSTERS)) {
    if (file.path().extension() == ".json") add("cluster", file.path().string());
  }
  add_printed("doctor", {"doctor"});
  add_printed("version", {"version"});
  add_printed("count", {"count", "nano"});
  add_printed("count", {"count", "clip-vit-b-32", "--batch", "4"});
  add_printed("count", {"count", "resnet50-v1", "--convention", "all", "--per-layer"});
  add_printed("cluster", {"probe", "--ranks", "2", "--links-only"});
  expect_valid();
}

/// The smallest model of each.
TEST_F(Schemas, GraphsOfEveryFamily) {
  std::set<std::string> families;
  for (const ModelSpec& model : models()) {
    if (!families.insert(model.family).second) continue;
    add("graph", folder_.write(model.name + ".json", graph_to_text(build_model(model.name))));
  }
  EXPECT_GE(families.size(), 7u);
  add("graph", folder_.write("small.json", graph_to_text(small_classifier())));
  expect_valid();
}

/// What users write for a verb: it takes the file, and so does its schema.
TEST_F(Schemas, FilesThatVerbsTake) {
  const std::string efficiency = folder_.write("efficiency.json", R"({
    "_format":"heteroperf-efficiency","_version":1,
    "operations":[{"class":"fast","operation":"gemm","shape":"1024x1024","precision":"fp32",
                   "ops_per_second":2e10,"provenance":"probe","source":"measured 2026-01-01"}],
    "devices":[{"class":"fast","quantity":"busy_watts","value":300}],
    "links":[{"scope":"classes","between":["fast","slow"],
              "points":[{"bytes":1,"time_s":1e-5},{"bytes":1000000,"time_s":1e-3}]}]})");
  const std::string plan = folder_ / "plan.json";
  expect_taken({"plan", "llm", "--cluster", "fast2_slow6", "--size", "nano", "--profile",
                efficiency, "-o", plan, "-q"});
  const std::string noted =
      folder_.write("noted.json", Json::parse(read_text_file(plan)).at("efficiency").dump());
  add("efficiency", efficiency);
  add("efficiency", noted);
  const std::string costs = folder_.write(
      "costs.json", R"({"forward":[1,1.5],"backward":[1,1],"weight":[0.5,1],"comm":0.1})");
  const std::string network = folder_.write("network.json", R"({"_format":"heteroperf-network",
      "_version":1,"bandwidth":2,"capacity":1,"card":[0,1],"node":[0,0],"compute_slow_down":1.1})");
  expect_taken({"schedule", "1f1b", "--ranks", "2", "--micro-batches", "4", "--model", "links",
                "--costs-file", costs, "--network", network});
  add("costs", costs);
  add("network", network);
  const std::string graph = folder_.write("graph.json", R"({"ranks":2,"micro_batches":4,
      "segments":[{"name":"a","rank":0,"forward":1,"backward":1,"weight":1,"weights":"tied"},
                  {"name":"b","rank":1,"forward":1,"backward":1,"weight":1,"weights":"tied"}],
      "edges":[{"from":"a","to":1,"bytes":8}]})");
  expect_taken({"schedule", "1f1b", "--graph", graph});
  add("pipeline-graph", graph);
  const std::string towers = folder_.write("towers.json", R"({"ranks":2,"micro_batches":4,
      "segments":[{"name":"a","branch":"a"},{"name":"b","branch":"a"},
                  {"name":"c","branch":"b"},{"name":"d","branch":"b"}],
      "edges":[{"from":"a","to":"b","activation_time":0.5},{"from":"c","to":"d"}],
      "interactions":[{"members":["b","d"],"every":4}]})");
  add("pipeline-graph", towers);
  add_printed("schedule", {"schedule", "auto", "--graph", towers});
  expect_valid();
}

TEST_F(Schemas, FilesOfARealRun) {
  const CommandResult result =
      heteroperf({"run", "llm", "--size", "nano", "--ranks", "2", "--micro-batch", "2", "--steps",
                  "6", "--set", "measure.peak_s=0", "--set", "measure.evaluation_samples=4",
                  "--set", "checkpoint.at_end=true", "-q", "--out", "r"},
                 folder_.path());
  if (result.exit_code == 5) GTEST_SKIP() << "this program cannot train";
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* format : {"record", "config", "plan"}) {
    add(format, folder_ / ("r/" + std::string(format) + ".json"));
  }
  add("journal", folder_ / "r/journal.jsonl");
  std::string graph;
  for (const JournalLine& line : read_journal(folder_ / "r/journal.jsonl").lines) {
    const auto* workload = std::get_if<WorkloadEvent>(&line.event);
    if (workload != nullptr) graph = workload->graph.text;
  }
  add("graph", folder_.write("graph.json", graph));
  const std::string index = folder_ / "r/checkpoints/step-6/index.json";
  add("checkpoint", index);
  add_printed("doctor", {"doctor", "--speed"});
  add_printed("operators", {"ops", "llm", "--check", "--quick", "--precision", "fp32", "-q"});
  add_printed("operators", {"ops", "llm", "--size", "nano", "--score", "--threads", "1", "-q"});
  expect_valid();
  arguments_.clear();
  const std::string good = read_text_file(index);
  add_broken("checkpoint", good, "\"dtype\":\"F32\"", "\"dtype\":\"F31\"");
  add_broken("checkpoint", good, "\"offset\":[0-9]+", "\"offset\":-8");
  add_broken("checkpoint", good, "\"checksum\"", "\"sum\"");
  add_broken("checkpoint", good, "\"seed\":\"[0-9]+\"", "\"seed\":1.5");
  expect_invalid();
}

/// The run's own plan and those of each class alone, which can be simulated as they lie there.
TEST_F(Schemas, EveryPlanOfAMixedRun) {
  const CommandResult result =
      heteroperf({"run", "llm", "--size", "nano", "--steps", "2", "--cluster", "fast2_slow6",
                  "--with-baselines", "--set", "measure.peak_s=0", "--set",
                  "measure.evaluation_samples=4", "-q", "--out", "mix"},
                 folder_.path());
  if (result.exit_code == 5) GTEST_SKIP() << "this program cannot train";
  ASSERT_TRUE(fs::exists(folder_ / "mix/record.json")) << result.err;
  for (const char* run : {"mix", "mix/baseline-fast", "mix/baseline-slow"}) {
    const std::string plan = folder_ / (std::string(run) + "/plan.json");
    add("plan", plan);
    expect_taken({"simulate", plan, "--json"});
    expect_taken({"verify", folder_ / run});
  }
  expect_valid();
}

TEST_F(Schemas, WhatIsWrongIsFound) {
  store("a", 1, 1);
  const std::string record = folder_ / "a/run-001/record.json";
  const std::string good = read_text_file(record);
  const auto broken = [&](const char* from, const char* to) {
    add_broken("record", good, from, to);
  };
  broken("\"_version\": 1", "\"_version\": 2");
  broken("\"status\": \"complete\"", "\"status\": \"done\"");
  broken("\"rankable\": true", "\"rankable\": \"yes\"");
  broken("\"journal_head\"", "\"journal_top\"");
  broken("\"strict\": \"[0-9]+\"", "\"strict\": 1");
  broken("\"wall_s\"", "\"walls\"");
  broken("\"class\": \"closed\"", "\"class\": \"fine\"");
  broken("\"steps\": ", "\"steps\": -");
  store_run(folder_ / "gpu", {.gpus = {"NVIDIA H200"}});
  const std::string bound = read_text_file(folder_ / "gpu/run-000/record.json");
  add_broken("record", bound, "\"gpu_name\"", "\"gpu_model\"");
  add_broken("record", bound, "\"gpu\": 0,", "");
  add_broken("record", bound, "\"bound\": true", "\"bound\": \"yes\"");
  expect_invalid();
}

TEST_F(Schemas, WhatIsWrongInOtherFilesIsFound) {
  const auto printed = [&](Words words) {
    words.emplace_back("--json");
    return heteroperf(words, folder_.path()).out;
  };
  add_broken("doctor", printed({"doctor"}), "\"status\": \"[a-z]+\"", "\"status\": \"fine\"");
  add_broken("doctor", printed({"doctor"}), "\"hdf5\"", "\"h5\"");
  add_broken("version", printed({"version"}), "\"commit\"", "\"comit\"");
  add_broken("count", printed({"count", "nano"}), "\"strict\": \"[0-9]+\"", "\"strict\": 12");
  const std::string cluster = printed({"probe", "--ranks", "2", "--links-only"});
  add_broken("cluster", cluster, "\"kind\": \"cpu\"", "\"kind\": \"tpu\"");
  add_broken("cluster", cluster, "\"classes\"", "\"klasses\"");
  add_broken("cluster", cluster, "\"latency_s\": [0-9.e+-]+", "\"latency_s\": -1");
  const std::string graph = graph_to_text(small_classifier());
  add_broken("graph", graph, "\"kind\": *\"linear\"", "\"kind\":\"linar\"");
  add_broken("graph", graph, "\"out_features\": *[0-9]+", "\"out_features\":0");
  add_broken("graph", graph, "\"out_features\"", "\"features\"");
  add_broken("costs", R"({"forward":[1],"backward":[1],"weight":[1]})", "\"weight\"", "\"w\"");
  add_broken("costs", R"({"forward":[1],"backward":[1],"weight":[1]})", "1", "-1");
  add_broken("network", R"({"bandwidth":2,"capacity":1})", "\"capacity\":1", "\"capacity\":0");
  add_broken("network", R"({"bandwidth":2,"capacity":1})", "bandwidth", "bandwith");
  const std::string efficiency = R"({"_format":"heteroperf-efficiency","_version":1,"devices":[
      {"class":"fast","quantity":"busy_watts","value":300}]})";
  add_broken("efficiency", efficiency, "busy_watts", "watts");
  add_broken("efficiency", efficiency, "\"_version\":1", "\"_version\":2");
  add_broken("pipeline-graph", R"({"ranks":1,"micro_batches":1,"segments":[{"rank":0}]})",
             "\"rank\":0", "\"rang\":0");
  expect_invalid();
}

TEST_F(Schemas, EveryFileInTheFolderIsASchemaOfItsName) {
  std::size_t schemas = 0;
  std::map<std::string, int> versions;
  for (const DocumentKind& kind : document_kinds()) versions[kind.format] = kind.version;
  for (const auto& file : fs::directory_iterator(HETEROPERF_SCHEMAS)) {
    const Json schema = Json::parse(read_text_file(file.path()));
    const std::string name = file.path().filename().string();
    const std::string format = name.substr(0, name.find("-1.schema.json"));
    EXPECT_EQ(schema.at("$id"), "heteroperf:" + format + "-1");
    const Json* named = schema.contains("properties") ? &schema["properties"] : nullptr;
    if (named != nullptr && named->contains("_format")) {
      EXPECT_EQ((*named)["_format"]["const"], format);
      ASSERT_TRUE(versions.contains(format))
          << format << " has no row in metrics/base/document_kind.cpp";
      EXPECT_EQ((*named)["_version"]["const"], versions[format]) << format;
    }
    ++schemas;
  }
  EXPECT_GE(schemas, 26u);
}

}  // namespace
}  // namespace heteroperf::testing
