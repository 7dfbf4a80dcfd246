#include "results/comparison/run_comparison.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "results/comparison/hetero_ratio.hpp"
#include "results/comparison/journal_memory.hpp"
#include "results/comparison/record_doubt.hpp"
#include "results/record/record.hpp"
#include "results/record/run_folder.hpp"
#include "results/text/sha256.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class Comparing : public ::testing::Test {
 protected:
  fs::path path(const std::string& name) const { return folder_.path() / name; }

  RunSet repeated(const std::string& side, const std::vector<double>& step_s, int first = 0) const {
    for (std::size_t i = 0; i < step_s.size(); ++i) {
      store_run(path(side), {.number = first + static_cast<int>(i), .step_s = step_s[i]});
    }
    return find_runs({path(side)});
  }

 private:
  TemporaryFolder folder_;
};

ErrorKind kind_of(const std::function<void()>& act, std::vector<Problem>* problems = nullptr) {
  try {
    act();
  } catch (const Error& error) {
    if (problems != nullptr) *problems = error.problems();
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::internal;
}

TEST_F(Comparing, ADigestHoldsWhatTheRecordSays) {
  const RunDigest run = read_run_digest(RunFiles{store_run(path("a"), {})}.record());
  EXPECT_EQ(run.run_id, "run-000");
  EXPECT_EQ(run.severity, "closed");
  EXPECT_TRUE(run.rankable);
  EXPECT_EQ(run.host, "node");
  EXPECT_EQ(run.seed, 42u);
  EXPECT_EQ(run.class_counts(), (std::map<std::string, std::uint64_t>{{"cpu", 2}}));
  EXPECT_NEAR(*run.metric("step_time_s")->number, 12.24, 1e-9);
  EXPECT_EQ(run.metric("operations_per_step")->text.find_first_not_of("0123456789"),
            std::string::npos);
  EXPECT_EQ(run.metric("loss_fingerprint")->text.size(), 32u);
  EXPECT_FALSE(run.metric("loss_fingerprint")->number.has_value());
  EXPECT_FALSE(run.metric("predicted_step_time_s").has_value());
  RunDigest held = run;
  EXPECT_FALSE(hold_to_journal(held).has_value());
}

TEST_F(Comparing, EveryWayOfBadRecordIsRefusedWithItsPath) {
  const fs::path record = RunFiles{store_run(path("a"), {})}.record();
  const std::string whole = read_text_file(record);
  const auto refused = [&](const std::string& text, const std::string& why) {
    std::ofstream(record, std::ios::binary) << text;
    std::vector<Problem> problems;
    EXPECT_EQ(kind_of([&] { read_run_digest(record); }, &problems), ErrorKind::usage) << why;
    ASSERT_FALSE(problems.empty());
    EXPECT_NE(problems[0].problem.find(record.string()), std::string::npos) << why;
  };
  refused(whole.substr(0, whole.size() / 2), "truncated");
  refused("", "empty");
  refused("\xff\xfe garbage", "garbage");
  refused("[]", "no object");
  refused("{\"_format\":\"heteroperf-record\",\"_version\":2}", "another version");
  refused("{\"_format\":\"heteroperf-record\",\"_version\":1}", "no keys");
  for (const char* key : {"\"run_id\"", "\"rankable\"", "\"devices\""}) {
    std::string text = whole;
    text.replace(text.find(key), 2, "\"X");
    refused(text, key);
  }
  std::string text = whole;
  text.replace(text.find("\"rankable\": true"), 16, "\"rankable\": \"x\" ");
  refused(text, "wrong type");
}

TEST_F(Comparing, AnEditedRecordContradictsItsJournal) {
  const RunFiles files{store_run(path("a"), {})};
  const std::string whole = read_text_file(files.record());
  const auto edited = [&](const std::string& from, const std::string& to) {
    edit_file(files.record(), from, to);
    RunDigest digest = read_run_digest(files.record());
    const auto found = hold_to_journal(digest);
    std::ofstream(files.record(), std::ios::binary) << whole;
    return found.has_value();
  };
  EXPECT_TRUE(edited("\"median\": 1", "\"median\": 2"));
  EXPECT_TRUE(edited("\"class\": \"closed\"", "\"class\": \"review\""));
  EXPECT_TRUE(edited("2026-01-01", "2026-02-01"));
  EXPECT_TRUE(edited("\"journal\": \"", "\"journal\": \"0"));
  EXPECT_FALSE(edited("2026-01-01", "2026-01-01"));
  edit_file(files.journal(), "\"samples\":64", "\"samples\":65");
  RunDigest digest = read_run_digest(files.record());
  EXPECT_TRUE(hold_to_journal(digest).has_value());
  EXPECT_EQ(kind_of([&] { require_runs({files.folder}); }), ErrorKind::verification);
}

/// Pointers to all values that hold no others.
void collect_leaves(const Json& json, const Json::json_pointer& path,
                    std::vector<Json::json_pointer>& leaves) {
  if (!json.is_structured() || json.empty()) return leaves.push_back(path);
  for (const auto& [key, value] : json.items()) collect_leaves(value, path / key, leaves);
}

Json another(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() * 1.5 + 1;
  if (value.is_string()) return value.get<std::string>() + "1";
  return "something";
}

TEST_F(Comparing, NoLeafOfARecordCanBeEditedAlone) {
  const RunFiles files{store_run(path("a"), {})};
  const Json whole = Json::parse(read_text_file(files.record()));
  std::vector<Json::json_pointer> leaves;
  collect_leaves(whole, Json::json_pointer(), leaves);
  ASSERT_GE(leaves.size(), 100u);
  for (const Json::json_pointer& leaf : leaves) {
    Json edited = whole;
    Json& value = edited[leaf];
    value = another(value);
    write_file_atomically(files.record(), edited.dump(1));
    try {
      RunDigest digest = read_run_digest(files.record());
      EXPECT_TRUE(hold_to_journal(digest).has_value()) << leaf.to_string();
    } catch (const UserError&) {
      // It is no record any more.
    }
  }
}

TEST_F(Comparing, ARecordThatSaysLessIsReadFromItsJournal) {
  const RunFiles files{store_run(path("a"), {})};
  const RunDigest whole = read_run_digest(files.record());
  Json older = Json::parse(read_text_file(files.record()));
  older["metrics"].erase("utilization");
  write_file_atomically(files.record(), older.dump(1));
  RunDigest digest = read_run_digest(files.record());
  EXPECT_FALSE(digest.number("utilization").has_value());
  EXPECT_FALSE(hold_to_journal(digest).has_value());
  EXPECT_EQ(digest.number("utilization"), whole.number("utilization"));
}

TEST_F(Comparing, ARecordOfAnotherRulesetIsNotAccused) {
  const RunFiles files{store_run(path("a"), {})};
  edit_file(files.record(), std::string("\"ruleset\": \"") + ruleset_version, "\"ruleset\": \"0.9");
  RunDigest digest = read_run_digest(files.record());
  const auto doubt = hold_to_journal(digest);
  ASSERT_TRUE(doubt.has_value());
  EXPECT_EQ(doubt->kind, ErrorKind::not_comparable);
  EXPECT_EQ(digest.ruleset, ruleset_version);
}

TEST_F(Comparing, OperationsThatTheGraphDoesNotGiveAreFound) {
  SampleRun run = sample_of({.number = 0});
  for (JournalLine& line : run.lines) {
    if (auto* step = std::get_if<StepEvent>(&line.event)) step->ops_strict += step->ops_strict;
  }
  run.write_finished(RunFiles{path("a")});
  RunDigest digest = read_run_digest(RunFiles{path("a")}.record());
  const auto doubt = hold_to_journal(digest);
  ASSERT_TRUE(doubt.has_value());
  EXPECT_NE(doubt->why.find("step_operations"), std::string::npos) << doubt->why;
}

/// Verdicts of a program of its own, in a cache folder of its own.
class RememberedVerdicts : public Comparing {
 protected:
  void SetUp() override {
    setenv("XDG_CACHE_HOME", path("cache").c_str(), 1);
    remember_findings("a program");
  }
  void TearDown() override {
    remember_findings("");
    unsetenv("XDG_CACHE_HOME");
  }

  std::vector<fs::path> kept() const {
    std::vector<fs::path> files;
    const fs::path folder = path("cache") / "heteroperf/verdicts";
    if (!fs::exists(folder)) return files;
    for (const auto& file : fs::directory_iterator(folder)) files.push_back(file.path());
    return files;
  }
  static std::string doubt_of(const RunFiles& files) {
    RunDigest digest = read_run_digest(files.record());
    const auto doubt = hold_to_journal(digest);
    return doubt ? doubt->why : "";
  }
};

TEST_F(RememberedVerdicts, AreOfTheJournalsBytesAndTheProgram) {
  const RunFiles files{store_run(path("a"), {})};
  EXPECT_EQ(doubt_of(files), "");
  ASSERT_EQ(kept().size(), 1u);
  EXPECT_TRUE(kept().front().filename().string().starts_with(
      sha256_file_hex(files.journal().string()) + "-"));
  EXPECT_EQ(doubt_of(files), "");
  EXPECT_EQ(kept().size(), 1u);
  fs::rename(files.folder, path("elsewhere"));
  EXPECT_EQ(doubt_of({path("elsewhere")}), "");
  EXPECT_EQ(kept().size(), 1u);
  remember_findings("another program");
  EXPECT_EQ(doubt_of({path("elsewhere")}), "");
  EXPECT_EQ(kept().size(), 2u);
}

TEST_F(RememberedVerdicts, BelieveNoEditedFileAndNoDamagedCache) {
  const RunFiles files{store_run(path("a"), {})};
  const std::string record = read_text_file(files.record());
  EXPECT_EQ(doubt_of(files), "");
  edit_file(files.record(), "\"median\": 1", "\"median\": 2");
  EXPECT_NE(doubt_of(files), "");
  write_file_atomically(files.record(), record);
  const std::string verdict = read_text_file(kept().front());
  for (const std::string& damaged : {std::string("x"), verdict + "a problem", std::string()}) {
    std::ofstream(kept().front(), std::ios::binary) << damaged;
    EXPECT_EQ(doubt_of(files), "") << damaged;
    EXPECT_EQ(read_text_file(kept().front()), verdict);
  }
  edit_file(files.journal(), "\"samples\":64", "\"samples\":65");
  EXPECT_NE(doubt_of(files), "");
}

TEST_F(RememberedVerdicts, HoldWhatAJournalContradicts) {
  SampleRun run = sample_of({.number = 0});
  run.last<StepEvent>().ops_strict += run.last<StepEvent>().ops_strict;
  const RunFiles files{path("a")};
  run.write_finished(files);
  const std::string first = doubt_of(files);
  EXPECT_NE(first.find("step_operations"), std::string::npos) << first;
  EXPECT_EQ(doubt_of(files), first);
  ASSERT_EQ(kept().size(), 1u);
}

/// Its runs of the classes alone lie beside the journal, whose bytes do not tell whether they are
/// there.
TEST_F(RememberedVerdicts, OfAMixWithBaselinesAreNotKept) {
  const RunFiles mix{path("mix")}, copy{path("copy")};
  planned_run().write_finished(mix);
  fs::create_directories(copy.folder);
  for (const char* file : {"journal.jsonl", "record.json"}) {
    fs::copy_file(mix.folder / file, copy.folder / file);
  }
  EXPECT_NE(doubt_of(copy), "");
  EXPECT_EQ(doubt_of(mix), "");
  EXPECT_TRUE(kept().empty());
}

TEST_F(RememberedVerdicts, NeedNoCacheFolder) {
  const RunFiles files{store_run(path("a"), {})};
  std::ofstream(path("cache")) << "a file is in the way";
  EXPECT_EQ(doubt_of(files), "");
}

TEST_F(Comparing, FindsRunsAmongForeignFiles) {
  store_run(path("results"), {.number = 2});
  store_run(path("results/deeper"), {.number = 1});
  fs::create_directory_symlink("run-002", path("results/latest"));
  fs::create_directories(path("results/notes"));
  std::ofstream(path("results/notes/readme.txt")) << "foreign";
  std::ofstream(path("results/\xff\xfe.json")) << "foreign";
  fs::create_directories(path("results/killed"));
  std::ofstream(path("results/killed/journal.jsonl")) << "{}\n";
  const RunSet found = find_runs({path("results"), path("results/run-002")});
  ASSERT_EQ(found.runs.size(), 2u);  // each once
  EXPECT_EQ(found.runs[0].run_id, "run-001");
  EXPECT_EQ(found.runs[1].run_id, "run-002");
  EXPECT_EQ(found.foreign, 2u);
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_NE(found.skipped[0].reason.find("recover"), std::string::npos);
  EXPECT_EQ(kind_of([&] { require_runs({path("results/notes")}); }), ErrorKind::usage);
  EXPECT_EQ(kind_of([&] { require_runs({path("absent")}); }), ErrorKind::usage);
}

TEST_F(Comparing, ZeroStepsAndClocksGoingBackAreInvalid) {
  SampleRun none = fixed_run(), back = fixed_run();
  none.erase_steps();
  none.write_finished(RunFiles{path("none")});
  back.lines[5].t_ns = back.lines[6].t_ns + 1;
  back.write_finished(RunFiles{path("back")});
  EXPECT_EQ(kind_of([&] { require_runs({path("none")}); }), ErrorKind::invalid_result);
  EXPECT_EQ(kind_of([&] { require_runs({path("back")}); }), ErrorKind::invalid_result);
}

TEST_F(Comparing, DifferentKeysNameEveryField) {
  store_run(path("a"), {});
  SampleRun other = sample_of({.number = 1, .build_type = "Debug"});
  other.last<WorkloadEvent>().precision = "bf16";
  other.last<PeakEvent>().precision = "bf16";
  other.last<ScaleEvent>().devices[0].threads = 4;
  other.write_finished(RunFiles{path("b/run")});
  std::vector<Problem> problems;
  EXPECT_EQ(kind_of(
                [&] {
                  require_comparable(require_runs({path("a")}), require_runs({path("b")}), "A",
                                     "B");
                },
                &problems),
            ErrorKind::not_comparable);
  std::string text;
  for (const Problem& one : problems) text += one.text() + '\n';
  for (const char* field :
       {"workload.hash", "workload.precision", "scale differs", "program.build_type"}) {
    EXPECT_NE(text.find(field), std::string::npos) << field;
  }
  EXPECT_EQ(text.find("ruleset"), std::string::npos);
}

TEST_F(Comparing, AnotherWorkloadNamesItsSettings) {
  const auto digest_of = [&](const std::string& config, const std::string& workload) {
    SampleRun run = sample_of({.number = 0});
    run.last<ConfigEvent>().config.text = config;
    run.last<WorkloadEvent>().config.text = workload;
    return parse_run_digest(build_record(run.journal()), path("x/record.json"));
  };
  const auto complaint = [&](const RunDigest& a, const RunDigest& b) {
    std::vector<Problem> problems;
    EXPECT_EQ(kind_of(
                  [&] {
                    require_comparable({{a}, {}}, {{b}, {}}, "A", "B");
                  },
                  &problems),
              ErrorKind::not_comparable);
    std::vector<std::string> texts;
    for (const Problem& one : problems) texts.push_back(one.text());
    return texts;
  };
  const RunDigest a = digest_of(R"({"batch":{"micro_batch":1},"optimizer":{"rate":0.1},"seed":1})",
                                R"({"optimizer":{"rate":0.1,"beta":1}})");
  const RunDigest b = digest_of(R"({"batch":{"micro_batch":2},"optimizer":{"rate":0.2},"seed":2})",
                                R"({"optimizer":{"rate":0.2,"beta":2}})");
  const auto texts = complaint(a, b);
  ASSERT_EQ(texts.size(), 4u);
  EXPECT_EQ(texts[1], "config.batch.micro_batch differs (1 in A, 2 in B)");
  EXPECT_EQ(texts[2], "config.optimizer.rate differs (0.1 in A, 0.2 in B)");
  EXPECT_EQ(texts[3], "workload.config.optimizer.beta differs (1 in A, 2 in B)");
  std::string many, more;
  for (int i = 0; i < 20; ++i) {
    many += fmt::format("{}\"k{}\":1", i == 0 ? "" : ",", i);
    more += fmt::format("{}\"k{}\":2", i == 0 ? "" : ",", i);
  }
  const auto capped =
      complaint(digest_of("{}", '{' + many + '}'), digest_of("{}", '{' + more + '}'));
  ASSERT_EQ(capped.size(), 14u);
  EXPECT_EQ(capped.back(), "and 8 more");
}

TEST_F(Comparing, LossesOfSeveralSeedsAreNotCompared) {
  const auto side = [&](const std::string& name, int first) {
    store_run(path(name), {.number = first, .seed = 1});
    store_run(path(name), {.number = first + 1, .seed = 2});
    return find_runs({path(name)});
  };
  const RunComparison comparison = compare_runs(arranged(side("a", 0), side("b", 10)), 0.02);
  for (const MetricComparison& one : comparison.metrics) {
    EXPECT_STRNE(one.metric->name, "loss_fingerprint");
  }
  ASSERT_EQ(comparison.skipped.size(), 1u);
  EXPECT_EQ(comparison.skipped[0].name, "loss_fingerprint");
  EXPECT_EQ(comparison.skipped[0].reason, "seeds/run differs");
  EXPECT_NE(console_text(comparison_document(comparison))
                .find("not compared: loss_fingerprint (seeds/run"),
            std::string::npos);
  EXPECT_NE(json_text(comparison_document(comparison)).find("\"skipped\""), std::string::npos);
  EXPECT_EQ(unstated_keys(comparison_document(comparison)), std::vector<std::string>());
}

TEST_F(Comparing, OneRunPerSideCallsOnlyLargeChanges) {
  const RunSet a = repeated("a", {12});
  const auto verdict = [&](double step_s, const std::string& name) {
    return compare_runs(arranged(a, repeated(name, {step_s}, 1)), 0.02);
  };
  EXPECT_EQ(verdict(12, "same").verdict, SpeedVerdict::inconclusive);
  EXPECT_EQ(verdict(13.5, "little").verdict, SpeedVerdict::inconclusive);
  const RunComparison slow = verdict(24, "slow");
  EXPECT_EQ(slow.verdict, SpeedVerdict::slower);
  EXPECT_EQ(slow.basis, IntervalBasis::within_runs);
  EXPECT_NEAR(*slow.ratio, 0.5, 0.01);
  EXPECT_FALSE(slow.notes.empty());
  EXPECT_EQ(verdict(8, "fast").verdict, SpeedVerdict::faster);
}

TEST_F(Comparing, RepeatedRunsGiveRunToRunIntervals) {
  const RunSet a = repeated("a", {12, 12.05, 11.95, 12.02});
  const RunComparison same = compare_runs(arranged(a, repeated("b", {12.01, 12, 11.97}, 10)), 0.02);
  EXPECT_EQ(same.verdict, SpeedVerdict::same);
  EXPECT_EQ(same.basis, IntervalBasis::runs);
  const RunComparison slow =
      compare_runs(arranged(a, repeated("c", {12.7, 12.75, 12.65}, 20)), 0.02);
  EXPECT_EQ(slow.verdict, SpeedVerdict::slower);
  EXPECT_LT(slow.ratio_ci95->high, 0.96);
  const RunComparison noisy = compare_runs(arranged(a, repeated("d", {11, 13}, 30)), 0.02);
  EXPECT_EQ(noisy.verdict, SpeedVerdict::inconclusive);
}

TEST_F(Comparing, ExactMetricsStandApart) {
  const RunSet a = repeated("a", {12});
  SampleRun changed = sample_of({.number = 1});
  changed.last<MemoryEvent>().peak_bytes = 5000;
  for (JournalLine& line : changed.lines) {
    if (auto* step = std::get_if<StepEvent>(&line.event); step != nullptr && step->n == 3) {
      step->loss = std::nextafter(step->loss, 2.0);
    }
  }
  changed.write_finished(RunFiles{path("b/run")});
  const RunComparison comparison = compare_runs(arranged(a, find_runs({path("b")})), 0.02);
  int seen = 0;
  for (const MetricComparison& one : comparison.metrics) {
    const std::string name = one.metric->name;
    if (one.metric->kind == MetricKind::statistical) continue;
    ++seen;
    EXPECT_EQ(one.changed, name == "peak_memory_bytes" || name == "loss_fingerprint") << name;
    EXPECT_FALSE(one.ratio_ci95.has_value());
  }
  EXPECT_EQ(seen, 4);
}

TEST_F(Comparing, TheEnvironmentIsCompared) {
  store_run(path("a"), {});
  store_run(path("b"), {.number = 1, .seed = 7, .commit = "fedcba", .host = "other"});
  const RunSet a = find_runs({path("a")}), b = find_runs({path("b")});
  std::vector<std::string> paths;
  for (const auto& one : environment_differences(a.runs[0], b.runs[0])) paths.push_back(one.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"/config/seed", "/program/git_commit", "/seeds/run",
                                             "/system/host"}));
  EXPECT_TRUE(environment_differences(a.runs[0], a.runs[0]).empty());
  const std::string text = console_text(comparison_document(compare_runs(arranged(a, b), 0.02)));
  EXPECT_THAT(text, testing::ContainsRegex("/system/host +node"));
}

