#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "metrics/base/text_file.hpp"
#include "results/comparison/run_set.hpp"
#include "results/record/verify.hpp"
#include "results/scaling/sweep_report.hpp"
#include "results/text/sha256.hpp"
#include "suite/sweep/sweep_folder.hpp"
#include "suite/sweep/sweep_session.hpp"
#include "tests/unit/suite/lost_sweep.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

/// Sweeps whose index or runs are not what this program wrote.
class DamagedSweepTest : public RecoverSweepTest {
 protected:
  std::string stored_text() const { return read_text_file(sweep_file(sweep())); }
  /// What `verify` finds wrong, a line each.
  std::string wrong_checks() const {
    std::string wrong;
    for (const VerifyCheck& check : verify(sweep()).checks) {
      if (!check.ok) wrong += check.name + ": " + check.actual + "\n";
    }
    return wrong;
  }
  /// As a program with more keys writes it.
  void write_gained(const SweepIndex& index) const {
    Json json = Json::parse(sweep_json_text(index));
    json.erase("sha256");
    json["gained"] = {{"watts", 300.5}};
    json["runs"][0]["gained"] = "more";
    json["sha256"] = sha256_hex(json.dump());
    std::ofstream(sweep_file(sweep())) << json.dump(2) << '\n';
  }
  /// Every run's first line names no run.
  void take_ids(const SweepIndex& index, std::size_t first) const {
    for (std::size_t i = first; i < index.runs.size(); ++i) {
      SampleRun run = sample(index, i, home(index, i));
      run.last<StartEvent>().run_id.clear();
      fs::remove_all(home(index, i));
      run.write(RunFiles{home(index, i)});
    }
  }
};

TEST_F(DamagedSweepTest, AnIndexOfAnotherVersionIsRefusedAndStays) {
  const SweepIndex index = planned({"ranks=1,2"}, 2);
  store(index, 0);
  sample(index, 1, home(index, 1)).write(RunFiles{home(index, 1)});
  write_sweep(sweep(), index);
  edit_file(sweep_file(sweep()), "\"_version\": 1", "\"_version\": 2");
  const std::string before = stored_text();
  EXPECT_NE(complaint().find("was made by another version of the program"), std::string::npos)
      << complaint();
  EXPECT_EQ(stored_text(), before);
  EXPECT_FALSE(fs::exists(sweep() / "aside"));
  EXPECT_FALSE(fs::exists(home(index, 1) / "record.json"));
}

TEST_F(DamagedSweepTest, ARunStandsAtItsOwnPoint) {
  SweepIndex index = planned({"ranks=1,2"});
  store_all(index);
  for (SweepRun& run : index.runs) run.state = SweepRunState::complete;
  write_sweep(sweep(), index);
  ASSERT_TRUE(verify(sweep()).ok());
  fs::rename(home(index, 0), sweep() / "aside");
  fs::rename(home(index, 1), home(index, 0));
  fs::rename(sweep() / "aside", home(index, 1));
  EXPECT_EQ(wrong_checks(),
            "001-ranks=1-seed=1/point: a run with another scale.ranks\n"
            "002-ranks=2-seed=1/point: a run with another scale.ranks\n");
}

TEST_F(DamagedSweepTest, AGainedKeyIsNoDamage) {
  SweepIndex index = planned({"ranks=1,2"});
  store_all(index);
  for (SweepRun& run : index.runs) run.state = SweepRunState::complete;
  write_gained(index);
  const std::string before = stored_text();
  const Verification verification = verify(sweep());
  EXPECT_TRUE(verification.ok()) << verification.to_json();
  EXPECT_FALSE(rebuilt().rebuilt());
  EXPECT_NE(recovered_.done.find("is sound"), std::string::npos) << recovered_.done;
  EXPECT_EQ(stored_text(), before);
}

TEST_F(DamagedSweepTest, AnEditedGainedKeyIsDamage) {
  const SweepIndex index = planned({"ranks=1,2"});
  store_all(index);
  write_gained(index);
  edit_file(sweep_file(sweep()), "300.5", "300.6");
  EXPECT_FALSE(verify(sweep()).ok());
  EXPECT_TRUE(rebuilt().rebuilt());
}

TEST_F(DamagedSweepTest, WhatASealedIndexClaimsIsStillVerified) {
  const SweepIndex index = planned({"ranks=1,2"});
  store(index, 0);
  Json json = Json::parse(sweep_json_text(index));
  json.erase("sha256");
  json["status"] = "complete";
  json["sha256"] = sha256_hex(json.dump());
  std::ofstream(sweep_file(sweep())) << json.dump(2) << '\n';
  EXPECT_FALSE(verify(sweep()).ok());
}

TEST_F(DamagedSweepTest, AGainedKeyStaysWhenRunsAreNoted) {
  const SweepIndex index = planned({"ranks=1,2"});
  store_all(index);
  write_gained(index);
  EXPECT_EQ(rebuilt().count(SweepRunState::complete), 2u);
  EXPECT_EQ(Json::parse(stored_text()).at("gained").at("watts"), 300.5);
  EXPECT_TRUE(verify(sweep()).ok());
}

