#include "results/comparison/run_set.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "metrics/base/error.hpp"
#include "results/comparison/baseline_store.hpp"
#include "results/comparison/record_doubt.hpp"
#include "results/comparison/run_evidence.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/suite_record.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class RunSets : public ::testing::Test {
 protected:
  fs::path path(const std::string& name) const { return folder_.path() / name; }

  /// A copy of a run's folder beside it.
  fs::path copy_of(const fs::path& run, const std::string& name) const {
    fs::copy(run, run.parent_path() / name, fs::copy_options::recursive);
    return run.parent_path() / name;
  }

 private:
  TemporaryFolder folder_;
};

Error error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorKind::internal, {{"nothing", "", ""}}};
}

std::vector<std::string> ids_of(const RunSet& set) {
  std::vector<std::string> ids;
  for (const RunDigest& run : set.runs) ids.push_back(run.run_id);
  return ids;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(RunSets, ARunCountsOnceOverAllArguments) {
  const fs::path run = store_run(path("results"), {.number = 1});
  store_run(path("results"), {.number = 2});
  fs::create_directory_symlink("run-001", path("results/latest"));
  const RunSet found = require_runs(
      {run, run, path("results/latest"), RunFiles{run}.record(), path("results"), run});
  EXPECT_EQ(ids_of(found), (std::vector<std::string>{"run-001", "run-002"}));
  EXPECT_TRUE(found.barren.empty());
}

TEST_F(RunSets, EveryPathWithoutARecordIsNamed) {
  store_run(path("results"), {});
  fs::create_directories(path("none"));
  fs::create_directories(path("nothing"));
  const Error error = error_of([&] {
    require_runs({path("none"), path("results"), path("nothing")});
  });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  ASSERT_EQ(error.problems().size(), 2u);
  EXPECT_TRUE(has(error.problems()[1].problem, path("nothing").string()));
}

TEST_F(RunSets, ASuiteThatItsRunsContradictIsSkipped) {
  const SuitePlan suite = whole_suite();
  store_suite(path("s"), suite);
  const RunSet sound = require_runs({path("s")});
  EXPECT_EQ(sound.runs.size(), suite.workloads.size());
  EXPECT_TRUE(sound.suites.empty());
  SuitePlan trimmed = suite;
  trimmed.workloads.pop_back();
  write_suite_record(path("s"), trimmed);
  EXPECT_EQ(find_runs({path("s")}).runs.size(), suite.workloads.size());
  const Error error = error_of([&] { require_runs({path("s"), path("s")}); });
  EXPECT_EQ(error.kind(), ErrorKind::verification);
  ASSERT_EQ(error.problems().size(), 1u);
  EXPECT_EQ(error.problems()[0].problem,
            path("s/suite.json").string() + " is not what was measured");
  store_suite(path("partial"), trimmed);
  EXPECT_EQ(find_runs({path("partial")}).suites.at(0).path, path("partial/suite.json"));
}

TEST_F(RunSets, ARunOnBothSidesIsRefused) {
  const fs::path a = store_run(path("a"), {.number = 1});
  store_run(path("b"), {.number = 2});
  fs::copy(a, path("b/copy"), fs::copy_options::recursive);
  const Error error = error_of([&] { require_pairs({path("a")}, {path("b")}, "A", "B"); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_TRUE(has(error.what(), "run-001 is in A and in B")) << error.what();
  EXPECT_TRUE(has(error.what(), path("b/copy").string())) << error.what();
  fs::remove_all(path("b/copy"));
  EXPECT_EQ(require_pairs({path("a")}, {path("b")}, "A", "B").blocks(), 1u);
}

/// Runs in turns base, head, head, base, and one more of the base; base 12 s, head 12.5 s a step.
class TurnedRuns : public RunSets {
 protected:
  void SetUp() override {
    for (int i = 0; i < 13; ++i) {
      const bool head = i % 4 == 1 || i % 4 == 2;
      (head ? head_ : base_)
          .push_back(store_run(path(head ? "head" : "base"),
                               {.number = i, .step_s = (head ? 12.5 : 12.0) + 0.01 * (i * i % 7)}));
    }
  }

  static std::vector<double> numbers_of(const RunPairs& pairs) {
    const auto found = evidence_of(pairs, compared_metric("throughput"));
    return {found->ratio,
            found->ratio_ci95.low,
            found->ratio_ci95.high,
            found->evidence.gain.standard_error,
            found->evidence.control.mean,
            found->evidence.control.standard_error};
  }

  std::vector<fs::path> base_, head_;
};

TEST_F(TurnedRuns, TheOrderOfArgumentsIsWithoutEffect) {
  const RunPairs whole = require_pairs({path("base")}, {path("head")}, "A", "B");
  ASSERT_EQ(whole.order, RunOrder::blocks);
  ASSERT_EQ(whole.blocks(), 3u);
  std::reverse(base_.begin(), base_.end());
  std::rotate(head_.begin(), head_.begin() + 2, head_.end());
  const RunPairs shuffled = require_pairs(base_, head_, "A", "B");
  EXPECT_EQ(shuffled.order, RunOrder::blocks);
  EXPECT_EQ(ids_of(shuffled.base), ids_of(whole.base));
  EXPECT_EQ(numbers_of(shuffled), numbers_of(whole));
}

TEST_F(TurnedRuns, SidesThatAreNotByDateAreArranged) {
  RunSet base = find_runs({path("base")}), head = find_runs({path("head")});
  const auto sorted = numbers_of(arranged(base, head));
  std::reverse(base.runs.begin(), base.runs.end());
  std::rotate(head.runs.begin(), head.runs.begin() + 2, head.runs.end());
  EXPECT_EQ(numbers_of(arranged(base, head)), sorted);
}

TEST_F(RunSets, TheRecordThatItsJournalConfirmsCounts) {
  const fs::path run = store_run(path("results"), {.number = 5});
  for (const char* name : {"a-before", "z-after"}) {
    edit_file(RunFiles{copy_of(run, name)}.record(), "\"median\": 1", "\"median\": 2");
  }
  const RunSet found = find_runs({path("results")});
  ASSERT_EQ(found.runs.size(), 1u);
  EXPECT_EQ(found.runs[0].record, RunFiles{run}.record());
  ASSERT_EQ(found.skipped.size(), 2u);
  for (const SkippedEntry& one : found.skipped) {
    EXPECT_EQ(one.kind, ErrorKind::verification);
    EXPECT_TRUE(has(one.reason, "step_time_s/median is 2")) << one.reason;
  }
  const Error error = error_of([&] { require_runs({path("results")}); });
  EXPECT_EQ(error.kind(), ErrorKind::verification);
  EXPECT_TRUE(has(error.what(), path("results/a-before").string())) << error.what();
}

TEST_F(RunSets, CopiesWithADamagedJournalAreListed) {
  const fs::path run = store_run(path("results"), {.number = 5});
  for (const char* name : {"a-before", "z-after"}) {
    const fs::path journal = RunFiles{copy_of(run, name)}.journal();
    fs::resize_file(journal, fs::file_size(journal) / 2);
  }
  const RunSet found = find_runs({path("results")});
  ASSERT_EQ(found.runs.size(), 1u);
  EXPECT_EQ(found.runs[0].record, RunFiles{run}.record());
  EXPECT_EQ(found.skipped.size(), 2u);
}

TEST_F(RunSets, EqualCopiesAreOneRun) {
  const fs::path run = store_run(path("results"), {.number = 5});
  copy_of(run, "a-copy");
  fs::remove(RunFiles{copy_of(run, "b-record")}.journal());
  const RunSet found = require_runs({path("results")});
  EXPECT_EQ(ids_of(found), std::vector<std::string>{"run-005"});
  EXPECT_TRUE(has_journal(found.runs[0]));
}

TEST_F(RunSets, WhereNoJournalConfirmsTheOthersAreListedStill) {
  const fs::path run = store_run(path("results"), {.number = 5});
  const fs::path other = copy_of(run, "x-other");
  fs::remove(RunFiles{run}.journal());
  fs::remove(RunFiles{other}.journal());
  edit_file(RunFiles{other}.record(), "\"median\": 1", "\"median\": 2");
  const RunSet found = find_runs({path("results")});
  ASSERT_EQ(found.runs.size(), 1u);
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_EQ(found.skipped[0].path, RunFiles{other}.record());
  EXPECT_TRUE(has(found.skipped[0].reason, RunFiles{run}.record().string()));
  EXPECT_EQ(error_of([&] { require_runs({path("results")}); }).kind(), ErrorKind::usage);
}

TEST_F(RunSets, ASavedBaselineThatWasMergedByHandIsNoRecord) {
  const RunSet runs = find_runs({store_run(path("results"), {})});
  const fs::path file = save_baseline(path("baselines"), "main", runs.runs).front();
  std::ofstream(file, std::ios::app) << "=======\n>>>>>>> theirs\n";
  const Error error = error_of([&] { require_runs({path("baselines/main")}); });
  EXPECT_EQ(error.kind(), ErrorKind::verification);
  const std::string words = error.what();
  EXPECT_TRUE(has(words, "version control")) << words;
  EXPECT_FALSE(has(words, "recover")) << words;
  EXPECT_EQ(words.find(file.string()), words.rfind(file.string())) << words;
}

TEST_F(RunSets, WhatIsNoJsonIsSaidInOurOwnWords) {
  std::ofstream(path("mix.txt")) << "a 1\nb 2\n";
  const fs::path run = store_run(path("results"), {});
  std::ofstream(RunFiles{run}.record(), std::ios::trunc) << "{";
  const std::string foreign = error_of([&] { require_runs({path("mix.txt")}); }).what();
  EXPECT_TRUE(has(foreign, "is not valid JSON (parse error at line 1, column 1")) << foreign;
  EXPECT_FALSE(has(foreign, "json.exception")) << foreign;
  EXPECT_FALSE(has(foreign, "recover")) << foreign;
  EXPECT_TRUE(has(error_of([&] { require_runs({run}); }).what(), "heteroperf recover"));
  fs::remove(RunFiles{run}.journal());
  EXPECT_TRUE(has(error_of([&] { require_runs({run}); }).what(), "No journal lies beside it"));
}

TEST_F(RunSets, AMissingRunIsSaidWithTheNearest) {
  store_run(path("results"), {.number = 7});
  const std::string near = error_of([&] { find_runs({path("results/run-08")}); }).what();
  EXPECT_TRUE(has(near, "Did you mean '" + path("results/run-007").string() + "'?")) << near;
  const std::string far = error_of([&] { find_runs({path("results/another")}); }).what();
  EXPECT_TRUE(has(far, "no file or folder has that name")) << far;
  const std::string none = error_of([&] { find_runs({path("nowhere/run-007")}); }).what();
  EXPECT_TRUE(has(none, "there is no folder " + path("nowhere").string())) << none;
}

}  // namespace
}  // namespace heteroperf
