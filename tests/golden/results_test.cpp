// compare, gate, baseline, history and rank over runs that were never run: their journals are made
// here, and the commands that a gate starts copy them to where it looks.
#include <gtest/gtest.h>

#include <signal.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "results/run_folder.hpp"
#include "tests/golden/command.hpp"
#include "tests/unit/metrics/noise.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

class ResultVerbs : public ::testing::Test {
 protected:
  /// Runs 0 … count - 1 below `name`, varying by `spread`.
  void make_runs(const std::string& name, int count, double step_s, double spread,
                 StoredRun like = {}) {
    NoiseSource noise(static_cast<std::uint64_t>(step_s * 1000));
    for (int i = 0; i < count; ++i) {
      like.step_s = step_s * std::exp(spread * noise.normal());
      store_run(folder_ / name, like);
      ++like.number;
    }
  }

  /// A command that leaves the next run of `name`.
  std::string next_of(const std::string& name) const {
    const std::string home = folder_ / name;
    return "i=$(cat " + home + "/next 2>/dev/null || echo 0); echo $((i+1)) > " + home +
           "/next; cp -r " + home + "/run-$(printf %03d $i) \"$HETEROPERF_OUT\"";
  }

  CommandResult gate(const std::string& base, const std::string& head, const Words& more = {}) {
    Words words{"gate", "--base-cmd", base, "--head-cmd", head,     "--max-load",
                "1",    "--settle",   "0",  "-q",         "--json", "--out"};
    words.push_back("gate-" + std::to_string(++gates_));
    words.insert(words.end(), more.begin(), more.end());
    return heteroperf(words, folder_.path());
  }

  CommandResult verb(const Words& words) const { return heteroperf(words, folder_.path()); }

  std::string text_of(const std::string& name) const { return read_text_file(folder_ / name); }

  ScratchFolder folder_;

 private:
  int gates_ = 0;
};

/// Gone, or waiting for somebody to read its exit code.
bool has_ended(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string name;
  char state = 'Z';
  std::getline(stat, name, ')');
  stat >> state;
  return state == 'Z';
}

std::string kind_of(const CommandResult& result) {
  return Json::parse(result.out).at("error").at("kind");
}

TEST_F(ResultVerbs, GatePassesEqualPrograms) {
  make_runs("base", 26, 12, 0.004);
  make_runs("head", 26, 12.001, 0.004);
  const CommandResult result =
      gate(next_of("base"), next_of("head"), {"--junit", "out.xml", "--markdown", "out.md"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json.at("verdict"), "pass");
  EXPECT_EQ(json.at("null_control").at("alarm"), false);
  EXPECT_EQ(json.at("blocks"), 5);
  EXPECT_NE(text_of("out.xml").find("failures=\"0\""), std::string::npos);
  EXPECT_EQ(text_of("out.md").rfind("### PASS", 0), 0u);
  EXPECT_TRUE(fs::exists(folder_ / "gate-1/block-05/4-base/run/record.json"));
  EXPECT_EQ(Json::parse(text_of("gate-1/gate.json")), json);
}

TEST_F(ResultVerbs, GateFindsASlowdown) {
  make_runs("base", 26, 12, 0.004);
  make_runs("head", 26, 12.8, 0.004);
  const CommandResult result = gate(next_of("base"), next_of("head"));
  EXPECT_EQ(result.exit_code, 3) << result.out << result.err;
  EXPECT_EQ(Json::parse(result.out).at("verdict"), "regression");
}

TEST_F(ResultVerbs, GateThatCannotTellSaysWhatWouldSettleIt) {
  make_runs("base", 12, 12, 0.05);
  make_runs("head", 12, 12.3, 0.05);
  const CommandResult result = gate(next_of("base"), next_of("head"), {"--max-blocks", "5"});
  EXPECT_EQ(result.exit_code, 4) << result.out << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json.at("verdict"), "inconclusive");
  EXPECT_FALSE(json.at("why_inconclusive").get<std::string>().empty());
}

TEST_F(ResultVerbs, GateCommandsThatFail) {
  make_runs("base", 3, 12, 0);
  const std::string good = next_of("base");
  CommandResult result = gate("echo the reason >&2; exit 9", good);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_NE(result.err.find("the reason"), std::string::npos) << result.err;
  EXPECT_EQ(gate(good, "kill -9 $$").exit_code, 6);
  EXPECT_EQ(gate("/no/such/program", good).exit_code, 6);
}

