#include "results/record/verify.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/exports/run_export.hpp"
#include "results/journal_checks/plan_outline.hpp"
#include "results/record/record.hpp"
#include "results/record/ruleset.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/samples_h5.hpp"
#include "results/record/suite_record.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

std::string failures(const Verification& verification) {
  std::string text;
  for (const VerifyCheck& check : verification.checks) {
    if (!check.ok)
      text += check.name + ": expected " + check.expected + ", found " + check.actual + "\n";
  }
  return text;
}

bool fails(const Verification& verification, const std::string& name) {
  for (const VerifyCheck& check : verification.checks) {
    if (check.name == name) return !check.ok;
  }
  return false;
}

void overwrite(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

/// Changes one byte in its place: a file that is made anew is written to the disk each time.
void put_byte(const fs::path& path, std::size_t at, char byte) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at)).put(byte);
}

/// A short run in a folder of its own.
struct StoredRun {
  TemporaryFolder folder;
  RunFiles files{folder.path() / "run"};
  explicit StoredRun(const SampleRun& run) { run.write_finished(files); }
};

SampleRun short_run() {
  SampleRunOptions options;
  options.warmup_steps = 1;
  options.steps = 2;
  options.ranks = 1;
  return fixed_run(options);
}

TEST(Verify, AcceptsWhatWasWritten) {
  for (const SampleRun& run : {fixed_run(), search_run(), short_run()}) {
    const StoredRun stored(run);
    const Verification verification = verify(stored.files.folder);
    EXPECT_TRUE(verification.ok()) << failures(verification);
    EXPECT_EQ(verification.checks.back().name, "samples_h5");
  }
}

bool is_confirmed(const StoredRun& stored) {
  const Verification verification = verify(stored.files.folder);
  return verification.ok() && verification.compared();
}

/// Every byte of the file at `path`, changed in a bit that keeps it printable or not.
void expect_every_flip_fails(const StoredRun& stored, const fs::path& path) {
  const std::string good = read_text_file(path);
  for (std::size_t i = 0; i < good.size(); ++i) {
    const char bad = static_cast<char>(good[i] ^ (1 << (i % 7)));
    put_byte(path, i, bad);
    ASSERT_FALSE(is_confirmed(stored))
        << path << " byte " << i << " '" << good[i] << "' to '" << bad << "'";
    put_byte(path, i, good[i]);
  }
  ASSERT_TRUE(is_confirmed(stored));
}

TEST(Verify, NoticesEveryFlippedByteOfTheJournal) {
  const StoredRun stored(short_run());
  fs::remove(stored.files.samples());  // the journal and the record must suffice
  expect_every_flip_fails(stored, stored.files.journal());
}

TEST(Verify, NoticesEveryFlippedByteOfTheRecordAndItsCompanions) {
  const StoredRun stored(short_run());
  fs::remove(stored.files.samples());
  for (const fs::path& path : {stored.files.record(), stored.files.config(), stored.files.plan(),
                               stored.files.environment()}) {
    expect_every_flip_fails(stored, path);
  }
}

TEST(Verify, NoticesEveryTruncationOfACompleteJournal) {
  const StoredRun stored(short_run());
  fs::remove(stored.files.samples());
  const std::string good = read_text_file(stored.files.journal());
  const std::size_t last_line = good.rfind('\n', good.size() - 2);
  for (std::size_t size = 0; size < good.size(); size += size < last_line ? 13 : 1) {
    overwrite(stored.files.journal(), good.substr(0, size));
    ASSERT_FALSE(verify(stored.files.folder).ok()) << size;
  }
  overwrite(stored.files.journal(), good + " ");
  EXPECT_FALSE(verify(stored.files.folder).ok());
}