TEST_F(Comparing, AnotherModelOfGpuIsAnotherEnvironment) {
  const std::string fast = "NVIDIA H200", slow = "NVIDIA A100";
  store_run(path("a"), {.gpus = {fast, fast}});
  store_run(path("b"), {.number = 1, .gpus = {slow, fast}});
  const RunSet a = find_runs({path("a")}), b = find_runs({path("b")});
  require_comparable(a, b, "a", "b");
  const auto differences = environment_differences(a.runs[0], b.runs[0]);
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].path, "/system/gpus");
  EXPECT_EQ(differences[0].a, "2 x NVIDIA H200");
  EXPECT_EQ(differences[0].b, "1 x NVIDIA A100 + 1 x NVIDIA H200");
  const RunPairs pairs = arranged(a, b);
  EXPECT_EQ(why_losses_may_differ(pairs), "system/gpus differs");
  const std::string text = console_text(comparison_document(compare_runs(pairs, 0.02)));
  EXPECT_NE(text.find("/system/gpus       2 x NVIDIA H200  1 x "), std::string::npos) << text;
}

TEST_F(Comparing, RecordsWithoutNamesOfGpusAreReadToo) {
  const auto stored_with = [&](const std::string& name, const std::string& binding) {
    SampleRun run = sample_of({.number = 0});
    run.last<SystemEvent>().system.text = R"({"host":{"value":"node"},"binding":)" + binding + "}";
    run.write_finished(RunFiles{path(name)});
    return find_runs({path(name)}).runs.at(0);
  };
  using Gpus = std::map<std::string, std::uint64_t>;
  const RunDigest device = stored_with("device", R"([{"rank":0,"device":"NVIDIA H200","gpu":0},
                                                     {"rank":1,"device":"cpu"}])");
  EXPECT_EQ(device.gpus, (Gpus{{"NVIDIA H200", 1}}));
  const RunDigest named =
      stored_with("named", R"([{"device":"x","gpu":0,"gpu_name":"NVIDIA H200"}])");
  EXPECT_EQ(named.gpus, device.gpus);
  EXPECT_EQ(named.environment.at("/system/gpus"), "1 x NVIDIA H200");
  for (const char* binding : {R"([{"rank":0,"host":"a","gpu":0,"device":""}])",
                              R"([{"device":"cpu"}])", "[]", R"(["word"])"}) {
    const RunDigest silent = stored_with("silent", binding);
    EXPECT_TRUE(silent.gpus.empty()) << binding;
    EXPECT_FALSE(silent.environment.contains("/system/gpus")) << binding;
  }
}