TEST_F(ResultVerbs, GateCommandsThatLeaveNothingOrGarbage) {
  make_runs("base", 8, 12, 0);
  const std::string good = next_of("base");
  EXPECT_EQ(gate("true", good).exit_code, 5);
  EXPECT_EQ(gate("head -c 99999 /dev/urandom", good).exit_code, 5);
  EXPECT_EQ(kind_of(gate(
                "mkdir -p $HETEROPERF_OUT; echo '{\"_format' > $HETEROPERF_OUT/record.json", good)),
            "environment");
  const CommandResult two =
      gate("mkdir -p $HETEROPERF_OUT; cp -r " + (folder_ / "base") + "/run-00[01] $HETEROPERF_OUT",
           good);
  EXPECT_EQ(two.exit_code, 5);
  EXPECT_NE(two.out.find("2 records"), std::string::npos) << two.out;
}

TEST_F(ResultVerbs, GateCommandThatHangsIsEndedWithAllItStarted) {
  make_runs("base", 3, 12, 0);
  const std::string pid_file = folder_ / "pid";
  const CommandResult result =
      gate("sleep 600 & echo $! > " + pid_file + "; wait", next_of("base"), {"--timeout", "1"});
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_LT(result.seconds, 60);
  EXPECT_TRUE(has_ended(std::stoi(text_of("pid"))));
}

TEST_F(ResultVerbs, GateStopsWhenItIsInterrupted) {
  make_runs("base", 3, 12, 0);
  Command command({heteroperf_path(), "gate", "--base-cmd", "touch started; sleep 600",
                   "--head-cmd", "true", "--max-load", "1", "--settle", "0", "--out", "g"},
                  folder_.path());
  ASSERT_TRUE(command.wait_until([&] { return fs::exists(folder_ / "started"); }));
  kill(command.pid(), SIGINT);
  EXPECT_EQ(command.finish().exit_code, 130);
}

TEST_F(ResultVerbs, GateOfDifferentBuildsIsNotComparable) {
  make_runs("base", 3, 12, 0);
  make_runs("head", 3, 12, 0, {.build_type = "Debug"});
  const CommandResult result = gate(next_of("base"), next_of("head"));
  EXPECT_EQ(result.exit_code, 10);
  EXPECT_NE(result.out.find("program.build_type"), std::string::npos);
}

TEST_F(ResultVerbs, GateOptionsThatMakeNoSense) {
  for (const Words& words :
       {Words{"gate"}, Words{"gate", "--base", "a"}, Words{"gate", "--base-cmd", "a"},
        Words{"gate", "--base", "a", "--head-cmd", "b"},
        Words{"gate", "--base", "a", "--head", "b", "--threshold", "0"},
        Words{"gate", "--base", "a", "--head", "b", "--alpha", "1"},
        Words{"gate", "--base", "a", "--head", "b", "--max-blocks", "0"},
        Words{"gate", "--base", "absent", "--head", "absent"}}) {
    EXPECT_EQ(verb(words).exit_code, 2) << words.size();
  }
}

TEST_F(ResultVerbs, GateOfRecordsThatWereRunByTurns) {
  NoiseSource noise(4);
  for (int i = 0; i < 24; ++i) {
    const bool head = i % 4 == 1 || i % 4 == 2;
    store_run(folder_ / (head ? "head" : "base"),
              {.number = i, .step_s = (head ? 12.7 : 12) * std::exp(0.004 * noise.normal())});
  }
  const CommandResult result = verb({"gate", "--base", "base", "--head", "head", "--json"});
  EXPECT_EQ(result.exit_code, 3) << result.out << result.err;
  EXPECT_EQ(Json::parse(result.out).at("order"), "interleaved");
}

