// A real run that this test moves by turns, as a gate in lockstep does: over threads, and as
// processes under mpirun.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "suite/program/turn_protocol.hpp"
#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

Clock::time_point patience() { return Clock::now() + std::chrono::seconds(90); }

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class RunByTurns : public ::testing::Test {
 protected:
  void start(const std::string& workload, const Words& more = {}) {
    Words words{heteroperf_path(), "run", workload, "--size", "nano", "-q", "--out", "r"};
    if (workload == "automl-image") words.erase(words.begin() + 3, words.begin() + 5);
    words.insert(words.end(), more.begin(), more.end());
    command_.emplace(words, folder_.path(),
                     Words{std::string(TurnAddress::variable) + "=" + address_.text(),
                           "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                           "OMPI_MCA_rmaps_base_oversubscribe=1"});
  }

  std::string next_line() {
    return gate_.receive(patience(), [this] { return !command_->running(); }).line;
  }

  TurnDone turn(int steps) {
    gate_.send("steps " + std::to_string(steps));
    const std::string line = next_line();
    const auto done = parse_done(line);
    EXPECT_TRUE(done) << line;
    return done.value_or(TurnDone{});
  }

  Json record() const { return Json::parse(text_of(folder_ / "r/record.json")); }

  ScratchFolder folder_;
  TurnAddress address_{turn_protocol_version, 60, folder_.path() + "/turns"};
  TurnPipe gate_{TurnPipe::Side::gate, address_};
  std::optional<Command> command_;
};

TEST_F(RunByTurns, DoesTheStepsThatTheGateWantsAndLeavesOutWhatItStoodStill) {
  start("llm", {"--ranks", "2", "--micro-batch", "2"});
  EXPECT_EQ(next_line(), "turns 1");
  const auto ready = parse_ready(next_line());
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->folder, folder_ / "r");
  EXPECT_GT(ready->peak_bytes, 1u << 20);
  EXPECT_EQ(turn(3).step_ns.size(), 3u);
  const auto pause_s = std::chrono::seconds(4);
  std::this_thread::sleep_for(pause_s);
  const TurnDone second = turn(20);
  EXPECT_EQ(second.step_ns.size(), 20u);
  EXPECT_GT(second.cpu_ns, 0);
  EXPECT_LT(second.idle_cpu_ns, 200'000'000);  // 5 % of a core
  gate_.send("end");
  const CommandResult result = command_->finish();
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const Json json = record();
  EXPECT_EQ(
      json.at("metrics").at("steps").get<int>() + json.at("metrics").at("warmup_steps").get<int>(),
      2 + 3 + 20);
  double steps_s = 0;
  for (const std::int64_t ns : second.step_ns) steps_s += static_cast<double>(ns) * 1e-9;
  EXPECT_LT(json.at("metrics").at("window_s").get<double>(), steps_s + 3);
  EXPECT_EQ(json.at("validity").at("rankable"), false);
  EXPECT_NE(json.at("validity").dump().find("\"lockstep\""), std::string::npos);
  EXPECT_NE(json.at("validity").at("class"), "invalid") << json.at("validity");
  const CommandResult verified = heteroperf({"verify", "r"}, folder_.path());
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
}

TEST_F(RunByTurns, EndsInOrderWithItsGate) {
  start("llm", {"--ranks", "1", "--micro-batch", "2"});
  EXPECT_EQ(next_line(), "turns 1");
  ASSERT_TRUE(parse_ready(next_line()));
  turn(1);
  gate_.send("nonsense");
  EXPECT_EQ(command_->finish().exit_code, 6);
  EXPECT_EQ(record().at("status"), "failed");
}

TEST_F(RunByTurns, ASignalEndsOneThatStandsStill) {
  start("llm", {"--ranks", "2", "--micro-batch", "2"});
  EXPECT_EQ(next_line(), "turns 1");
  ASSERT_TRUE(parse_ready(next_line()));
  turn(2);
  kill(command_->pid(), SIGINT);
  EXPECT_EQ(command_->finish().exit_code, 130);
  EXPECT_EQ(record().at("status"), "partial");
}

TEST_F(RunByTurns, ASearchRefuses) {
  start("automl-image", {"--quick"});
  EXPECT_EQ(next_line(), "turns 1");
  EXPECT_EQ(next_line(), "refused automl-image is a search, which has no steps of its own");
  const CommandResult result = command_->finish();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("cannot advance in lockstep"), std::string::npos) << result.err;
}

#ifdef HETEROPERF_MPIRUN
TEST_F(RunByTurns, RanksOfProcessesMoveTogether) {
  start("llm", {"--ranks", "2", "--transport", "mpi", "--micro-batch", "2"});
  EXPECT_EQ(next_line(), "turns 1");
  const auto ready = parse_ready(next_line());
  ASSERT_TRUE(ready);
  EXPECT_EQ(turn(2).step_ns.size(), 2u);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const TurnDone second = turn(3);
  EXPECT_EQ(second.step_ns.size(), 3u);
  EXPECT_LT(second.idle_cpu_ns, 200'000'000);
  gate_.send("end");
  EXPECT_EQ(command_->finish().exit_code, 0);
}
#endif

}  // namespace
}  // namespace heteroperf::testing
