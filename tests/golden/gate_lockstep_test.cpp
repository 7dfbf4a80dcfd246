// gate --lockstep over programs of /bin/sh that speak the protocol
// (suite/program/turn_protocol.hpp) and leave runs that were made before: their times are as
// wanted, so every verdict is certain.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/golden/gates_of_runs.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// What a program of these tests does otherwise than it should.
struct Program {
  std::string runs = "base";               ///< where its runs lie
  std::string hello = "turns 1";           ///< its first line; empty: none
  std::string loads = ":";                 ///< what it does before it is warm
  std::string folder = "$HETEROPERF_OUT";  ///< where it says it writes
  /// Answers `steps $n`, the $k-th turn of its process.
  std::string turn = "answer 1000000000";
};

class GatesInLockstep : public GatesOfRuns {
 protected:
  void SetUp() override {
    make_runs("base", 14, 12, 0.004);
    make_runs("head", 14, 12, 0.004, {.number = 100});
  }

  std::string command(const Program& program) const {
    // The first turn of a process, which never counts, is short: turns then have two steps. The
    // others take about a second each, whose logarithm is exact, so that the null control is 0.
    std::string text = "p=${HETEROPERF_TURNS##*:}; exec 3<$p.orders 4>$p.answers; k=0; ";
    text +=
        "answer() { v=$1; [ $k -gt 1 ] || v=50000000; l=\"done $n 2000 0 0\"; i=0; "
        "while [ $i -lt $n ]; do l=\"$l $v\"; "
        "i=$((i+1)); done; echo \"$l\" >&4; }; ";
    if (!program.hello.empty()) text += "echo '" + program.hello + "' >&4; ";
    text += program.loads + "; echo \"ready 1000 " + program.folder + "\" >&4; ";
    text += "while read -r word n <&3 && [ \"$word\" = steps ]; do k=$((k+1)); " + program.turn +
            "; done; " + next_of(program.runs);
    return text;
  }

  CommandResult lockstep(const Program& base, const Program& head, const Words& more = {}) {
    Words words{"--lockstep", "--pair-seconds", "0.01"};
    words.insert(words.end(), more.begin(), more.end());
    return gate(command(base), command(head), words);
  }

  static Program slower(const std::string& ns) { return {.runs = "head", .turn = "answer " + ns}; }
};

TEST_F(GatesInLockstep, EqualProgramsPassAtOnceAndTheGateSaysWhatItResolves) {
  const CommandResult result = lockstep({}, slower("1000000000"));
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json.at("order"), "lockstep");
  EXPECT_EQ(json.at("blocks"), 6);
  EXPECT_LT(json.at("resolution").get<double>(), 0.02);
  EXPECT_GE(json.at("lockstep").at("quads").get<int>(), 6 * 4);
  EXPECT_TRUE(fs::exists(folder_ / "gate-1/pair-06/head/run/record.json"));
  EXPECT_TRUE(fs::exists(folder_ / "gate-1/turns.csv"));
}

TEST_F(GatesInLockstep, ASlowerHeadIsARegression) {
  const CommandResult result = lockstep({}, slower("1030000000"), {"--threshold", "1.5"});
  ASSERT_EQ(result.exit_code, 3) << result.out << result.err;
  const Json metric = Json::parse(result.out).at("metrics").at(0);
  EXPECT_EQ(metric.at("name"), "throughput");
  EXPECT_NEAR(metric.at("ratio").get<double>(), 1 / 1.03, 0.005);
  EXPECT_LT(metric.at("head").get<double>(), metric.at("base").get<double>());
}

TEST_F(GatesInLockstep, AFasterHeadIsAnImprovement) {
  const CommandResult result = lockstep({}, slower("950000000"));
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(Json::parse(result.out).at("verdict"), "improved");
}

TEST_F(GatesInLockstep, AFirstStepMadeSlowByTheHandOverDoesNotCount) {
  const std::string slow_first =
      "v=1000000000; [ $k -gt 1 ] || v=50000000; l=\"done $n 2000 0 0 9$v\"; i=1; "
      "while [ $i -lt $n ]; do l=\"$l $v\"; i=$((i+1)); done; echo \"$l\" >&4";
  const CommandResult result = lockstep({}, {.runs = "head", .turn = slow_first});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_GE(Json::parse(result.out).at("lockstep").at("steps_per_turn").get<int>(), 2);
}

