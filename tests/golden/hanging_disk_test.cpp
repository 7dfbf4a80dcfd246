// A disk of rank 0 that does not answer any more ends the run, whichever thread of it writes.
#include <gtest/gtest.h>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Words = std::vector<std::string>;

CommandResult run_on_hanging_disk(const Words& transport, int from_write) {
  const ScratchFolder folder;
  const Words words =
      joined({"run", "llm", "--size", "nano", "--ranks", "2", "--micro-batch", "2", "--duration",
              "60", "--set", "measure.peak_s=0", "--set", "comm.timeout_s=4", "-q", "--out", "r"},
             transport);
  return heteroperf(
      words, folder.path(),
      {"LD_PRELOAD=" HETEROPERF_FAULTY_MACHINE, "HANG_FROM_WRITE=" + std::to_string(from_write)});
}

void expect_disk_is_named(const CommandResult& result) {
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_NE(result.err.find("journal.jsonl does not answer (a write has taken 4 s)"),
            std::string::npos)
      << result.err;
}

TEST(HangingDisk, EndsARunOfThreads) {
  expect_disk_is_named(run_on_hanging_disk({}, 2));
  expect_disk_is_named(run_on_hanging_disk({}, 6));
}

/// stderr is a pipe that is full and that nobody reads, like a batch job's output on the same disk.
TEST(HangingDisk, EndsARunThatCannotSaySo) {
  const ScratchFolder folder;
  const std::string line =
      "mkfifo pipe && exec 3<>pipe && dd if=/dev/zero of=pipe bs=4096 oflag=nonblock 2>/dev/null; "
      "LD_PRELOAD=" HETEROPERF_FAULTY_MACHINE " HANG_FROM_WRITE=2 exec '" +
      heteroperf_path() +
      "' run llm --size nano --ranks 2 --micro-batch 2 --duration 60 --set measure.peak_s=0 "
      "--set comm.timeout_s=4 -q --out r 2>&3";
  EXPECT_EQ(Command({"/bin/sh", "-c", line}, folder.path()).finish().exit_code, 7);
}

TEST(HangingDisk, EndsARunOfProcesses) {
#ifndef HETEROPERF_MPIRUN
  GTEST_SKIP() << "built without MPI";
#endif
  expect_disk_is_named(run_on_hanging_disk({"--transport", "mpi"}, 2));
  expect_disk_is_named(run_on_hanging_disk({"--transport", "mpi"}, 6));
}

}  // namespace
}  // namespace heteroperf::testing
