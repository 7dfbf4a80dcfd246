// gate over commands and records: the commands that it starts copy runs to where it looks.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/golden/gates_of_runs.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

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

TEST_F(GatesOfRuns, GatePassesEqualPrograms) {
  make_runs("base", 26, 12, 0.004);
  make_runs("head", 26, 12.001, 0.004, {.number = 100});
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

TEST_F(GatesOfRuns, GateFindsASlowdown) {
  make_runs("base", 26, 12, 0.004);
  make_runs("head", 26, 12.8, 0.004, {.number = 100});
  const CommandResult result =
      gate(next_of("base"), next_of("head"), {"--ignore", "ops_per_second", "--timeout", "77"});
  EXPECT_EQ(result.exit_code, 3) << result.out << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json.at("verdict"), "regression");
  const std::string again = json.at("reproduce");
  EXPECT_NE(again.find(" --max-blocks 12 --ignore ops_per_second --timeout 77 --max-load 1 "
                       "--settle 0"),
            std::string::npos)
      << again;
}

TEST_F(GatesOfRuns, GateStopsAtTheFirstBlockWhereAnExactMetricIsWorse) {
  make_runs("base", 3, 12, 0.05);
  for (int number = 100; number < 103; ++number) {
    SampleRun run = sample_of({.number = number});
    run.last<MemoryEvent>().peak_bytes *= 2;
    run.write_finished(RunFiles{folder_ / ("head/run-" + std::to_string(number))});
  }
  const CommandResult result = gate(next_of("base"), next_of("head"), {"--junit", "out.xml"});
  EXPECT_EQ(result.exit_code, 3) << result.out << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json.at("blocks"), 1);
  EXPECT_NE(result.out.find("stopped after 1 block: peak_memory_bytes is worse"), std::string::npos)
      << result.out;
  EXPECT_NE(text_of("out.xml").find("<failure"), std::string::npos);
}

TEST_F(GatesOfRuns, GateThatCannotTellSaysWhatWouldSettleIt) {
  make_runs("base", 12, 12, 0.05);
  make_runs("head", 12, 12.3, 0.05, {.number = 100});
  const CommandResult result = gate(next_of("base"), next_of("head"), {"--max-blocks", "5"});
  EXPECT_EQ(result.exit_code, 4) << result.out << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json.at("verdict"), "inconclusive");
  EXPECT_FALSE(json.at("why_inconclusive").get<std::string>().empty());
}

TEST_F(GatesOfRuns, GateCommandsThatFail) {
  make_runs("base", 3, 12, 0);
  const std::string good = next_of("base");
  CommandResult result = gate("echo the reason >&2; exit 9", good);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_NE(result.err.find("the reason"), std::string::npos) << result.err;
  EXPECT_EQ(gate(good, "kill -9 $$").exit_code, 6);
  EXPECT_EQ(gate("/no/such/program", good).exit_code, 6);
}