// The chain can be forged; what the journal says must still add up.
TEST(Verify, RecomputesOperationsOfAForgedJournal) {
  SampleRun run = fixed_run();
  run.last<StepEvent>().ops_strict += Ops(1);
  EXPECT_TRUE(fails(verify(StoredRun(run).files.folder), "step_operations"));

  run = fixed_run();
  run.last<EvalEvent>().ops_strict += Ops(1);
  EXPECT_TRUE(fails(verify(StoredRun(run).files.folder), "evaluation_operations"));

  run = search_run();
  run.last<TrialEvent>().ops += Ops(1);
  EXPECT_TRUE(fails(verify(StoredRun(run).files.folder), "trial_totals"));

  run = fixed_run();
  run.last<WorkloadEvent>().graph_hash = std::string(32, '0');
  EXPECT_TRUE(fails(verify(StoredRun(run).files.folder), "graphs"));

  run = fixed_run();
  run.last<WorkloadEvent>().graph.text = "{}";
  EXPECT_TRUE(fails(verify(StoredRun(run).files.folder), "graphs"));
}

TEST(Verify, HoldsTheOpeningLinesToOneAnother) {
  const auto expect_found = [](const char* check, const SampleRun& base, const auto& change) {
    SampleRun run = base;
    change(run);
    const TemporaryFolder folder;
    const RunFiles files{folder.path()};
    std::ofstream(files.journal(), std::ios::binary) << run.text();
    finish_run(files);
    EXPECT_TRUE(fails(verify(files.folder), check)) << check;
  };
  const SampleRun fixed = fixed_run(), search = search_run();
  expect_found("opening", fixed, [](SampleRun& r) { std::swap(r.lines[1], r.lines[2]); });
  expect_found("opening", fixed, [](SampleRun& r) { r.lines.erase(r.lines.begin() + 3); });
  expect_found("opening", fixed, [](SampleRun& r) { r.last<PlanEvent>().plan.text = "{}"; });
  expect_found("opening", fixed, [](SampleRun& r) { r.last<ConfigEvent>().config.text = "{}"; });
  expect_found("request", fixed, [](SampleRun& r) { r.last<StartEvent>().quick = true; });
  expect_found("devices", fixed, [](SampleRun& r) { r.last<ScaleEvent>().devices[0].count = 1; });
  expect_found("plan", fixed, [](SampleRun& r) { *r.last<WorkloadEvent>().samples_per_step *= 2; });
  expect_found("trial_lines", search, [](SampleRun& r) { r.last<TrialEvent>().parent = 1; });
}

/// Twice the samples and twice the operations in every step: throughput without work.
TEST(Verify, HoldsSamplesToThePlan) {
  SampleRun run = fixed_run();
  for (JournalLine& line : run.lines) {
    if (auto* step = std::get_if<StepEvent>(&line.event)) {
      step->samples *= 2;
      step->ops_strict += step->ops_strict;
    } else if (auto* observed = std::get_if<ObservedEvent>(&line.event)) {
      observed->strict += observed->strict;
      observed->executed += observed->executed;
    }
  }
  const TemporaryFolder folder;
  const RunFiles files{folder.path()};
  std::ofstream(files.journal(), std::ios::binary) << run.text();
  finish_run(files);
  EXPECT_TRUE(fails(verify(files.folder), "step_samples"));
}

TEST(PlanOutline, PlacesTheRanksOfTwoWays) {
  const PlanOutline plan = read_plan_outline(R"({"_format":"heteroperf-plan","schedule":"x",
      "micro_batches":1,"workload":{"name":"llm"},"stages":[
      {"replicas":[{"ranks":[3,1],"micro_batch":1},{"ranks":[0],"micro_batch":2,"direction":1}]},
      {"replicas":[{"ranks":[0],"micro_batch":3},{"ranks":[1,3],"micro_batch":4,"direction":1}]}]})");
  EXPECT_EQ(plan.place_of(3).group, 0);
  EXPECT_EQ(plan.place_of(2).group, -1);
  EXPECT_EQ(share_text(plan.stages_of(0), 2), "stages 1,0");
  ASSERT_EQ(plan.stages_of(1).size(), 2u);
  EXPECT_EQ(plan.stages_of(1)[0].tensor_index, 1);
  EXPECT_EQ(plan.stages_of(1)[1].tensor_index, 0);
  EXPECT_TRUE(plan.stages_of(2).empty());
  EXPECT_EQ(plan.replica_of(0)->micro_batch, 2);
  EXPECT_EQ(plan.replica_of(3)->micro_batch, 1);
  EXPECT_EQ(plan.replica_of(2), nullptr);
}