TEST_F(ResultVerbs, CompareAndItsExitCodes) {
  make_runs("a", 1, 12, 0);
  make_runs("b", 1, 24, 0, {.number = 1});
  make_runs("debug", 1, 12, 0, {.number = 2, .build_type = "Debug"});
  const CommandResult slower = verb({"compare", "a", "b", "--json"});
  ASSERT_EQ(slower.exit_code, 0) << slower.err;
  const Json json = Json::parse(slower.out);
  EXPECT_EQ(json.at("verdict"), "slower");
  for (const char* key : {"ratio", "ci95", "metrics", "differences"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(verb({"compare", "a", "debug"}).exit_code, 10);
  EXPECT_EQ(verb({"compare", "a"}).exit_code, 2);
  EXPECT_EQ(verb({"compare", "a", "absent"}).exit_code, 2);
  edit_file(folder_ / "b/run-001/record.json", "\"median\": 2", "\"median\": 1");
  EXPECT_EQ(verb({"compare", "a", "b"}).exit_code, 9);
  EXPECT_EQ(verb({"compare", "a", "a", "--format", "md"}).out.rfind("### ", 0), 0u);
}

TEST_F(ResultVerbs, BaselineIsKeptAndGatedAgainst) {
  make_runs("good", 5, 12, 0.002);
  make_runs("again", 5, 12.001, 0.002, {.number = 20});
  make_runs("bad", 5, 13.5, 0.002, {.number = 10});
  ASSERT_EQ(verb({"baseline", "save", "main", "good"}).exit_code, 0);
  EXPECT_EQ(verb({"gate", "--base", "baselines/main", "--head", "bad"}).exit_code, 3);
  const CommandResult same = verb({"gate", "--base", "baselines/main", "--head", "again"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  const CommandResult refused = verb({"baseline", "save", "main", "bad"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.err.find("--force"), std::string::npos);
  EXPECT_EQ(verb({"baseline", "save", "main", "bad", "--force"}).exit_code, 0);
  EXPECT_EQ(
      Json::parse(verb({"baseline", "list", "--json"}).out).at("baselines").at(0).at("runs").size(),
      5u);
  EXPECT_EQ(verb({"baseline", "show", "mian"}).exit_code, 2);
  EXPECT_EQ(verb({"baseline", "rm", "main"}).exit_code, 0);
  EXPECT_EQ(Json::parse(verb({"baseline", "list", "--json"}).out).at("baselines").size(), 0u);
  EXPECT_EQ(verb({"baseline", "sav", "main", "good"}).exit_code, 2);
}

TEST_F(ResultVerbs, SweepsWithBadOptionsRunNothing) {
  const auto complaint = [&](Words words) {
    words.insert(words.begin(), {"run", "llm", "--out", "sweep"});
    const CommandResult result = verb(words);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    return result.err;
  };
  EXPECT_NE(complaint({"--sweep", "rnks=1,2"}).find("Did you mean 'ranks'?"), std::string::npos);
  EXPECT_NE(complaint({"--sweep", "ranks=1,0x"}).find("0x"), std::string::npos);
  EXPECT_NE(complaint({"--repeat", "0"}).find("--repeat 0"), std::string::npos);
  EXPECT_NE(complaint({"--repeat", "2", "--run-limit", "0"}).find("--run-limit"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "sweep"));
  make_runs("sweep", 1, 12, 0);
  EXPECT_NE(complaint({"--repeat", "2"}).find("not empty"), std::string::npos);
}

TEST_F(ResultVerbs, HistoryAndRank) {
  make_runs("results", 12, 12, 0.01);
  make_runs("results", 12, 13, 0.01, {.number = 12});
  const CommandResult history = verb({"history", "results", "--json"});
  ASSERT_EQ(history.exit_code, 0) << history.err;
  EXPECT_EQ(Json::parse(history.out).at("change_points").at(0).at("index"), 12);
  EXPECT_EQ(verb({"history", "results", "--metric", "troughput"}).exit_code, 2);
  for (const char* format : {"console", "csv", "json", "html"}) {
    const CommandResult ranked = verb({"rank", "results", "--format", format});
    EXPECT_EQ(ranked.exit_code, 0) << ranked.err;
    EXPECT_FALSE(ranked.out.empty());
  }
  const Json ranking = Json::parse(verb({"rank", "results", "--json"}).out);
  EXPECT_EQ(ranking.at("entries").size(), 1u);
  EXPECT_EQ(ranking.at("excluded").size(), 23u);  // one seed for all of them
}

}  // namespace
}  // namespace heteroperf::testing