/// The mixed sample run on real devices, and its classes alone.
class HeteroRuns : public Comparing {
 protected:
  RunSet runs_of(const std::string& name, std::vector<DeviceCount> devices,
                 const std::vector<double>& step_s, int first,
                 const std::vector<std::string>& gpus = {}) {
    for (std::size_t i = 0; i < step_s.size(); ++i) {
      SampleRun run =
          sample_of({.number = first + static_cast<int>(i), .step_s = step_s[i], .gpus = gpus});
      run.last<ScaleEvent>().devices = devices;
      run.write_finished(RunFiles{path(name) / std::to_string(i)});
    }
    return find_runs({path(name)});
  }
};

TEST_F(HeteroRuns, RatioAndIntervalOfRepeatedRuns) {
  const RunSet mix = runs_of("mix", {{"fast", 1}, {"slow", 1}}, {4, 4.04, 3.98}, 0);
  const RunSet fast = runs_of("fast", {{"fast", 1}}, {5, 5.05, 4.97}, 10);
  const RunSet slow = runs_of("slow", {{"slow", 1}}, {20, 20.1, 19.9}, 20);
  const HeteroRatio ratio = hetero_ratio(mix, {fast, slow});
  EXPECT_NEAR(ratio.hsr, 1.0, 0.01);  // 1/4 over 1/5 + 1/20
  EXPECT_NEAR(ratio.gain, 1.25, 0.02);
  EXPECT_EQ(ratio.best_class, "fast");
  ASSERT_TRUE(ratio.hsr_ci95.has_value());
  EXPECT_LT(ratio.hsr_ci95->low, ratio.hsr);
  EXPECT_GT(ratio.hsr_ci95->high, ratio.hsr);
  EXPECT_LT(ratio.hsr_ci95->high - ratio.hsr_ci95->low, 0.06);
  EXPECT_EQ(unstated_keys(hetero_ratio_document(ratio)), std::vector<std::string>());
  RunSet single = fast;
  single.runs.resize(1);
  EXPECT_FALSE(hetero_ratio(mix, {single, slow}).hsr_ci95.has_value());
}