TEST(PlanOutline, ARankComputesAStageOncePerDirection) {
  const auto outline = [](const char* replicas) {
    return read_plan_outline(R"({"_format":"heteroperf-plan","schedule":"x","micro_batches":1,)"
                             R"("workload":{"name":"llm"},"stages":[{"replicas":[)" +
                             std::string(replicas) + "]}]}");
  };
  EXPECT_EQ(outline(R"({"ranks":[0],"micro_batch":1},{"ranks":[0],"micro_batch":1,"direction":1})")
                .stages_of(0)
                .size(),
            2u);
  EXPECT_THROW(outline(R"({"ranks":[0],"micro_batch":1},{"ranks":[0],"micro_batch":1})"),
               UserError);
  EXPECT_THROW(outline(R"({"ranks":[1,1],"micro_batch":1})"), UserError);
}

TEST(PlanOutline, OfVeryManyRanksOrStages) {
  const auto outline = [](int stages, int replicas, int ranks) {
    std::string text;
    for (int stage = 0; stage < stages; ++stage) {
      text += text.empty() ? R"({"replicas":[)" : R"(,{"replicas":[)";
      for (int i = 0; i < replicas; ++i) {
        text += fmt::format(R"({}{{"ranks":[{}],"micro_batch":1}})", i == 0 ? "" : ",", i % ranks);
      }
      text += "]}";
    }
    return read_plan_outline(R"({"_format":"heteroperf-plan","schedule":"x","micro_batches":1,)"
                             R"("workload":{"name":"llm"},"stages":[)" +
                             text + "]}");
  };
  constexpr int many = 200'000;
  const PlanOutline plan = outline(1, many, many);
  for (std::int32_t rank = 0; rank < many; ++rank) {
    ASSERT_EQ(plan.place_of(rank).group, 0);
    ASSERT_EQ(plan.stages_of(rank).size(), 1u);
    ASSERT_EQ(plan.replica_of(rank)->ranks.front(), rank);
  }
  EXPECT_EQ(outline(4096, 1, 1).stages_of(0).size(), 4096u);
  EXPECT_THROW(outline(4097, 1, 1), UserError);
}

TEST(Verify, DoesNotWaitForPipes) {
  const StoredRun stored(short_run());
  const auto with_pipe = [&](const fs::path& file) {
    const fs::path aside = stored.folder.path() / "aside";
    fs::rename(file, aside);
    EXPECT_EQ(mkfifo(file.c_str(), 0600), 0);
    const std::string said = failures(verify(stored.files.folder));
    fs::remove(file);
    fs::rename(aside, file);
    return said;
  };
  const RunFiles& files = stored.files;
  for (const fs::path& file :
       {files.journal(), files.record(), files.config(), files.plan(), files.environment()}) {
    const std::string said = with_pipe(file);
    EXPECT_NE(said.find(file.string() + " (it is no regular file)"), std::string::npos) << said;
  }
  EXPECT_EQ(failures(verify(files.folder)), "");
  ASSERT_EQ(mkfifo(files.suite().c_str(), 0600), 0);
  EXPECT_FALSE(verify(files.folder).ok());
  EXPECT_THROW(show(files.folder, DocumentForm::console, {}), UserError);
}

