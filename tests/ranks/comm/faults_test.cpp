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

#include "metrics/base/error.hpp"
#include "runners/comm/mpi_launch.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// A busy machine may take this long to end three processes. It is less than the 30 s after which
/// a rank ends that nobody told of the fault.
constexpr double slack_s = 10.0;

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
    const LaunchConfig config{
        .cores = 2, .deadline_s = std::atof(timeout_s.c_str()), .program = HETEROPERF_FAULT_RANKS};
    return launch_under_mpirun(ranks, {fault, std::to_string(culprit), timeout_s}, config);
  }

  fs::path cache_;
};

TEST_F(Faults, NoneEndsWell) { EXPECT_EQ(launch("none", 0, "30"), 0); }

/// Runs a launch in a child; what it returned is the child's exit code, or that of the error's
/// kind. What it and its ranks say goes to `log`, where that is given.
pid_t launch_in_child(const std::function<int()>& launch, const std::string& log = "") {
  const pid_t child = fork();
  if (child != 0) return child;
  if (!log.empty() && !std::freopen(log.c_str(), "w", stderr)) _exit(97);
  int code = 99;
  try {
    code = launch();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    code = error.kind() == ErrorKind::timeout ? 7 : 6;
  } catch (const std::exception&) {
    code = 98;
  }
  std::fflush(nullptr);
  _exit(code);
}

int exit_code_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

struct Fault {
  const char* name;
  int culprit;
  const char* timeout_s;
  int code;
  double deadline_s;
  const char* words;  ///< that some rank, or the launching process, says
};
class EveryFault : public Faults, public testing::WithParamInterface<Fault> {
 protected:
  /// Exit code; what was said by line.
  int run() {
    const Fault& fault = GetParam();
    const std::string log = cache_ / "log";
    const int code = exit_code_of(
        launch_in_child([&] { return launch(fault.name, fault.culprit, fault.timeout_s); }, log));
    ended_ = Clock::now();
    std::ifstream in(log);
    for (std::string line; std::getline(in, line);) said_.push_back(line);
    return code;
  }
  bool is_said(const std::string& part) const {
    return std::any_of(said_.begin(), said_.end(), [&](const std::string& line) {
      return line.find(part) != std::string::npos;
    });
  }
  /// Since the fault, by the clock of its rank.
  double took_s() const {
    const std::string mark = "fault at ";
    for (const std::string& line : said_) {
      if (!line.starts_with(mark)) continue;
      const std::chrono::duration<double> end = ended_.time_since_epoch();
      return end.count() - std::stod(line.substr(mark.size()));
    }
    return 0;
  }
  std::string everything() const {
    std::string text;
    for (const std::string& line : said_) text += line + "\n";
    return text;
  }

  std::vector<std::string> said_;
  Clock::time_point ended_;
};

TEST_P(EveryFault, EndsInTimeWithItsCodeAndNamesTheRank) {
  const Fault& fault = GetParam();
  EXPECT_EQ(run(), fault.code) << everything();
  EXPECT_LT(took_s(), fault.deadline_s + slack_s) << everything();
  EXPECT_TRUE(is_said(fault.words)) << everything();
  // Nobody blames another one.
  for (int rank = 0; rank < 4; ++rank) {
    const std::string name = "rank " + std::to_string(rank);
    if (rank == fault.culprit || std::string(fault.words).find(name) != std::string::npos) continue;
    EXPECT_FALSE(is_said(name + " failed during")) << everything();
    EXPECT_FALSE(is_said(name + " stopped answering")) << everything();
  }
}

const Fault faults[] = {
    {"kill", 1, "30", 6, 2, "rank 1 failed"},
    {"kill", 0, "30", 6, 2, "rank 0 failed"},
    {"stop", 1, "2", 7, 2, "rank 1 stopped answering"},
    {"stop", 0, "2", 7, 2, "rank 0 stopped answering"},
    {"linger", 0, "2", 0, 2, "a rank's process had not ended"},
    {"linger", 1, "2", 0, 2, "a rank's process had not ended"},
    {"stop-mpirun", 1, "2", 7, 2, "mpirun stopped answering"},
    {"circle", 1, "3", 7, 3, "rank 2 stopped answering"},
    {"throw", 1, "30", 6, 2, "rank 1 failed"},
    {"throw", 0, "30", 6, 2, "rank 0 failed"},
    {"usage", 2, "30", 2, 2, "batch=0"},
    {"exit", 1, "30", 6, 2, "rank 1 failed"},
    {"desert", 1, "30", 6, 4, "rank 1 failed"},
    {"kill@hybrid", 0, "30", 6, 2, "rank 0 failed"},
    {"kill@hybrid", 2, "30", 6, 2, "rank 2 failed"},
    {"stop@hybrid", 1, "2", 7, 2, "rank 1 stopped answering"},
    {"stop@hybrid", 0, "2", 7, 2, "rank 0 stopped answering"},
    {"exit@hybrid", 1, "30", 6, 2, "rank 1 failed"},
    {"kill@checked", 1, "30", 6, 2, "rank 1 failed"},
    {"mismatch@checked", 1, "30", 6, 2, "disagree"},
};
INSTANTIATE_TEST_SUITE_P(Mpi, EveryFault, testing::ValuesIn(faults), [](const auto& fault) {
  std::string name = fault.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '@' || c == '-'; }, '_');
  return name + "_" + std::to_string(fault.param.culprit);
});

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
