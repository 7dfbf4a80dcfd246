// `probe` that is told to stop on its way.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <vector>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

std::size_t threads_of(pid_t pid) {
  std::error_code ignored;
  const fs::directory_iterator tasks("/proc/" + std::to_string(pid) + "/task", ignored);
  return ignored ? 0 : static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

/// Exit code and what is left after that signal, sent once `started` holds.
template <class Started>
void expect_stop(const Words& arguments, int signal_number, Started started) {
  const ScratchFolder folder;
  Words words{heteroperf_path(), "probe", "--links-only", "-o", "c.json"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  Command command(words, folder.path());
  ASSERT_TRUE(command.wait_until([&] { return started(command.pid()); }));
  const std::vector<pid_t> processes = descendants(command.pid());
  kill(command.pid(), signal_number);
  const CommandResult result = command.finish();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_NE(result.err.find("stopped by a signal"), std::string::npos) << result.err;
  EXPECT_TRUE(fs::is_empty(folder.path())) << "a file is left";
  for (const pid_t pid : processes) {
    EXPECT_TRUE(environment_of(pid, "PATH").empty()) << "process " << pid << " is left";
  }
}

/// Sixteen ranks have 120 links to measure.
TEST(Probe, ASignalEndsItsThreads) {
  for (const int signal_number : {SIGINT, SIGTERM}) {
    expect_stop({"--ranks", "16"}, signal_number, [](pid_t pid) { return threads_of(pid) > 16; });
  }
}

TEST(Probe, SaysWhatItDoesUnlessItIsToBeQuiet) {
  const ScratchFolder folder;
  const Words words{"probe", "--ranks", "2", "--links-only", "--json"};
  const CommandResult told = heteroperf(words, folder.path());
  ASSERT_EQ(told.exit_code, 0) << told.err;
  EXPECT_EQ(told.err.rfind("heteroperf: probing 2 ranks: links", 0), 0u) << told.err;
  EXPECT_NE(told.err.find("\nlinks"), std::string::npos) << told.err;
  EXPECT_EQ(told.err.find('\r'), std::string::npos) << "no terminal is there";
  for (const char* maker : {"authenticamd", "genuineintel"}) {
    EXPECT_EQ(told.out.find(maker), std::string::npos) << told.out;
  }
  Words quiet = words;
  quiet.emplace_back("-q");
  EXPECT_EQ(heteroperf(quiet, folder.path()).err, "");
}

#ifdef HETEROPERF_MPIRUN

TEST(Probe, ASignalEndsItsProcesses) {
  expect_stop({"--ranks", "8", "--transport", "mpi"}, SIGINT, [](pid_t pid) {
    std::size_t joined = 0;
    for (const pid_t rank : descendants(pid)) {
      // Those that have joined have threads for signs of life.
      joined += !environment_of(rank, "OMPI_COMM_WORLD_RANK").empty() && threads_of(rank) > 3;
    }
    return joined == 8;
  });
}

#endif

}  // namespace
}  // namespace heteroperf::testing