TEST(Verify, HoldsHostsToTheBinding) {
  const auto failing = [](const Event& event) {
    SampleRun run = fixed_run();
    nlohmann::json system = nlohmann::json::parse(run.last<SystemEvent>().system.text);
    system["binding"][1]["gpu"] = 0;
    run.last<SystemEvent>().system.text = system.dump();
    run.insert_before_stop(event);
    return fails(verify(StoredRun(run).files.folder), "hosts");
  };
  EXPECT_FALSE(failing(HostLoadEvent{300, 2, 0.1, {}, {}, {}, "node", 0, {}, {}}));
  EXPECT_TRUE(failing(HostLoadEvent{300, 2, 0.1, {}, {}, {}, "mode", 0, {}, {}}));
  EXPECT_TRUE(failing(HostLoadEvent{300, 4, 0.1, {}, {}, {}, "node", 0, {}, {}}));
  EXPECT_TRUE(failing(HostLoadEvent{300, 2, 0.1, {}, {}, {}, "node", 1, {}, {}}));
  EXPECT_TRUE(failing(HostLoadEvent{3000, 2, 0.1, {}, {}, {}, "node", 0, {}, {}}));
  EXPECT_FALSE(failing(GpuSlowdownEvent{"node", "0000:1b:00.0", 1, 300, 0.5, {}}));
  EXPECT_TRUE(failing(GpuSlowdownEvent{"mode", "0000:1b:00.0", 1, 300, 0.5, {}}));
  EXPECT_TRUE(failing(GpuSlowdownEvent{"node", "0000:1b:00.0", 0, 300, 0.5, {}}));
  EXPECT_TRUE(failing(GpuSlowdownEvent{"node", "0000:1b:00.0", 1, 3000, 0.5, {}}));
  EXPECT_TRUE(failing(GpuSlowdownEvent{"node", "0000:1b:00.0", 1, 300, 0.5, -1}));
  EXPECT_TRUE(failing(HostLoadEvent{300, 2, 0.1, {}, {}, {}, "node", 0, -1, {}}));
}

TEST(Verify, NamesTheClaimThatWasChanged) {
  const StoredRun stored(fixed_run());
  std::string record = read_text_file(stored.files.record());
  const std::string old = "\"rankable\": true";
  record.replace(record.find(old), old.size(), "\"rankable\": false");
  overwrite(stored.files.record(), record);
  const Verification verification = verify(stored.files.folder);
  EXPECT_TRUE(fails(verification, "validity"));
  EXPECT_TRUE(fails(verification, "record_bytes"));
  EXPECT_FALSE(fails(verification, "ops_per_second"));
}

TEST(Verify, ARecordOfOtherRulesIsNeitherConfirmedNorAccused) {
  const StoredRun stored(fixed_run());
  std::string record = read_text_file(stored.files.record());
  const std::string own = fmt::format("\"ruleset\": \"{}\"", ruleset_version);
  record.replace(record.find(own), own.size(), "\"ruleset\": \"1.0\"");
  overwrite(stored.files.record(), record);
  const Verification verification = verify(stored.files.folder);
  EXPECT_TRUE(verification.ok()) << failures(verification);
  EXPECT_FALSE(verification.compared());
  const auto json = nlohmann::json::parse(verification.to_json());
  EXPECT_EQ(json.at("checks").back().at("name"), "record_ruleset");
  EXPECT_EQ(json.at("checks").back().at("compared"), false);
  // Its journal is held to itself all the same.
  overwrite(stored.files.journal(), read_text_file(stored.files.journal()) + "{}\n");
  EXPECT_FALSE(verify(stored.files.folder).ok());
}

TEST(Verify, NoticesMissingFiles) {
  for (const auto& [name, check] :
       {std::pair{"record.json", "record_bytes"}, std::pair{"config.json", "config_file"},
        std::pair{"plan.json", "plan_file"}, std::pair{"environment.json", "environment_file"},
        std::pair{"journal.jsonl", "journal_chain"}}) {
    const StoredRun stored(short_run());
    fs::remove(stored.files.folder / name);
    EXPECT_TRUE(fails(verify(stored.files.folder), check)) << name;
  }
}