TEST_F(DamagedSweepTest, SeedsBeyondDoublesAreSealedToo) {
  const SweepIndex index = planned({"ranks=1,2"}, 1, "18446744073709551615");
  store_all(index);
  write_sweep(sweep(), index);
  edit_file(sweep_file(sweep()), "\"repeats\": 1", "\"repeats\":   1");
  EXPECT_FALSE(rebuilt().rebuilt());
  EXPECT_TRUE(verify(sweep()).ok());
}

TEST_F(DamagedSweepTest, RunsThatNameNoIdTellNothing) {
  const SweepIndex index = planned({"ranks=1,2"});
  store_all(index);
  take_ids(index, 0);
  EXPECT_NE(complaint().find("tells of a sweep"), std::string::npos) << complaint();
  EXPECT_NE(complaint().find("run_id"), std::string::npos) << complaint();
}

TEST_F(DamagedSweepTest, ARunThatNamesNoIdIsLeftOut) {
  const SweepIndex index = planned({"ranks=1,2"});
  store_all(index);
  take_ids(index, 1);
  EXPECT_EQ(rebuilt().runs.size(), 1u);
  EXPECT_EQ(swept_runs(sweep())[1].place, std::nullopt);
  EXPECT_NE(warnings().find("002-ranks=2-seed=1 is left out"), std::string::npos) << warnings();
}

TEST_F(DamagedSweepTest, ARunOfAnotherSweepIsFoundAtTheSamePoint) {
  SweepIndex index = planned({"ranks=1,2"}), other = planned({"ranks=1,2"});
  other.sweep_id = "sweep-of-yesterday";
  store(index, 0);
  store(other, 1);
  for (SweepRun& run : index.runs) run.state = SweepRunState::complete;
  write_sweep(sweep(), index);
  EXPECT_EQ(wrong_checks(), "002-ranks=2-seed=1/point: a run of sweep-of-yesterday\n");
}

TEST_F(DamagedSweepTest, ARunOfAnotherPlaceIsFoundThoughItsSettingsAreThese) {
  SweepIndex index = planned({"data=text:/a,text:/b"});  // paths that configurations replace
  store_all(index);
  for (SweepRun& run : index.runs) run.state = SweepRunState::complete;
  fs::rename(home(index, 0), sweep() / "between");
  fs::rename(home(index, 1), home(index, 0));
  fs::rename(sweep() / "between", home(index, 1));
  write_sweep(sweep(), index);
  EXPECT_EQ(wrong_checks(),
            "001-source=text--a-seed=1/point: run 2 of the sweep, source=text:/b seed=1\n"
            "002-source=text--b-seed=1/point: run 1 of the sweep, source=text:/a seed=1\n");
}

TEST_F(DamagedSweepTest, ARunThatNamesNoPlaceIsNoneOfThisSweep) {
  SweepIndex index = planned({"ranks=1,2"});
  store(index, 0);
  store_older(index, 1);
  for (SweepRun& run : index.runs) run.state = SweepRunState::complete;
  write_sweep(sweep(), index);
  EXPECT_EQ(wrong_checks(), "002-ranks=2-seed=1/point: a run whose journal names no sweep\n");
}

/// A sweep of a program whose runs did not name their places.
class OlderSweepTest : public DamagedSweepTest {
 protected:
  OlderSweepTest() {
    for (std::size_t i = 0; i < index_.runs.size(); ++i) store_older(index_, i);
    for (SweepRun& run : index_.runs) {
      run.number = 0;
      run.state = SweepRunState::complete;
    }
    write_sweep(sweep(), index_);
  }

  SweepIndex index_ = planned({"ranks=1,2"});
};

TEST_F(OlderSweepTest, ItsIndexIsReadAndItsRunsAreHeldToTheirSettings) {
  EXPECT_EQ(stored_text().find("\"number\""), std::string::npos);
  const Verification verification = verify(sweep());
  EXPECT_TRUE(verification.ok()) << verification.to_json();
  EXPECT_NE(verification.to_json().find("names no place"), std::string::npos);
  EXPECT_FALSE(rebuilt().rebuilt());
  EXPECT_EQ(report_sweep(sweep()).rows.size(), 2u);
  fs::rename(home(index_, 0), sweep() / "between");
  fs::rename(home(index_, 1), home(index_, 0));
  fs::rename(sweep() / "between", home(index_, 1));
  EXPECT_FALSE(verify(sweep()).ok());
}

TEST_F(OlderSweepTest, WithoutItsIndexItIsRefusedWithWhatIsMissing) {
  fs::remove(sweep_file(sweep()));
  EXPECT_EQ(damaged_sweep_of(sweep()), sweep());
  for (const char* part : {"tells of a sweep", "001-ranks=1-seed=1: its journal names no sweep",
                           "an older program", "run the sweep anew"}) {
    EXPECT_NE(complaint().find(part), std::string::npos) << complaint();
  }
  EXPECT_FALSE(fs::exists(sweep_file(sweep())));
}

