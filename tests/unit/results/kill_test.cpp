// A process that writes a run is killed at moments of chance: what it was told to be on disk is
// there, and whatever file is there can be read.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/comparison/run_set.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/verify.hpp"
#include "tests/unit/results/agreeing_run.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// $HETEROPERF_KILLS, else few enough for every day.
int kills() {
  const char* asked = std::getenv("HETEROPERF_KILLS");
  return asked == nullptr ? 40 : std::atoi(asked);
}

/// Writes the whole run and its record; tells after each flush how many lines are written.
[[noreturn]] void write_run(const RunFiles& files, const SampleRun& run, int told) {
  JournalWriter journal(files.journal().string(), {0.001, now_ns});
  std::uint32_t lines = 0;
  for (const JournalLine& line : run.lines) {
    journal.append(line.event);
    ++lines;
    if (lines % 3 == 0 && !journal.flush_now()) _exit(2);
    if (lines % 3 == 0 && write(told, &lines, sizeof lines) != sizeof lines) _exit(3);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (!journal.flush_now()) _exit(2);
  finish_run(files);
  _exit(0);
}

std::uint32_t last_told(int pipe) {
  std::uint32_t lines = 0, one = 0;
  while (read(pipe, &one, sizeof one) == sizeof one) lines = one;
  return lines;
}

/// Whatever stands under its final name is whole.
void expect_readable(const RunFiles& files) {
  if (fs::exists(files.record())) {
    EXPECT_NO_THROW(read_run_digest(files.record()));
  }
  for (const fs::path& file : {files.config(), files.plan(), files.environment()}) {
    if (!fs::exists(file)) continue;
    EXPECT_EQ(read_text_file(file).back(), '\n') << file;
  }
}

/// How long one takes that is left alone.
int whole_run_us(const SampleRun& run) {
  const TemporaryFolder folder;
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) write_run(RunFiles{folder.path()}, run, ends[1]);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  return static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(
                              std::chrono::steady_clock::now() - begin)
                              .count());
}

TEST(Kill, LosesNoWrittenLineAndLeavesNoUnreadableFile) {
  SampleRun run = fixed_run();
  add_due_lines(run);
  std::mt19937 random(20260101);
  std::uniform_int_distribution<int> moment_us(0, whole_run_us(run) * 5 / 4);
  int with_journal = 0, with_record = 0, cut_short = 0;
  for (int i = 0; i < kills(); ++i) {
    const TemporaryFolder folder;
    const RunFiles files{folder.path()};
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      write_run(files, run, ends[1]);
    }
    close(ends[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(moment_us(random)));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const std::uint32_t told = last_told(ends[0]);
    close(ends[0]);

    expect_readable(files);
    if (!fs::exists(files.journal()) ||
        read_text_file(files.journal()).find('\n') == std::string::npos) {
      EXPECT_EQ(told, 0u);
      continue;
    }
    ++with_journal;
    with_record += fs::exists(files.record());
    const Journal journal = read_journal(files.journal().string());
    EXPECT_GE(journal.lines.size(), told);
    cut_short += journal.lines.size() < run.lines.size();
    recover(folder.path());
    EXPECT_EQ(read_journal(files.journal().string()).lines.size(), journal.lines.size());
    const Verification check = verify(folder.path());
    EXPECT_TRUE(check.ok()) << check.to_json();
  }
  // Else the moments were none of chance.
  EXPECT_GT(with_journal, kills() / 2);
  EXPECT_GT(cut_short, 0);
  RecordProperty("with_journal", with_journal);
  RecordProperty("with_record", with_record);
}

}  // namespace
}  // namespace heteroperf
