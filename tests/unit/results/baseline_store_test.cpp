#include "results/comparison/baseline_store.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/comparison/run_set.hpp"
#include "results/record/run_folder.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class BaselineTest : public ::testing::Test {
 protected:
  RunDigest run(const StoredRun& stored) {
    return read_run_digest(RunFiles{store_run(folder_.path() / "runs", stored)}.record());
  }
  fs::path home() const { return folder_.path() / "baselines"; }

 private:
  TemporaryFolder folder_;
};

TEST_F(BaselineTest, FilesAreTheRecordsAndNameTheirKey) {
  const RunDigest a = run({.number = 1}), b = run({.number = 2, .build_type = "Debug"});
  const auto files = save_baseline(home(), "main", {a, b});
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].filename().string().rfind("image-resnet18-fp32-2r-", 0), 0u);
  EXPECT_NE(files[0].filename(), files[1].filename());
  EXPECT_EQ(read_text_file(files[0]), read_text_file(a.record));
  const RunSet found = require_runs({home() / "main"});
  EXPECT_EQ(found.runs.size(), 2u);
}

TEST_F(BaselineTest, SavingAgainReplacesTheSameKeyOnly) {
  save_baseline(home(), "main", {run({.number = 1}), run({.number = 2, .build_type = "Debug"})});
  save_baseline(home(), "main", {run({.number = 3}), run({.number = 4})});
  const RunSet found = find_runs({home() / "main"});
  std::vector<std::string> ids;
  for (const RunDigest& one : found.runs) ids.push_back(one.run_id);
  EXPECT_EQ(ids, (std::vector<std::string>{"run-002", "run-003", "run-004"}));
}

TEST_F(BaselineTest, AnEditedFileIsFound) {
  const auto files = save_baseline(home(), "main", {run({.number = 1})});
  edit_file(files[0], "\"median\": 1", "\"median\": 2");
  const RunSet found = find_runs({home() / "main"});
  EXPECT_TRUE(found.runs.empty());
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_THROW(require_runs({home() / "main"}), Error);
}

TEST_F(BaselineTest, ListRemoveAndNames) {
  EXPECT_TRUE(saved_baselines(home()).empty());
  save_baseline(home(), "main", {run({.number = 1})});
  std::ofstream(home() / "main" / "notes.md") << "ours";
  ASSERT_EQ(saved_baselines(home()).size(), 1u);
  EXPECT_THROW(saved_baseline(home(), "mian"), UserError);
  for (const char* name : {"", "../main", ".hidden", "a/b", "a b", "\xff"}) {
    EXPECT_THROW(check_baseline_name(name), UserError) << name;
    EXPECT_THROW(save_baseline(home(), name, {}), UserError) << name;
  }
  remove_baseline(home(), "main");
  EXPECT_TRUE(saved_baselines(home()).empty());
  EXPECT_TRUE(fs::exists(home() / "main" / "notes.md"));
}

TEST(BaselineFileName, OnlyItsOwnForm) {
  EXPECT_TRUE(is_baseline_file_name("llm-nano-fp32-2r-0123abcd-0123456789ab.json"));
  for (const char* name :
       {"record.json", "x-0123abcd-0123456789ab.txt", "-0123abcd-0123456789ab.json",
        "llm-0123abcg-0123456789ab.json", "llm-0123abcd-0123456789a.json", ""}) {
    EXPECT_FALSE(is_baseline_file_name(name)) << name;
  }
}

}  // namespace
}  // namespace heteroperf