TEST_F(OlderSweepTest, ItGoesOnAndTheRunsOfTodayNameTheirPlaces) {
  fs::remove_all(home(index_, 1));
  const SweepIndex wanted = planned({"ranks=1,2"});
  SweepProgram program;
  program.command = [&](const SweepRun& run, const fs::path& run_home) {
    EXPECT_EQ(run.number, 2u);
    const fs::path made = folder_.path() / "made" / run.folder;
    const SweepIndex begun = read_sweep(sweep());
    sample(begun, 1, run_home).write_finished(RunFiles{made});
    return fmt::format("mv '{}' '{}'", made.string(), run_home.string());
  };
  program.deadline_s = 60;
  program.say = [](const std::string&) {};
  const SweepIndex whole = run_sweep(sweep(), wanted, program);
  EXPECT_TRUE(whole.done());
  EXPECT_EQ(whole.runs[0].number, 0u);
  EXPECT_EQ(whole.runs[1].number, 2u);
  EXPECT_EQ(wrong_checks(), "");
}

TEST_F(DamagedSweepTest, TheOldIndexStaysUntilTheNewOneIsWritten) {
  store_all(planned({"ranks=1,2"}));
  std::ofstream(sweep_file(sweep())) << "{";
  const fs::path in_the_way = sweep() / fmt::format(".sweep.json.tmp-{}", getpid());
  fs::create_directories(in_the_way / "full");
  EXPECT_NE(complaint().find("cannot write"), std::string::npos) << complaint();
  EXPECT_EQ(stored_text(), "{");
  fs::remove_all(in_the_way);
  EXPECT_EQ(rebuilt().runs.size(), 2u);
  EXPECT_EQ(read_text_file(sweep() / "aside/sweep.json-1"), "{");
}

TEST_F(DamagedSweepTest, AFolderInTheIndexsPlaceIsMovedAside) {
  store_all(planned({"ranks=1,2"}));
  fs::create_directories(sweep_file(sweep()) / "full");
  EXPECT_EQ(rebuilt().runs.size(), 2u);
  EXPECT_TRUE(fs::is_directory(sweep() / "aside/sweep.json-1/full"));
}

TEST_F(DamagedSweepTest, ASweepThatRunsSaysWhatRecoverCanDo) {
  store_all(planned({"ranks=1,2"}));
  const FolderLock lock(sweep(), "");
  EXPECT_EQ(complaint().find("--out"), std::string::npos) << complaint();
  EXPECT_NE(complaint().find("try again"), std::string::npos) << complaint();
}

/// Root may read every folder, so nobody does it; false where nobody cannot be.
class Nobody {
 public:
  Nobody() : before_(geteuid()), is_(before_ != 0 || seteuid(65534) == 0) {}
  ~Nobody() {
    if (before_ == 0) is_ = seteuid(before_) != 0;
  }
  Nobody(const Nobody&) = delete;
  Nobody& operator=(const Nobody&) = delete;
  bool is() const { return is_; }

 private:
  uid_t before_;
  bool is_;
};

TEST_F(DamagedSweepTest, AFolderThatCannotBeReadIsWarnedOf) {
  const SweepIndex index = planned({"ranks=1,2,4"});
  store_all(index);
  for (const fs::path& path : {folder_.path(), sweep()}) {
    fs::permissions(path, fs::perms::all);
  }
  fs::permissions(home(index, 1), fs::perms::none);
  SweepIndex again;
  std::string why, skipped;
  bool nobody = false;
  {
    const Nobody reader;
    nobody = reader.is();
    EXPECT_NO_THROW(again = rebuilt());
    why = why_incomplete(home(index, 1));
    const RunSet found = find_runs({home(index, 1)});
    for (const SkippedEntry& one : found.skipped) skipped += one.reason;
  }
  fs::permissions(home(index, 1), fs::perms::owner_all);
  if (!nobody) GTEST_SKIP() << "no other user can be taken on";
  EXPECT_EQ(again.runs.size(), 2u);
  const std::string expected = "cannot be read (Permission denied)";
  for (const std::string& text : {why, skipped, warnings()}) {
    EXPECT_NE(text.find(expected), std::string::npos) << text;
  }
}

TEST_F(DamagedSweepTest, APathThatNoFileSystemTakesHasNoResult) {
  fs::create_directories(sweep());
  const fs::path path = sweep() / std::string(300, 'x');
  EXPECT_NE(why_incomplete(path).find("cannot be read"), std::string::npos);
  EXPECT_TRUE(journals_in(path).empty());
  EXPECT_EQ(damaged_sweep_of(path), std::nullopt);
}

}  // namespace
}  // namespace heteroperf