TEST_F(GatesOfRuns, GateCommandsThatLeaveNothingOrGarbage) {
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

TEST_F(GatesOfRuns, GateCountsNoRunTwice) {
  make_runs("base", 5, 12, 0.004);
  make_runs("head", 1, 14, 0.004, {.number = 100});
  const CommandResult copied =
      gate(next_of("base"), "cp -r " + (folder_ / "head/run-100") + " $HETEROPERF_OUT");
  EXPECT_EQ(copied.exit_code, 5) << copied.out;
  EXPECT_NE(copied.out.find("run_id run-100 is that of warmup-head"), std::string::npos)
      << copied.out;
  const std::string first = "cp -r " + (folder_ / "base/run-000") + " $HETEROPERF_OUT";
  const CommandResult both = gate(first, first);
  EXPECT_EQ(both.exit_code, 5) << both.out;
  EXPECT_NE(both.out.find("that of warmup-base"), std::string::npos) << both.out;
}

TEST_F(GatesOfRuns, GateCommandWhoseRecordWasEdited) {
  make_runs("base", 3, 12, 0);
  make_runs("head", 3, 12, 0, {.number = 100});
  const CommandResult edited =
      gate(next_of("base"), next_of("head") +
                                "; sed -i 's/\"median\": 12/\"median\": 11/' "
                                "$HETEROPERF_OUT/record.json");
  EXPECT_EQ(edited.exit_code, 9) << edited.out;
  EXPECT_NE(edited.out.find("--head-cmd"), std::string::npos) << edited.out;
}

TEST_F(GatesOfRuns, GateCommandWhoseRunTheRulesForbid) {
  make_runs("base", 3, 12, 0);
  SampleRun invalid = sample_of({.number = 100});
  invalid.last<StepEvent>().loss = std::nan("");
  invalid.write_finished(RunFiles{folder_ / "invalid"});
  const std::string leave = "cp -r " + (folder_ / "invalid") + " $HETEROPERF_OUT; exit ";
  for (const char* code : {"8", "0"}) {
    const CommandResult result = gate(next_of("base"), leave + code);
    EXPECT_EQ(result.exit_code, 8) << result.out;
    EXPECT_NE(result.out.find("finite_loss"), std::string::npos) << result.out;
  }
  EXPECT_EQ(gate("exit 8", next_of("base")).exit_code, 6);
  EXPECT_EQ(gate(next_of("base") + "; exit 8", "true").exit_code, 6);
}

TEST_F(GatesOfRuns, GateCommandThatHangsIsEndedWithAllItStarted) {
  make_runs("base", 3, 12, 0);
  const std::string pid_file = folder_ / "pid";
  const CommandResult result =
      gate("sleep 600 & echo $! > " + pid_file + "; wait", next_of("base"), {"--timeout", "1"});
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_LT(result.seconds, 60);
  EXPECT_TRUE(has_ended(std::stoi(text_of("pid"))));
}

/// Bytes that a terminal obeys.
bool steers_a_terminal(const std::string& text) {
  return text.find_first_of("\033\r\b\a") != std::string::npos ||
         text.find("\xc2\x9b") != std::string::npos;
}

TEST_F(GatesOfRuns, GateCommandsSteerNoTerminal) {
  const CommandResult failed =
      gate("printf '\\033[2J\\302\\2332Jcleared\\r\\n' >&2; exit 1", "true");
  EXPECT_EQ(failed.exit_code, 6);
  EXPECT_NE(failed.err.find("cleared"), std::string::npos) << failed.err;
  EXPECT_FALSE(steers_a_terminal(failed.err));
  make_runs("base", 5, 12, 0.002);
  make_runs("head", 5, 12, 0.002, {.number = 100, .host = "\\u001b[2Jhost"});
  const CommandResult judged = verb({"gate", "--base", "base", "--head", "head"});
  EXPECT_NE(judged.out.find("[2Jhost"), std::string::npos) << judged.out << judged.err;
  EXPECT_FALSE(steers_a_terminal(judged.out));
}

TEST_F(GatesOfRuns, GateThatIsKilledTakesItsCommandAlong) {
  // Two that end in order, and one that would not.
  const std::string line =
      "sleep 600 & echo $! > a; sh -c 'trap \"\" TERM; sleep 601 & echo $! > b; wait' & "
      "sh -c 'echo $$ > c; exec sleep 602'";
  Command command({heteroperf_path(), "gate", "--base-cmd", line, "--head-cmd", "true",
                   "--max-load", "1", "--settle", "0", "--out", "g"},
                  folder_.path());
  const auto written = [&](const char* name) {
    std::error_code ignored;
    return fs::exists(folder_ / name) && fs::file_size(folder_ / name, ignored) > 1;
  };
  ASSERT_TRUE(command.wait_until([&] { return written("a") && written("b") && written("c"); }));
  ::kill(command.pid(), SIGKILL);
  command.finish();
  for (const char* name : {"a", "b", "c"}) {
    const int pid = std::stoi(text_of(name));
    for (int i = 0; i < 600 && !has_ended(pid); ++i) usleep(50'000);
    EXPECT_TRUE(has_ended(pid)) << name;
  }
}

TEST_F(GatesOfRuns, GateThatIsStoppedLetsItsCommandEndInOrder) {
  Command command({heteroperf_path(), "gate", "--base-cmd",
                   "sh -c 'trap \"sleep 1; touch ended; exit 3\" TERM; touch started; "
                   "while :; do sleep 0.1; done'",
                   "--head-cmd", "true", "--max-load", "1", "--settle", "0", "--out", "g"},
                  folder_.path());
  ASSERT_TRUE(command.wait_until([&] { return fs::exists(folder_ / "started"); }));
  ::kill(command.pid(), SIGTERM);
  EXPECT_EQ(command.finish().exit_code, 130);
  EXPECT_TRUE(fs::exists(folder_ / "ended"));
}

TEST_F(GatesOfRuns, GateThatBreaksLeavesWhatItHasAndWhatBrokeIt) {
  make_runs("base", 12, 12, 0.004);
  make_runs("head", 5, 12, 0.004, {.number = 100});
  const CommandResult result =
      gate(next_of("base"), next_of("head"), {"--junit", "out.xml", "--markdown", "out.md"});
  EXPECT_EQ(result.exit_code, 6) << result.out;
  EXPECT_EQ(kind_of(result), "run_failed");
  const Json kept = Json::parse(text_of("gate-1/gate.json"));
  EXPECT_EQ(kept.at("error"), Json::parse(result.out).at("error"));
  EXPECT_FALSE(kept.contains("verdict"));
  EXPECT_EQ(kept.at("blocks"), 2);
  EXPECT_GT(kept.at("metrics").size(), 3u);
  EXPECT_EQ(text_of("out.md").rfind("### ERROR: --head-cmd", 0), 0u) << text_of("out.md");
  EXPECT_NE(text_of("out.xml").find("errors=\"1\""), std::string::npos);
  EXPECT_NE(text_of("out.xml").find("<error type=\"run_failed\""), std::string::npos);
}

TEST_F(GatesOfRuns, GateThatBreaksBeforeItsFirstBlockSaysSoInItsFiles) {
  make_runs("base", 3, 12, 0);
  make_runs("debug", 1, 12, 0, {.number = 100, .build_type = "Debug"});
  const Words files{"--junit", "out.xml", "--markdown", "out.md"};
  const auto check = [&](const CommandResult& result, int code, const std::string& kind) {
    EXPECT_EQ(result.exit_code, code) << result.out << result.err;
    const std::string error = "<error type=\"" + kind + "\"";
    EXPECT_NE(text_of("out.xml").find(error), std::string::npos) << text_of("out.xml");
    EXPECT_EQ(text_of("out.md").rfind("### ERROR: ", 0), 0u);
    fs::remove(folder_ / "out.xml");
    fs::remove(folder_ / "out.md");
  };
  check(gate("true", "true", files), 5, "environment");
  check(gate(next_of("base"), next_of("debug"), files), 10, "not_comparable");
  EXPECT_EQ(Json::parse(text_of("gate-2/gate.json")).at("blocks"), 0);
  Words records{"gate", "--base", "base/run-000", "--head", "base/run-001"};
  records.insert(records.end(), files.begin(), files.end());
  edit_file(folder_ / "base/run-001/record.json", "\"median\": 12", "\"median\": 11");
  check(verb(records), 9, "verification");
  records[2] = "absent";
  check(verb(records), 2, "usage");
}

TEST_F(GatesOfRuns, GateStopsWhenItIsInterrupted) {
  make_runs("base", 3, 12, 0);
  Command command(
      {heteroperf_path(), "gate", "--base-cmd", "touch started; sleep 600", "--head-cmd", "true",
       "--max-load", "1", "--settle", "0", "--out", "g", "--junit", "out.xml"},
      folder_.path());
  ASSERT_TRUE(command.wait_until([&] { return fs::exists(folder_ / "started"); }));
  kill(command.pid(), SIGINT);
  EXPECT_EQ(command.finish().exit_code, 130);
  EXPECT_EQ(Json::parse(text_of("g/gate.json")).at("error").at("kind"), "interrupted");
  EXPECT_NE(text_of("out.xml").find("<error type=\"interrupted\""), std::string::npos);
}

TEST_F(GatesOfRuns, GateOfDifferentBuildsIsNotComparable) {
  make_runs("base", 3, 12, 0);
  make_runs("head", 3, 12, 0, {.number = 100, .build_type = "Debug"});
  const CommandResult result = gate(next_of("base"), next_of("head"));
  EXPECT_EQ(result.exit_code, 10);
  EXPECT_NE(result.out.find("program.build_type"), std::string::npos);
}

TEST_F(GatesOfRuns, GateOptionsThatMakeNoSense) {
  for (const Words& words :
       {Words{"gate"}, Words{"gate", "--base", "a"}, Words{"gate", "--base-cmd", "a"},
        Words{"gate", "--base", "a", "--head-cmd", "b"},
        Words{"gate", "--base", "a", "--head", "b", "--threshold", "0"},
        Words{"gate", "--base", "a", "--head", "b", "--alpha", "1"},
        Words{"gate", "--base", "absent", "--head", "absent"}}) {
    EXPECT_EQ(verb(words).exit_code, 2) << words.size();
  }
}

TEST_F(GatesOfRuns, GateNamesEveryUnknownMetricBeforeItRuns) {
  const CommandResult result =
      gate("touch ran", "touch ran", {"--ignore", "step_time", "throughput", "--ignore", "los"});
  EXPECT_EQ(result.exit_code, 2) << result.out;
  EXPECT_NE(result.err.find("Did you mean 'step_time_s'?"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("unknown metric 'los'"), std::string::npos) << result.err;
  EXPECT_FALSE(fs::exists(folder_ / "ran"));
  EXPECT_FALSE(fs::exists(folder_ / "gate-1"));
}

TEST_F(GatesOfRuns, GateOfFewerBlocksThanTellIsRefused) {
  make_runs("base", 4, 12, 0.001);
  make_runs("head", 4, 14, 0.001, {.number = 100});
  for (const char* blocks : {"-3", "0", "1", "4", "1001"}) {
    for (const Words& sides : {Words{"--base", "base", "--head", "head"},
                               Words{"--base-cmd", "touch ran", "--head-cmd", "touch ran"}}) {
      Words words{"gate", "--max-blocks", blocks};
      words.insert(words.end(), sides.begin(), sides.end());
      const CommandResult result = verb(words);
      EXPECT_EQ(result.exit_code, 2) << blocks;
      EXPECT_NE(result.err.find(std::string("--max-blocks ") + blocks + " is out of range (5 to"),
                std::string::npos)
          << result.err;
    }
  }
  EXPECT_FALSE(fs::exists(folder_ / "ran"));
  EXPECT_EQ(verb({"gate", "--base", "base", "--head", "head"}).exit_code, 4);
}

TEST_F(GatesOfRuns, GateOfRecordsThatWereRunByTurns) {
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

}  // namespace
}  // namespace heteroperf::testing
