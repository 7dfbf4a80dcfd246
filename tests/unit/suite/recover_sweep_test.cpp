#include <gtest/gtest.h>

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/comparison/run_set.hpp"
#include "results/record/verify.hpp"
#include "results/scaling/sweep_report.hpp"
#include "suite/sweep/sweep_folder.hpp"
#include "suite/sweep/sweep_session.hpp"
#include "tests/unit/suite/lost_sweep.hpp"

namespace heteroperf {
namespace {

void expect_same_plan(const SweepIndex& rebuilt, const SweepIndex& index) {
  EXPECT_EQ(rebuilt.sweep_id, index.sweep_id);
  EXPECT_EQ(rebuilt.created_utc, index.created_utc);
  EXPECT_EQ(rebuilt.command, index.command);
  EXPECT_EQ(rebuilt.axes, index.axes);
  EXPECT_EQ(rebuilt.points, index.points);
  EXPECT_EQ(rebuilt.repeats, index.repeats);
  EXPECT_EQ(rebuilt.first_seed, index.first_seed);
  ASSERT_EQ(rebuilt.runs.size(), index.runs.size());
  for (std::size_t i = 0; i < index.runs.size(); ++i) {
    const SweepRun &mine = rebuilt.runs[i], &was = index.runs[i];
    EXPECT_EQ(std::tie(mine.folder, mine.number, mine.point, mine.repeat, mine.seed),
              std::tie(was.folder, was.number, was.point, was.repeat, was.seed));
  }
}

TEST_F(RecoverSweepTest, TheRunsTellThePlan) {
  const SweepIndex index = planned({"ranks=1,2", "schedule=1f1b,zb-h1"}, 3, "7");
  store_all(index);
  const SweepIndex again = rebuilt();
  expect_same_plan(again, index);
  EXPECT_EQ(again.count(SweepRunState::complete), 12u);
  EXPECT_EQ(again.runs[5].exit_code, 0);
  EXPECT_NE(recovered_.done.find("was missing"), std::string::npos);
  EXPECT_TRUE(warnings().empty()) << warnings();
}

TEST_F(RecoverSweepTest, OtherVerbsTakeARebuiltSweep) {
  const SweepIndex index = planned({"ranks=1,2"}, 2);
  store_all(index);
  rebuilt();
  const Verification verification = verify(sweep());
  EXPECT_TRUE(verification.ok()) << verification.to_json();
  const SweepReport report = report_sweep(sweep());
  EXPECT_EQ(report.rows.size(), 2u);
  EXPECT_NE(sweep_report_text(report, DocumentForm::console).find("not known: runs after 004"),
            std::string::npos);
  EXPECT_EQ(complete_points(sweep()).size(), 2u);
  EXPECT_EQ(find_runs({sweep()}).runs.size(), 4u);
}

TEST_F(RecoverSweepTest, WhatWasPlannedBesidesIsNeverClaimed) {
  const SweepIndex index = planned({"ranks=1,2,4"}, 2);
  for (const std::size_t number : {0u, 2u}) store(index, number);
  const SweepIndex again = rebuilt();
  EXPECT_EQ(again.runs.size(), 2u);
  EXPECT_EQ(again.points.size(), 2u);
  EXPECT_EQ(again.repeats, 1u);
  EXPECT_FALSE(again.done());
  EXPECT_NE(sweep_json_text(again).find("\"status\": \"partial\""), std::string::npos);
  EXPECT_NE(unknown(again).find("what 002 was to be"), std::string::npos) << unknown(again);
  EXPECT_NE(unknown(again).find("after 003"), std::string::npos);
  EXPECT_EQ(sweep_json_text(parse_sweep(sweep_json_text(again), "x")), sweep_json_text(again));
}

TEST_F(RecoverSweepTest, KeysThatChangeTogetherStayOneAxis) {
  const SweepIndex index = planned({"ranks:micro-batches=1:4,2:2,4:1", "precision=fp32,bf16"});
  store_all(index);
  expect_same_plan(rebuilt(), index);
}

TEST_F(RecoverSweepTest, RepetitionsOfOnePointHaveNoAxis) {
  const SweepIndex index = planned({}, 3);
  store_all(index);
  const SweepIndex again = rebuilt();
  expect_same_plan(again, index);
  EXPECT_TRUE(again.axes.empty());
}

TEST_F(RecoverSweepTest, ADamagedIndexIsKeptAside) {
  const SweepIndex index = planned({"ranks=1,2"});
  store_all(index);
  const std::string whole = sweep_json_text(index);
  std::string edited = whole;
  edited.replace(edited.find("\"repeats\": 1"), 12, "\"repeats\": 2");
  std::size_t kept = 0;
  for (const std::string& text : {std::string(), whole.substr(0, 90), edited}) {
    std::ofstream(sweep_file(sweep())) << text;
    const SweepIndex again = rebuilt();
    EXPECT_EQ(again.runs.size(), 2u);
    EXPECT_EQ(again.repeats, 1u);
    kept += text.empty() ? 0 : 1;
    ASSERT_EQ(again.set_aside.size(), kept) << text;
    if (text.empty()) continue;
    EXPECT_EQ(read_text_file(sweep() / again.set_aside.back().folder), text);
    EXPECT_TRUE(verify(sweep()).ok());
  }
}

TEST_F(RecoverSweepTest, ASoundIndexKeepsWhatItPlans) {
  SweepIndex index = planned({"ranks=1,2"}, 2);
  store(index, 0);
  index.runs[0].state = SweepRunState::running;
  index.runs[1].state = SweepRunState::failed;
  index.runs[1].reason = "the reason";
  write_sweep(sweep(), index);
  const SweepIndex again = rebuilt();
  expect_same_plan(again, index);
  EXPECT_FALSE(again.rebuilt());
  EXPECT_EQ(again.runs[0].state, SweepRunState::complete);
  EXPECT_EQ(again.runs[1].reason, "the reason");
  EXPECT_EQ(again.runs[3].state, SweepRunState::waiting);
}

TEST_F(RecoverSweepTest, AnIndexIndentedOtherwiseIsSound) {
  const SweepIndex index = planned({"ranks=1,2"}, 2);
  store(index, 0);
  write_sweep(sweep(), index);
  edit_file(sweep_file(sweep()), "\"repeats\": 2", "\"repeats\":   2");
  EXPECT_FALSE(verify(sweep()).ok());
  EXPECT_EQ(rebuilt().runs.size(), 4u);
  EXPECT_TRUE(verify(sweep()).ok());
}

TEST_F(RecoverSweepTest, RunsThatWereKilledGetTheirRecords) {
  const SweepIndex index = planned({"ranks=1,2,4"});
  store(index, 0);
  sample(index, 1, home(index, 1)).write(RunFiles{home(index, 1)});
  SampleRun killed = sample(index, 2, home(index, 2));
  killed.erase_all<StopEvent>();
  killed.write(RunFiles{home(index, 2)});
  const SweepIndex again = rebuilt();
  EXPECT_EQ(again.runs[1].state, SweepRunState::complete);
  EXPECT_EQ(again.runs[2].state, SweepRunState::interrupted);
  EXPECT_EQ(again.runs[2].reason, "its record is partial");
  EXPECT_TRUE(fs::exists(home(index, 2) / "record.json"));
}

TEST_F(RecoverSweepTest, AFailedRunSaysHowItEnded) {
  const SweepIndex index = planned({"ranks=1,2"});
  store(index, 0);
  SampleRun failed = sample(index, 1, home(index, 1));
  failed.last<StopEvent>() = {RunStatus::failed, "rank 1 has gone", 6};
  failed.write_finished(RunFiles{home(index, 1)});
  const auto written = fs::last_write_time(home(index, 1) / "record.json");
  const SweepRun run = rebuilt().runs[1];
  EXPECT_EQ(fs::last_write_time(home(index, 1) / "record.json"), written);
  EXPECT_EQ(run.state, SweepRunState::failed);
  EXPECT_EQ(run.exit_code, 6);
  EXPECT_EQ(run.reason, "rank 1 has gone");
}

TEST_F(RecoverSweepTest, ARunWithADamagedFirstLineIsLeftOut) {
  const SweepIndex index = planned({"ranks=1,2,4"}, 2);
  store_all(index);
  for (const std::size_t number : {0u, 3u, 4u}) {
    std::ofstream(home(index, number) / "journal.jsonl") << "no journal\n";
    fs::remove(home(index, number) / "record.json");
  }
  const SweepIndex again = rebuilt();
  EXPECT_EQ(again.points.size(), 3u);
  EXPECT_EQ(again.first_seed, index.first_seed);
  EXPECT_EQ(again.count(SweepRunState::complete), 3u);
  for (const char* part : {"what 001 was to be", "what 004 to 005 was to be"}) {
    EXPECT_NE(unknown(again).find(part), std::string::npos) << unknown(again);
  }
  EXPECT_NE(warnings().find(index.runs[3].folder + " is left out"), std::string::npos);
  EXPECT_NE(warnings().find("not a journal"), std::string::npos) << warnings();
}

TEST_F(RecoverSweepTest, DamageFurtherOnDoesNotHideTheCommand) {
  const SweepIndex index = planned({"data=text:/a-b,text:/a/b"});
  store_all(index);
  edit_file(home(index, 1) / "journal.jsonl", "\"kind\":\"step\"", "\"kind\":\"stop\"");
  const SweepIndex again = rebuilt();
  expect_same_plan(again, index);
  EXPECT_FALSE(verify(sweep()).ok());
}

TEST_F(RecoverSweepTest, WhatIsNoRunOfTheSweepIsLeftOut) {
  const SweepIndex index = planned({"ranks=1,2"});
  store_all(index);
  store_run(sweep(), {.number = 50});
  fs::rename(store_run(folder_.path(), {.number = 51}), sweep() / "003-ranks=4-seed=1");
  fs::copy(home(index, 1), sweep() / "004-ranks=2-seed=1", fs::copy_options::recursive);
  fs::create_directories(sweep() / "aside");
  fs::copy(home(index, 1), sweep() / "aside" / (index.runs[1].folder + "-1"),
           fs::copy_options::recursive);
  const SweepIndex again = rebuilt();
  expect_same_plan(again, index);
  EXPECT_NE(warnings().find("003-ranks=4-seed=1 is left out: its journal names no sweep"),
            std::string::npos)
      << warnings();
  EXPECT_NE(warnings().find("it was 002-ranks=2-seed=1 when it was run"), std::string::npos);
  ASSERT_EQ(again.set_aside.size(), 1u);
  EXPECT_EQ(again.set_aside[0].was, "not known");
}

TEST_F(RecoverSweepTest, FoldersOfNoSweepAreRefusedAndStayAsTheyAre) {
  fs::create_directories(sweep());
  EXPECT_EQ(damaged_sweep_of(sweep()), std::nullopt);
  store_run(sweep(), {.number = 1});
  store_run(sweep(), {.number = 2});
  EXPECT_EQ(damaged_sweep_of(sweep()), std::nullopt);
  std::ofstream(sweep_file(sweep())) << "{";
  EXPECT_EQ(damaged_sweep_of(sweep_file(sweep())), sweep());
  EXPECT_NE(complaint().find("no folder in it is named as a sweep's run"), std::string::npos)
      << complaint();
  EXPECT_EQ(read_text_file(sweep_file(sweep())), "{");
  fs::rename(sweep() / "run-001", sweep() / "001-mine");
  EXPECT_NE(complaint().find("no sweep started it"), std::string::npos) << complaint();
}

TEST_F(RecoverSweepTest, RunsOfSeveralSweepsAreRefused) {
  const SweepIndex index = planned({"ranks=1,2"});
  store_all(index);
  SweepIndex other = planned({"ranks=1,2,4"}, 1);
  other.command.insert(other.command.end(), {"--set", "measure.steps=3"});
  store(other, 2);
  EXPECT_NE(complaint().find("are of several sweeps"), std::string::npos) << complaint();
  EXPECT_NE(complaint().find("measure.steps=3"), std::string::npos) << complaint();
  fs::remove_all(home(other, 2));
  store(planned({"ranks=1,2", "schedule=gpipe,1f1b"}), 2);
  EXPECT_NE(complaint().find("--sweep scale.ranks --sweep plan.schedule'"), std::string::npos)
      << complaint();
  EXPECT_FALSE(fs::exists(sweep_file(sweep())));
}

TEST_F(RecoverSweepTest, ASweepThatRunsIsLeftAlone) {
  store_all(planned({"ranks=1,2"}));
  const FolderLock lock(sweep(), "");
  EXPECT_NE(complaint().find("another process"), std::string::npos);
}

/// A sweep that goes on with a rebuilt index, its runs copies of a stored one.
class GoOnTest : public RecoverSweepTest {
 protected:
  SweepIndex go_on(const SweepIndex& wanted) {
    store_run(folder_.path(), {.number = 90});
    SweepProgram program;
    program.command = [&](const SweepRun&, const fs::path& home) {
      ++started_;
      return fmt::format("cp -r {}/run-090 '{}'", folder_.path().string(), home.string());
    };
    program.deadline_s = 60;
    program.say = [](const std::string&) {};
    return run_sweep(sweep(), wanted, program);
  }
  int started_ = 0;
};

TEST_F(GoOnTest, TheSameOptionsBringThePlanBack) {
  const SweepIndex index = planned({"ranks=1,2"}, 2);
  for (const std::size_t number : {0u, 2u}) store(index, number);
  const std::string id = rebuilt().sweep_id;
  const SweepIndex whole = go_on(index);
  expect_same_plan(whole, index);
  EXPECT_EQ(started_, 2);
  EXPECT_TRUE(read_sweep(sweep()).done());
  EXPECT_EQ(whole.sweep_id, id);
}

TEST_F(GoOnTest, OtherOptionsAreRefused) {
  store_all(planned({"ranks=1,2"}, 2));
  const SweepIndex before = rebuilt();
  const auto complaint_of = [&](const SweepIndex& wanted) -> std::string {
    try {
      go_on(wanted);
      return "";
    } catch (const UserError& error) {
      return error.what();
    }
  };
  EXPECT_NE(complaint_of(planned({"ranks=2,1"}, 2)).find("the run 001-ranks=1-seed=1 is none"),
            std::string::npos);
  EXPECT_NE(complaint_of(planned({"ranks=1,2"}, 1)).find("the run 003-"), std::string::npos);
  SweepIndex longer = planned({"ranks=1,2"}, 2);
  longer.command.push_back("--rank-logs");
  EXPECT_NE(complaint_of(longer).find("the runs' options differ"), std::string::npos);
  EXPECT_EQ(started_, 0);
  EXPECT_EQ(sweep_json_text(read_sweep(sweep())), sweep_json_text(before));
}

TEST_F(GoOnTest, ALostIndexIsToldBeforeAnythingRuns) {
  const SweepIndex index = planned({"ranks=1,2"});
  store(index, 0);
  try {
    go_on(index);
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("heteroperf recover"), std::string::npos);
  }
  EXPECT_EQ(started_, 0);
}

}  // namespace
}  // namespace heteroperf