TEST(Verify, NoticesSamplesOfAnotherRun) {
  if (!samples_h5_built()) GTEST_SKIP() << "not built with HDF5";
  const StoredRun stored(short_run()), other(fixed_run());
  fs::copy_file(other.files.samples(), stored.files.samples(),
                fs::copy_options::overwrite_existing);
  EXPECT_TRUE(fails(verify(stored.files.folder), "samples_h5"));
}

TEST(Verify, SaysThatThereIsNoRun) {
  const TemporaryFolder folder;
  EXPECT_THROW(verify(folder.path()), UserError);
  EXPECT_THROW(verify(folder.path() / "missing"), UserError);
}

TEST(Verify, WritesItsDocumentEvenForBytesThatAreNoText) {
  const StoredRun stored(short_run());
  overwrite(stored.files.record(), "\xff\xfe");
  const auto json = nlohmann::json::parse(verify(stored.files.folder).to_json());
  EXPECT_EQ(json.at("ok"), false);
  EXPECT_FALSE(json.at("checks").empty());
}

// ---------------------------------------------------------------- recover

TEST(Recover, RebuildsARunCutAnywhereSoThatItVerifies) {
  const SampleRun run = short_run();
  const std::string text = run.text();
  const std::size_t first_line = text.find('\n') + 1;
  for (std::size_t size = first_line; size < text.size(); size += 37) {
    const TemporaryFolder folder;
    const RunFiles files{folder.path() / "run"};
    fs::create_directories(files.folder);
    overwrite(files.journal(), text.substr(0, size));
    const FinishedRun finished = recover(files.folder);
    const Verification verification = verify(files.folder);
    ASSERT_TRUE(verification.ok()) << size << "\n" << failures(verification);
    ASSERT_EQ(read_text_file(files.journal()), text.substr(0, size)) << "the journal was touched";
    ASSERT_NE(finished.record.find("\"status\": \"partial\""), std::string::npos);
    ASSERT_EQ(fs::exists(files.samples()), samples_h5_built());
  }
}

TEST(Recover, ATornTailIsPartOfWhatVerifyProtects) {
  const TemporaryFolder folder;
  const RunFiles files{folder.path() / "run"};
  fs::create_directories(files.folder);
  const std::string text = short_run().text();
  const std::string torn = text.substr(0, text.size() - 10);
  overwrite(files.journal(), torn);
  recover(files.folder);
  EXPECT_TRUE(verify(files.folder).ok());
  std::string flipped = torn;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  overwrite(files.journal(), flipped);
  EXPECT_FALSE(verify(files.folder).ok());
}

TEST(Recover, OfACompleteRunChangesNothing) {
  const StoredRun stored(fixed_run());
  const std::string before = read_text_file(stored.files.record());
  recover(stored.files.folder);
  EXPECT_EQ(read_text_file(stored.files.record()), before);
}

TEST(Recover, KeepsTheGoodLinesOfADamagedJournal) {
  const StoredRun stored(short_run());
  const std::string good = read_text_file(stored.files.journal());
  std::string text = good;
  text[text.find("\"n\":1,") + 4] = '7';
  overwrite(stored.files.journal(), text);
  const FinishedRun finished = recover(stored.files.folder);
  ASSERT_FALSE(finished.warnings.empty());
  EXPECT_NE(finished.warnings.front().find("is damaged"), std::string::npos);
  const std::string kept = read_text_file(stored.files.journal());
  EXPECT_TRUE(good.starts_with(kept));
  EXPECT_NE(kept.find("\"n\":0,"), std::string::npos);
  EXPECT_EQ(read_text_file(stored.files.folder / "damaged-1.jsonl"), text);
  EXPECT_TRUE(verify(stored.files.folder).ok());
  EXPECT_NE(finished.record.find("\"status\": \"partial\""), std::string::npos);
}

TEST(Recover, NamesAMissingJournal) {
  const StoredRun stored(short_run());
  fs::remove(stored.files.journal());
  EXPECT_THROW(recover(stored.files.folder), UserError);
}