TEST_F(HeteroRuns, ClassesMustAddUpToTheMix) {
  const RunSet mix = runs_of("mix", {{"fast", 1}, {"slow", 2}}, {4}, 0);
  const RunSet fast = runs_of("fast", {{"fast", 1}}, {5}, 10);
  const RunSet slow = runs_of("slow", {{"slow", 1}}, {20}, 20);
  EXPECT_EQ(kind_of([&] { hetero_ratio(mix, {fast, slow}); }), ErrorKind::not_comparable);
  EXPECT_EQ(kind_of([&] { hetero_ratio(mix, {mix, slow}); }), ErrorKind::not_comparable);
  EXPECT_EQ(kind_of([&] { hetero_ratio(fast, {fast}); }), ErrorKind::not_comparable);
}

TEST_F(HeteroRuns, ClassesAloneDoTheWorkOfTheMix) {
  const RunSet mix = runs_of("mix", {{"fast", 1}, {"slow", 1}}, {4}, 0);
  const RunSet fast = runs_of("fast", {{"fast", 1}}, {5}, 10);
  const RunSet slow = runs_of("slow", {{"slow", 1}}, {20}, 20);
  ASSERT_GT(hetero_ratio(mix, {fast, slow}).hsr, 0);
  RunSet smaller_steps = slow;
  smaller_steps.runs.front().samples_per_step = 1;
  EXPECT_EQ(kind_of([&] { hetero_ratio(mix, {fast, smaller_steps}); }), ErrorKind::not_comparable);
  RunSet more_threads = slow;
  more_threads.runs.front().devices.front().threads += 1;
  EXPECT_EQ(kind_of([&] { hetero_ratio(mix, {fast, more_threads}); }), ErrorKind::not_comparable);
}

