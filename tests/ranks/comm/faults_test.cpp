// Real mpirun jobs in which a rank dies, stops, throws or deserts.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "metrics/error.hpp"
#include "runners/comm/mpi_launch.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// mpirun's start and end on a busy machine.
constexpr double slack_s = 5.0;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int living_ranks() {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::error_code ignored;
    count += fs::read_symlink(entry.path() / "exe", ignored) == HETEROPERF_FAULT_RANKS;
  }
  return count;
}

/// A cache folder of this test's own, so that what is left behind is seen.
class Faults : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "heteroperf-faults-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    cache_ = name;
    setenv("XDG_CACHE_HOME", name.c_str(), 1);
  }
  void TearDown() override {
    EXPECT_EQ(living_ranks(), 0);
    EXPECT_TRUE(fs::is_empty(cache_ / "heteroperf"));
    fs::remove_all(cache_);
  }

  int launch(const std::string& fault, int culprit, const std::string& timeout_s, int ranks = 3) {
    const LaunchConfig config{.cores = 2, .program = HETEROPERF_FAULT_RANKS};
    return launch_under_mpirun(ranks, {fault, std::to_string(culprit), timeout_s}, config);
  }

  fs::path cache_;
};

TEST_F(Faults, NoneEndsWell) { EXPECT_EQ(launch("none", 0, "30"), 0); }

struct Fault {
  const char* name;
  int culprit;
  const char* timeout_s;
  int code;
  double deadline_s;
};
class EveryFault : public Faults, public testing::WithParamInterface<Fault> {};

TEST_P(EveryFault, EndsInTimeWithItsCode) {
  const Fault& fault = GetParam();
  const auto start = Clock::now();
  EXPECT_EQ(launch(fault.name, fault.culprit, fault.timeout_s), fault.code);
  EXPECT_LT(since(start), fault.deadline_s + slack_s);
}

const Fault faults[] = {
    {"kill", 1, "30", 6, 2},
    {"kill", 0, "30", 6, 2},
    {"stop", 1, "2", 7, 3},
    {"stop", 0, "2", 7, 3},
    {"throw", 1, "30", 6, 2},
    {"throw", 0, "30", 6, 2},
    {"usage", 2, "30", 2, 2},
    {"exit", 1, "30", 6, 2},
    {"desert", 1, "30", 6, 4},
    {"kill@hybrid", 0, "30", 6, 2},
    {"kill@hybrid", 2, "30", 6, 2},
    {"stop@hybrid", 1, "2", 7, 3},
    {"exit@hybrid", 1, "30", 6, 2},
    {"kill@checked", 1, "30", 6, 2},
    {"mismatch@checked", 1, "30", 6, 2},
};
INSTANTIATE_TEST_SUITE_P(Mpi, EveryFault, testing::ValuesIn(faults), [](const auto& fault) {
  std::string name = fault.param.name;
  std::replace(name.begin(), name.end(), '@', '_');
  return name + "_" + std::to_string(fault.param.culprit);
});

/// Runs a launch in a child; what it returned is the child's exit code.
pid_t launch_in_child(const std::function<int()>& launch) {
  const pid_t child = fork();
  if (child != 0) return child;
  int code = 99;
  try {
    code = launch();
  } catch (const std::exception&) {
    code = 98;
  }
  _exit(code);
}

int exit_code_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void wait_for_ranks(int count) {
  const auto start = Clock::now();
  while (living_ranks() < count && since(start) < 20) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  // Until they have joined and count on signals.
  std::this_thread::sleep_for(std::chrono::seconds(1));
}

class Interrupts : public Faults, public testing::WithParamInterface<int> {};

TEST_P(Interrupts, EndTheRunInOrder) {
  const pid_t child = launch_in_child([this] { return launch("interrupt", 0, "30"); });
  wait_for_ranks(3);
  kill(child, GetParam());
  EXPECT_EQ(exit_code_of(child), 130);
}
INSTANTIATE_TEST_SUITE_P(Mpi, Interrupts, testing::Values(SIGINT, SIGTERM));

TEST_F(Faults, ASecondInterruptEndsRanksThatDoNotListen) {
  const pid_t child = launch_in_child([this] { return launch("sleep", 0, "30"); });
  wait_for_ranks(3);
  kill(child, SIGINT);
  // Sooner it would be a repeat of the first.
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  kill(child, SIGINT);
  EXPECT_EQ(exit_code_of(child), 130);
}

TEST_F(Faults, RanksDieWithTheProcessThatLaunchedThem) {
  const pid_t child = launch_in_child([this] { return launch("interrupt", 0, "30"); });
  wait_for_ranks(3);
  kill(child, SIGKILL);
  EXPECT_EQ(exit_code_of(child), -SIGKILL);
  const auto start = Clock::now();
  while (living_ranks() > 0 && since(start) < 10) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(living_ranks(), 0);
  fs::remove_all(cache_ / "heteroperf");
  fs::create_directory(cache_ / "heteroperf");
}

TEST_F(Faults, RanksThatGiveNoReasonAreAnError) {
  // Everybody leaves at once with a failure of its own: "false" as a program.
  LaunchConfig config{.cores = 2, .program = "/bin/false"};
  EXPECT_THROW(launch_under_mpirun(2, {}, config), SystemError);
}

TEST_F(Faults, AMissingMpirunIsNamed) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  try {
    launch("none", 0, "30");
    ADD_FAILURE() << "started without mpirun";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    EXPECT_NE(std::string(error.what()).find("mpirun is missing"), std::string::npos);
  }
  setenv("PATH", path.c_str(), 1);
  fs::create_directories(cache_ / "heteroperf");
}

}  // namespace
}  // namespace heteroperf