TEST(Verify, SaysThatSamplesAreAbsent) {
  const StoredRun stored(short_run());
  fs::remove(stored.files.samples());
  const Verification result = verify(stored.files.folder);
  EXPECT_TRUE(result.ok());
  for (const VerifyCheck& check : result.checks) {
    if (check.name != "samples_h5") continue;
    EXPECT_NE(check.actual.find("absent"), std::string::npos) << check.actual;
    return;
  }
  FAIL() << "no check of samples.h5";
}

TEST(Verify, JsonHoldsTheRecordsValuesAsValues) {
  const StoredRun stored(short_run());
  const auto json = nlohmann::json::parse(verify(stored.files.folder).to_json());
  for (const auto& check : json.at("checks")) {
    const std::string name = check.at("name");
    if (name == "validity" || name == "operations") {
      EXPECT_TRUE(check.at("expected").is_object()) << check;
    }
    if (name == "status") {
      EXPECT_EQ(check.at("actual"), "complete");
    }
    EXPECT_EQ(check.at("expected").type(), check.at("actual").type()) << check;
  }
}

TEST(Recover, IsNamedWhereARecordIsMissing) {
  const StoredRun stored(short_run());
  fs::remove(stored.files.record());
  const std::string hint = "`heteroperf recover " + stored.files.folder.string() + "`";
  try {
    show(stored.files.folder, DocumentForm::console, {});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(hint), std::string::npos) << error.what();
  }
  EXPECT_NE(failures(verify(stored.files.folder)).find(hint), std::string::npos);
}

// ---------------------------------------------------------------- suites

struct ASuite {
  TemporaryFolder folder;
  SuitePlan plan = whole_suite();
  ASuite() {
    write_suite_record(folder.path(), plan);
    part_of_suite(short_run(), plan, "image").write_finished(part("image"));
    part_of_suite(search_run(), plan, "automl-image").write_finished(part("automl-image"));
    part_of_suite(short_run(), plan, "llm").write_finished(part("llm"));
    write_suite_record(folder.path(), plan);
  }
  RunFiles part(const std::string& workload) const { return {folder.path() / workload}; }
};

TEST(VerifySuite, AcceptsWhatWasWritten) {
  const ASuite stored;
  const Verification verification = verify(stored.folder.path());
  EXPECT_TRUE(verification.ok()) << failures(verification);
  EXPECT_EQ(verification.checks.front().name, "image/journal_chain");
  EXPECT_EQ(verification.checks.back().name, "suite_bytes");
}

TEST(VerifySuite, NoticesEveryFlippedByteOfItsRecord) {
  const ASuite stored;
  for (const std::string& workload : stored.plan.workloads) {
    fs::remove(stored.part(workload).samples());
  }
  const fs::path path = RunFiles{stored.folder.path()}.suite();
  const std::string good = read_text_file(path);
  for (std::size_t i = 0; i < good.size(); ++i) {
    put_byte(path, i, static_cast<char>(good[i] ^ 4));
    ASSERT_FALSE(verify(stored.folder.path()).ok()) << i;
    put_byte(path, i, good[i]);
  }
  ASSERT_TRUE(verify(stored.folder.path()).ok());
}

TEST(VerifySuite, NoticesAChangeInAWorkload) {
  const ASuite stored;
  const RunFiles part = stored.part("automl-image");
  std::string text = read_text_file(part.journal());
  text[text.size() / 2] ^= 1;
  overwrite(part.journal(), text);
  EXPECT_TRUE(fails(verify(stored.folder.path()), "automl-image/journal_chain"));
  fs::remove_all(part.folder);
  EXPECT_TRUE(fails(verify(stored.folder.path()), "suite_bytes"));
}

TEST(VerifySuite, HoldsItToItsJournals) {
  const ASuite stored;
  SuitePlan trimmed = stored.plan;
  trimmed.workloads.erase(trimmed.workloads.begin());
  write_suite_record(stored.folder.path(), trimmed);
  const Verification verification = verify(stored.folder.path());
  EXPECT_TRUE(fails(verification, "suite_workloads")) << failures(verification);
  EXPECT_FALSE(fails(verification, "suite_bytes")) << "it is what this program would write";
}