TEST_F(HeteroRuns, ClassesAloneUseTheGpusOfTheMix) {
  const std::string a100 = "NVIDIA A100", h200 = "NVIDIA H200";
  const RunSet mix = runs_of("mix", {{"gpu", 1}, {"slow", 1}}, {4}, 0, {h200});
  const RunSet slow = runs_of("slow", {{"slow", 1}}, {20}, 20);
  const RunSet same = runs_of("same", {{"gpu", 1}}, {5}, 10, {h200});
  EXPECT_GT(hetero_ratio(mix, {same, slow}).hsr, 0);
  const RunSet other = runs_of("other", {{"gpu", 1}}, {5}, 30, {a100});
  EXPECT_EQ(kind_of([&] { hetero_ratio(mix, {other, slow}); }), ErrorKind::not_comparable);
  RunSet repeated = same;
  repeated.runs.push_back(other.runs.front());
  EXPECT_EQ(kind_of([&] { hetero_ratio(mix, {repeated, slow}); }), ErrorKind::not_comparable);
  // A record of an older program names no GPU.
  const RunSet silent = runs_of("silent", {{"gpu", 1}}, {5}, 40);
  EXPECT_GT(hetero_ratio(mix, {silent, slow}).hsr, 0);
  EXPECT_GT(hetero_ratio(runs_of("old", {{"gpu", 1}, {"slow", 1}}, {4}, 50), {other, slow}).hsr, 0);
}

/// Also where a hostile record names them over and over.
TEST(RunDigestCores, AreEachCpuOfAHostOnce) {
  Json record = Json::parse(build_record(fixed_run().journal()));
  std::string endless;
  for (int i = 0; i < 20'000; ++i) endless += "0-18446744073709551615,";
  record["system"]["binding"] = {{{"host", "a"}, {"cpus", "0-3,2-5,9"}},
                                 {{"host", "a"}, {"cpus", "4,7-6"}},
                                 {{"host", "b"}, {"cpus", endless}}};
  const RunDigest digest = parse_run_digest(record.dump(), "a/record.json");
  EXPECT_EQ(digest.nodes, 2u);
  EXPECT_EQ(digest.cores, 7u + 65536u);
}

}  // namespace
}  // namespace heteroperf