TEST_F(GatesInLockstep, ProgramsThatDoNotTakePartAreRunInBlocks) {
  struct Case {
    Program head;
    std::string note;
  };
  for (const Case& one :
       {Case{{.runs = "head", .hello = "turns 2"}, "speaks version 2"},
        Case{{.runs = "head", .hello = "refused it is a search"}, "the head: it is a search"}}) {
    make_runs("base", 40, 12, 0.004);
    // In blocks nobody sets the pipes, so the second half of the command alone is played.
    const std::string head = "if [ -n \"$HETEROPERF_TURNS\" ]; then " + command(one.head) +
                             "; else " + next_of("head") + "; fi";
    const std::string base = "if [ -n \"$HETEROPERF_TURNS\" ]; then " + command({}) + "; else " +
                             next_of("base") + "; fi";
    make_runs("head", 40, 12, 0.004, {.number = 200});
    const CommandResult result = gate(base, head, {"--lockstep", "--pair-seconds", "0.01"});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_EQ(Json::parse(result.out).at("order"), "interleaved");
    EXPECT_NE(result.out.find("blocks instead of lockstep"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find(one.note), std::string::npos) << result.out;
    fs::remove_all(folder_ / "base");
    fs::remove_all(folder_ / "head");
  }
}

TEST_F(GatesInLockstep, AProgramThatKnowsNoLockstepIsRunInBlocks) {
  const CommandResult result = gate(next_of("base"), next_of("head"),
                                    {"--lockstep", "--pair-seconds", "0.01", "--max-blocks", "6"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_NE(result.out.find("the base ended before its first turn"), std::string::npos)
      << result.out;
}

TEST_F(GatesInLockstep, GarbageInThePipeEndsTheGate) {
  const CommandResult result =
      lockstep({}, {.runs = "head",
                    .turn = "if [ $k = 9 ]; then printf 'x\\377y\\n' >&4; else "
                            "answer 1000000000; fi"});
  EXPECT_EQ(result.exit_code, 6) << result.out << result.err;
  EXPECT_NE(result.out.find("is wanted by version 1 of lockstep"), std::string::npos) << result.out;
}

TEST_F(GatesInLockstep, AnotherNumberOfStepsEndsTheGate) {
  const CommandResult result = lockstep(
      {}, {.runs = "head", .turn = "if [ $k = 5 ]; then n=$((n+1)); fi; answer 1000000000"});
  EXPECT_EQ(result.exit_code, 6) << result.out << result.err;
  EXPECT_NE(result.out.find("steps in a turn of"), std::string::npos) << result.out;
}

TEST_F(GatesInLockstep, AProgramThatEndsAmongItsTurnsEndsTheGate) {
  const CommandResult result = lockstep(
      {}, {.runs = "head",
           .turn = "if [ $k = 7 ]; then echo its reason >&2; exit 41; fi; answer 1000000000"});
  EXPECT_EQ(result.exit_code, 6) << result.out << result.err;
  EXPECT_NE(result.out.find("exit code 41"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("its reason"), std::string::npos) << result.out;
}

TEST_F(GatesInLockstep, ATurnThatNeverEndsIsATimeoutAndThePairsBeforeItAreKept) {
  const std::string stuck =
      "case $k$HETEROPERF_OUT in 9*pair-02*) sleep 600 ;; esac; "
      "answer 1000000000";
  const CommandResult result =
      lockstep({}, {.runs = "head", .turn = stuck}, {"--turn-timeout", "1"});
  EXPECT_EQ(result.exit_code, 7) << result.out << result.err;
  const Json json = Json::parse(text_of("gate-1/gate.json"));
  EXPECT_EQ(json.at("error").at("kind"), "timeout");
  EXPECT_EQ(json.at("blocks"), 1);
}

TEST_F(GatesInLockstep, AProgramThatNeverBecomesWarmIsATimeout) {
  const CommandResult result =
      lockstep({}, {.runs = "head", .loads = "sleep 600"}, {"--timeout", "2"});
  EXPECT_EQ(result.exit_code, 7) << result.out << result.err;
  EXPECT_NE(result.out.find("did not end within 2 s"), std::string::npos) << result.out;
}

TEST_F(GatesInLockstep, LeavesNoPipes) {
  ASSERT_EQ(lockstep({}, {.runs = "head", .turn = "exit 41"}).exit_code, 6);
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "gate-1")) {
    EXPECT_FALSE(fs::is_fifo(entry.path())) << entry.path();
  }
}

TEST_F(GatesInLockstep, TwoProgramsThatWantOneFolderAreRefused) {
  const CommandResult result = lockstep({}, {.runs = "head", .folder = "/somewhere/else"});
  EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
  EXPECT_NE(result.out.find("writes into /somewhere/else"), std::string::npos) << result.out;
}

TEST_F(GatesInLockstep, WrongUses) {
  EXPECT_EQ(verb({"gate", "--lockstep", "--base", "base", "--head", "head"}).exit_code, 2);
  EXPECT_EQ(lockstep({}, {}, {"--pair-seconds", "0"}).exit_code, 2);
  EXPECT_EQ(lockstep({}, {}, {"--turn-timeout", "-1"}).exit_code, 2);
  EXPECT_EQ(lockstep({}, {}, {"--turn-timeout", "inf"}).exit_code, 2);
  EXPECT_EQ(lockstep({}, {}, {"--max-blocks", "5"}).exit_code, 2);
}

}  // namespace
}  // namespace heteroperf::testing