TEST(VerifySuite, ARunSaysWhichWorkloadItIs) {
  const ASuite stored;
  SampleRun other = part_of_suite(short_run(), stored.plan, "llm");
  other.last<WorkloadEvent>().name = "image";
  other.write_finished(stored.part("llm"));
  EXPECT_TRUE(fails(verify(stored.folder.path()), "llm/suite_workload"));
  EXPECT_FALSE(first_wrong_content(other.journal(), stored.part("llm").folder).empty());
}

TEST(VerifySuite, SaysThatOlderJournalsTellNothing) {
  const ASuite stored;
  for (const std::string& workload : stored.plan.workloads) {
    short_run().write_finished(stored.part(workload));
  }
  write_suite_record(stored.folder.path(), stored.plan);
  const Verification verification = verify(stored.folder.path());
  EXPECT_TRUE(verification.ok()) << failures(verification);
  for (const VerifyCheck& check : verification.checks) {
    if (check.name == "suite_workloads") {
      EXPECT_EQ(check.actual, "not told: an older program wrote the journal in image");
    }
  }
}

Error refusal_of(const fs::path& folder) {
  try {
    recover(folder);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "it was recovered";
  return {ErrorKind::internal, {{"nothing", "", ""}}};
}

TEST(RecoverSuite, MakesNothingOfOtherWorkloads) {
  const ASuite stored;
  const fs::path file = RunFiles{stored.folder.path()}.suite();
  SuitePlan trimmed = stored.plan;
  trimmed.workloads.erase(trimmed.workloads.begin());
  const std::string forged = write_suite_record(stored.folder.path(), trimmed);
  const Error refused = refusal_of(stored.folder.path());
  EXPECT_EQ(refused.kind(), ErrorKind::verification);
  EXPECT_NE(std::string(refused.what()).find("as the journal in automl-image says"),
            std::string::npos)
      << refused.what();
  EXPECT_EQ(read_text_file(file), forged);
  fs::remove(file);
  recover(stored.folder.path());
  EXPECT_EQ(read_text_file(file), build_suite_record(stored.folder.path(), stored.plan));
  EXPECT_TRUE(verify(stored.folder.path()).ok());
}

TEST(RecoverSuite, DamagedPlansAreMovedAwayFirst) {
  const ASuite stored;
  overwrite(RunFiles{stored.folder.path()}.suite(), "{");
  const std::string said = refusal_of(stored.folder.path()).what();
  EXPECT_NE(said.find("suite.json"), std::string::npos) << said;
  EXPECT_NE(said.find("Move it away"), std::string::npos) << said;
}

TEST(RecoverSuite, IsNamedForAPartThatWasKilled) {
  const ASuite stored;
  fs::remove(stored.part("image").record());
  const std::string hint = "`heteroperf recover " + stored.folder.path().string() + "`";
  EXPECT_NE(failures(verify(stored.folder.path())).find(hint), std::string::npos)
      << failures(verify(stored.folder.path()));
}

TEST(RecoverSuite, RebuildsWhatIsThere) {
  const TemporaryFolder folder;
  const SuitePlan plan = whole_suite();
  write_suite_record(folder.path(), plan);
  part_of_suite(short_run(), plan, "image").write_finished({folder.path() / "image"});
  SampleRun killed = part_of_suite(search_run(), plan, "automl-image");
  killed.lines.resize(20);
  killed.write({folder.path() / "automl-image"});
  const FinishedRun finished = recover(folder.path());
  const Verification verification = verify(folder.path());
  EXPECT_TRUE(verification.ok()) << failures(verification);
  EXPECT_NE(finished.warnings.back().find("llm was not started"), std::string::npos);
}

}  // namespace
}  // namespace heteroperf
