#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "metrics/base/text_file.hpp"
#include "results/comparison/run_set.hpp"
#include "results/sha256.hpp"
#include "results/verify.hpp"
#include "suite/sweep/folder_lock.hpp"
#include "suite/sweep/run_outcome.hpp"
#include "suite/sweep/swept_runs.hpp"
#include "tests/unit/suite/lost_sweep.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

/// Sweeps whose index or runs are not what this program wrote.
class DamagedSweepTest : public RecoverSweepTest {
 protected:
  std::string stored_text() const { return read_text_file(sweep_file(sweep())); }
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
  std::string wrong;
  for (const VerifyCheck& check : verify(sweep()).checks) {
    if (!check.ok) wrong += check.name + ": " + check.actual + "\n";
  }
  EXPECT_EQ(wrong,
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

TEST_F(DamagedSweepTest, ARunThatNamesNoIdIsKnownByItsFolder) {
  const SweepIndex index = planned({"ranks=1,2"});
  store_all(index);
  take_ids(index, 1);
  EXPECT_EQ(rebuilt().runs.size(), 2u);
  EXPECT_EQ(swept_runs(sweep())[1].words, std::nullopt);
}

TEST_F(DamagedSweepTest, ANameWithADistantSeedIsNoEvidence) {
  const SweepIndex index = planned({"ranks=1,2"});
  store_all(index);
  fs::create_directories(sweep() / "003-ranks=1-seed=1000");
  fs::create_directories(sweep() / "004-ranks=1-seed=1001");
  fs::create_directories(sweep() / "005-ranks=1-seed=18446744073709551615");
  const SweepIndex again = rebuilt();
  EXPECT_EQ(again.runs.size(), 3u);
  EXPECT_EQ(again.repeats, 1000u);
  for (const char* name : {"004-ranks=1-seed=1001", "005-ranks=1-seed=18446744073709551615"}) {
    EXPECT_NE(warnings().find(std::string(name) + " is left out"), std::string::npos) << warnings();
  }
}

TEST_F(DamagedSweepTest, RunsWithDistantSeedsAreOfSeveralSweeps) {
  store(planned({"ranks=1,2"}), 0);
  store(planned({"ranks=1,2"}, 1, "18446744073709551615"), 1);
  EXPECT_NE(complaint().find("of several sweeps"), std::string::npos) << complaint();
  EXPECT_FALSE(fs::exists(sweep_file(sweep())));
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
  ASSERT_EQ(again.runs.size(), 3u);
  EXPECT_NE(again.runs[1].state, SweepRunState::complete);
  const std::string expected = "cannot be read (Permission denied)";
  for (const std::string& text : {again.runs[1].reason, why, skipped, warnings()}) {
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
