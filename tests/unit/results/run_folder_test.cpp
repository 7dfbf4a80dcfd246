#include "results/record/run_folder.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

template <class Thrown>
void expect_path_in_error(const fs::path& path, auto&& body) {
  try {
    body();
    FAIL() << "nothing was thrown for " << path;
  } catch (const Thrown& error) {
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
  }
}

TEST(RunName, HasTimeWorkloadAndId) {
  const RunName name = make_run_name("llm");
  EXPECT_TRUE(std::regex_match(name.run_id, std::regex("[0-9]{8}T[0-9]{6}Z-llm-[0-9a-f]{8}")));
  EXPECT_TRUE(std::regex_match(
      name.created_utc, std::regex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")));
  EXPECT_NE(make_run_name("llm").run_id, make_run_name("llm").run_id);
}

TEST(RunFolder, IsCreatedWithItsParentsAndLeftEmpty) {
  const TemporaryFolder temporary;
  const RunFiles files = create_run_folder(temporary.path() / "a" / "b");
  EXPECT_TRUE(fs::is_directory(files.folder));
  EXPECT_EQ(entries(files.folder), 0u);
}

TEST(RunFolder, RefusesAFileInTheWayAndANonEmptyFolder) {
  const TemporaryFolder temporary;
  const fs::path file = temporary.path() / "file";
  std::ofstream(file) << "x";
  expect_path_in_error<UserError>(file, [&] { create_run_folder(file); });
  expect_path_in_error<UserError>(file / "run", [&] { create_run_folder(file / "run"); });
  expect_path_in_error<UserError>(temporary.path(), [&] { create_run_folder(temporary.path()); });
}

TEST(RunFolder, RefusesATargetThatCannotBeWritten) {
  // /proc refuses new files to everybody, root included.
  expect_path_in_error<Error>("/proc/heteroperf",
                              [&] { create_run_folder("/proc/heteroperf/run"); });
}

TEST(LatestLink, PointsAtTheNewestRunAndReplacesOnlyLinks) {
  const TemporaryFolder temporary;
  const fs::path link = temporary.path() / "latest";
  for (const char* name : {"one", "two"}) {
    fs::create_directory(temporary.path() / name);
    EXPECT_TRUE(point_latest_at(temporary.path() / name));
    EXPECT_EQ(fs::read_symlink(link), name);
  }
  EXPECT_TRUE(point_latest_at(temporary.path() / "one" / ""));
  EXPECT_EQ(fs::read_symlink(link), "one");
  fs::remove(link);
  std::ofstream(link) << "mine";
  EXPECT_FALSE(point_latest_at(temporary.path() / "two"));
  EXPECT_EQ(read_text_file(link), "mine");
}

TEST(AtomicWrite, ReplacesTheWholeFileAndLeavesNothingElse) {
  const TemporaryFolder temporary;
  const fs::path path = temporary.path() / "f";
  write_file_atomically(path, "old, and longer");
  write_file_atomically(path, "new");
  EXPECT_EQ(read_text_file(path), "new");
  EXPECT_EQ(entries(temporary.path()), 1u);
  write_file_atomically(path, "");
  EXPECT_EQ(read_text_file(path), "");
}

TEST(AtomicWrite, FollowsNoLinkThatSomebodyPlanted) {
  const TemporaryFolder temporary;
  const fs::path victim = temporary.path() / "victim", path = temporary.path() / "f";
  std::ofstream(victim) << "mine";
  fs::create_symlink(victim, temporary.path() / (".f.tmp-" + std::to_string(::getpid())));
  write_file_atomically(path, "new");
  EXPECT_EQ(read_text_file(path), "new");
  EXPECT_EQ(read_text_file(victim), "mine");
  EXPECT_EQ(entries(temporary.path()), 2u);
}

TEST(AtomicWrite, KeepsTheOldFileWhenTheDiskIsFull) {
  const TemporaryFolder temporary;
  const fs::path path = temporary.path() / "f";
  write_file_atomically(path, "old");
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file_atomically(path, std::string(2000, 'x'));
    } catch (const SystemError& error) {
      ::_exit(std::string(error.what()).find(path.string()) == std::string::npos ? 1 : 0);
    }
    ::_exit(2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(read_text_file(path), "old");
  EXPECT_EQ(entries(temporary.path()), 1u);
}

TEST(AtomicWrite, NamesAPathThatCannotBe) {
  const TemporaryFolder temporary;
  const fs::path path = temporary.path() / "missing" / "f";
  expect_path_in_error<SystemError>(path, [&] { write_file_atomically(path, "x"); });
  expect_path_in_error<UserError>(path, [&] { read_text_file(path); });
}

TEST(FinishRun, WritesEveryFile) {
  const TemporaryFolder temporary;
  const RunFiles files{temporary.path() / "run"};
  fixed_run().write(files);
  const FinishedRun finished = finish_run(files);
  EXPECT_EQ(read_text_file(files.record()), finished.record);
  const Journal journal = read_journal(files.journal().string());
  const std::string& config = journal.first<ConfigEvent>()->config.text;
  EXPECT_EQ(read_text_file(files.config()), nlohmann::ordered_json::parse(config).dump(2) + "\n");
  EXPECT_TRUE(fs::exists(files.plan()));
  EXPECT_TRUE(fs::exists(files.environment()));
  EXPECT_EQ(fs::exists(files.samples()), finished.warnings.empty());
}

TEST(OpenRunFolder, FindsTheRunByFolderFileOrLink) {
  const TemporaryFolder temporary;
  const RunFiles files{temporary.path() / "run"};
  fixed_run().write(files);
  EXPECT_EQ(open_run_folder(files.folder).folder, files.folder);
  EXPECT_EQ(open_run_folder(files.journal()).folder, files.folder);
  point_latest_at(files.folder);
  EXPECT_TRUE(fs::exists(open_run_folder(temporary.path() / "latest").journal()));
  expect_path_in_error<UserError>(temporary.path() / "no",
                                  [&] { open_run_folder(temporary.path() / "no"); });
  fs::create_directory(temporary.path() / "empty");
  expect_path_in_error<UserError>(temporary.path() / "empty",
                                  [&] { open_run_folder(temporary.path() / "empty"); });
}

}  // namespace
}  // namespace heteroperf
