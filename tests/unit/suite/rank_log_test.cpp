#include "suite/ranks/rank_log.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class RankLogTest : public ::testing::Test {
 protected:
  ~RankLogTest() override { fs::remove_all(folder_); }
  std::string text(int rank) const {
    std::ifstream file(folder_ / ("rank-" + std::to_string(rank) + ".log"));
    std::ostringstream all;
    all << file.rdbuf();
    return all.str();
  }

  fs::path folder_ = fs::temp_directory_path() / ("heteroperf-log-" + std::to_string(getpid()));
};

TEST_F(RankLogTest, HoldsWhatTheRankSaidAtOnce) {
  RankLog log(folder_ / "", 3);
  EXPECT_NE(text(3).find(" rank 3 on "), std::string::npos) << text(3);
  log.note(PhaseEvent{Phase::measure, 1});
  log.note(WarningEvent{"slow", ""});
  EXPECT_NE(text(3).find("phase measure of group 1\n"), std::string::npos) << text(3);
  EXPECT_NE(text(3).find("warning: slow\n"), std::string::npos) << text(3);
}

TEST_F(RankLogTest, DoesNotRepeatTheJournalsSteps) {
  RankLog log(folder_, 0);
  const std::string before = text(0);
  log.note(StepEvent{});
  EXPECT_EQ(text(0), before);
  log.step(0, 2.5);
  log.step(1, 2.25);
  EXPECT_NE(text(0).find("step 0, loss 2.5000\n"), std::string::npos);
  EXPECT_EQ(text(0).find("step 1,"), std::string::npos);
  log.step(0, 2.0);  // of the next model
  EXPECT_NE(text(0).find("step 0, loss 2.0000\n"), std::string::npos);
}

TEST_F(RankLogTest, NamesAFileThatCannotBeMade) {
  try {
    RankLog log("/proc/heteroperf", 0);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("/proc/heteroperf/rank-0.log"), std::string::npos);
    EXPECT_EQ(error.kind(), ErrorKind::environment);
  }
}

}  // namespace
}  // namespace heteroperf
