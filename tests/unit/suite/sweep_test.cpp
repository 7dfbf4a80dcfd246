#include <gtest/gtest.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>

#include "metrics/base/error.hpp"
#include "results/scaling/sweep_report.hpp"
#include "suite/sweep/sweep_session.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

SweepRequest request(std::vector<std::string> sweeps, std::int64_t repeats = 1) {
  return {{{"workload", "llm", "workload"}}, true, std::move(sweeps), repeats};
}

/// What plan_sweep() says is wrong; empty where nothing is.
std::string complaint(const SweepRequest& asked) {
  try {
    plan_sweep(asked);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

TEST(SweepRequestTest, EveryCombinationIsAPoint) {
  const SweepIndex index = plan_sweep(request({"ranks=1,2", "schedule=1f1b,gpipe"}, 3));
  ASSERT_EQ(index.points.size(), 4u);
  EXPECT_EQ(index.runs.size(), 12u);
  EXPECT_EQ(point_text(index.points[1]), "ranks=1 schedule=gpipe");
  EXPECT_EQ(index.sweep_id.rfind("sweep-", 0), 0u);
}

TEST(SweepRequestTest, KeysChangeTogether) {
  const SweepIndex index = plan_sweep(request({"ranks:micro-batches=1:4,2:2,4:1"}));
  ASSERT_EQ(index.points.size(), 3u);
  EXPECT_EQ(point_text(index.points[2]), "ranks=4 micro_batches=1");
  EXPECT_EQ(index.axes,
            (std::vector<std::vector<std::string>>{{"scale.ranks", "batch.micro_batches"}}));
}

TEST(SweepRequestTest, WordsOfARunSayAllThatItIs) {
  SweepRequest asked = request({"optimizer.learning_rate=0.1"});
  asked.settings.push_back({"seed", "7", "--seed"});
  const SweepIndex index = plan_sweep(asked);
  EXPECT_EQ(sweep_run_words(index, index.runs[0], "/there"),
            (std::vector<std::string>{"run", "--quick", "--set", "workload=llm", "--set",
                                      "optimizer.learning_rate=0.1", "--set", "seed=7",
                                      "--no-color", "--out", "/there"}));
}

TEST(SweepRequestTest, EverythingWrongIsToldAtOnce) {
  const std::string all = complaint(request({"rank=1,2", "seed=1,2", "ranks:tp=1:2,3", "ranks"}));
  for (const char* part :
       {"Did you mean 'ranks'?", "--repeat N", "'3' has 1 value", "expected KEY=VALUE,VALUE"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part << '\n' << all;
  }
}

TEST(SweepRequestTest, BadValuesAreRefusedBeforeAnythingRuns) {
  EXPECT_NE(complaint(request({"ranks=1,x"})).find("at ranks=x"), std::string::npos);
  EXPECT_NE(complaint(request({"precision=fp32,fp8"})).find("fp8"), std::string::npos);
  EXPECT_NE(complaint(request({"ranks=1,2", "pp=2"})).find("does not fit 1 rank"),
            std::string::npos);
  EXPECT_NE(complaint(request({"ranks=1,1"})).find("twice"), std::string::npos);
  EXPECT_NE(complaint(request({"ranks=1,"})).find("empty"), std::string::npos);
  EXPECT_NE(complaint(request({"ranks=1", "ranks=2"})).find("swept twice"), std::string::npos);
  EXPECT_NE(complaint(request({"out=a,b"})).find("folder of its own"), std::string::npos);
  EXPECT_NE(complaint(request({}, 0)).find("--repeat 0"), std::string::npos);
  EXPECT_NE(complaint(request({"ranks=1,2,4,8,16,32,64,128,256,512,1024"}, 1000)).find("too many"),
            std::string::npos);
  SweepRequest twice = request({"ranks=1,2"});
  twice.settings.push_back({"scale.ranks", "4", "--ranks"});
  EXPECT_NE(complaint(twice).find("--ranks 4 and --sweep ranks exclude"), std::string::npos);
  SweepRequest traced = request({"ranks=1,2"});
  traced.settings.push_back({"trace", "t.json", "--trace"});
  EXPECT_NE(complaint(traced).find("one run"), std::string::npos);
}

/// Sweeps whose runs are copies of stored ones.
class SweepSessionTest : public ::testing::Test {
 protected:
  SweepSessionTest() {
    for (int i = 0; i < 6; ++i) store_run(folder_.path() / "stored", {.number = i});
    program_.command = [this](const SweepRun& run, const fs::path& home) {
      ++started_;
      if (run.folder.starts_with(broken_)) return broken_command_;
      return fmt::format("cp -r {}/stored/run-{:03} '{}'", folder_.path().string(),
                         run.repeat * 2 + run.point, home.string());
    };
    program_.deadline_s = 60;
    program_.say = [this](const std::string& line) { said_ += line + '\n'; };
  }
  SweepIndex run() { return run_sweep(sweep(), wanted_, program_); }
  fs::path sweep() const { return folder_.path() / "sweep"; }

  TemporaryFolder folder_;
  SweepIndex wanted_ = plan_sweep(request({"ranks=1,2"}, 2));
  SweepProgram program_;
  std::string broken_ = "none", broken_command_ = "false", said_;
  int started_ = 0;
};

TEST_F(SweepSessionTest, RunsAllAndHasNothingLeftToDo) {
  EXPECT_TRUE(run().done());
  EXPECT_EQ(started_, 4);
  EXPECT_EQ(find_runs({sweep()}).runs.size(), 4u);
  EXPECT_TRUE(run().done());
  EXPECT_EQ(started_, 4);
  EXPECT_EQ(report_sweep(sweep()).rows.size(), 2u);
}

TEST_F(SweepSessionTest, AFailureIsNotedAndRunAgainNextTime) {
  broken_ = "002";
  broken_command_ = "echo the words >&2; exit 6";
  const SweepIndex first = run();
  EXPECT_EQ(first.count(SweepRunState::complete), 3u);
  EXPECT_EQ(first.runs[1].state, SweepRunState::failed);
  EXPECT_EQ(first.runs[1].exit_code, 6);
  EXPECT_NE(first.runs[1].reason.find("the words"), std::string::npos);
  EXPECT_EQ(report_sweep(sweep()).unscored.size(), 1u);
  broken_ = "none";
  EXPECT_TRUE(run().done());
  EXPECT_EQ(started_, 5);
}

TEST_F(SweepSessionTest, ARunThatEndsWellWithoutARecordHasFailed) {
  broken_ = "001";
  broken_command_ = "true";
  const SweepIndex index = run();
  EXPECT_EQ(index.runs[0].state, SweepRunState::failed);
  EXPECT_NE(index.runs[0].reason.find("no folder"), std::string::npos);
  EXPECT_EQ(index.count(SweepRunState::complete), 3u);
}

TEST_F(SweepSessionTest, ARunThatHangsIsEndedAtItsLimit) {
  program_.deadline_s = 0.2;
  broken_ = "003";
  broken_command_ = "sleep 100";
  const SweepIndex index = run();
  EXPECT_EQ(index.runs[2].exit_code, 7);
  EXPECT_EQ(index.runs[2].state, SweepRunState::failed);
}

TEST_F(SweepSessionTest, AHalfWrittenRunIsSetAside) {
  EXPECT_TRUE(run().done());
  SweepIndex killed = read_sweep(sweep());
  killed.runs[2].state = SweepRunState::running;
  write_sweep(sweep(), killed);
  fs::remove(sweep() / killed.runs[2].folder / "record.json");
  EXPECT_TRUE(run().done());
  EXPECT_EQ(started_, 5);
  const SweepIndex index = read_sweep(sweep());
  ASSERT_EQ(index.set_aside.size(), 1u);
  EXPECT_EQ(index.set_aside[0].was, "running");
  EXPECT_TRUE(fs::exists(sweep() / index.set_aside[0].folder / "journal.jsonl"));
  EXPECT_EQ(find_runs({sweep()}).runs.size(), 4u);
}

TEST_F(SweepSessionTest, ARunThatFinishedAfterTheSweepWasKilledCounts) {
  EXPECT_TRUE(run().done());
  SweepIndex killed = read_sweep(sweep());
  killed.runs[3].state = SweepRunState::running;
  write_sweep(sweep(), killed);
  EXPECT_TRUE(run().done());
  EXPECT_EQ(started_, 4);
}

TEST_F(SweepSessionTest, OtherContentsOfTheFolderAreRefused) {
  EXPECT_TRUE(run().done());
  wanted_ = plan_sweep(request({"ranks=1,2,4"}, 3));
  try {
    run();
    ADD_FAILURE();
  } catch (const UserError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("the points differ"), std::string::npos) << what;
    EXPECT_NE(what.find("the repetitions differ: '3' now, '2' before"), std::string::npos) << what;
  }
  EXPECT_THROW(run_sweep(folder_.path() / "stored", wanted_, program_), UserError);
}

TEST_F(SweepSessionTest, TwoProcessesDoNotWorkOnOneSweep) {
  EXPECT_TRUE(run().done());
  const int other = open(sweep().c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  EXPECT_THROW(run(), UserError);
  close(other);
  EXPECT_NO_THROW(run());
}

}  // namespace
}  // namespace heteroperf
