// compare, baseline, history and rank over runs that were never run.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/golden/result_verbs.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

TEST_F(ResultVerbs, OneRunGivenFiveTimesIsOneRun) {
  make_runs("a", 1, 12, 0);
  make_runs("b", 1, 13.5, 0, {.number = 1});
  const std::string a = "a/run-000", b = "b/run-001";
  const CommandResult result =
      verb({"gate", "--base", a, a, a, a, a, "--head", b, b, b, b, b, "--json"});
  EXPECT_EQ(result.exit_code, 4) << result.out << result.err;
  EXPECT_EQ(Json::parse(result.out).at("blocks"), 1);
  const CommandResult both = verb({"gate", "--base", a, "--head", b, a});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_NE(both.err.find("run-000 is in --base and in --head"), std::string::npos) << both.err;
}

TEST_F(ResultVerbs, CompareAndItsExitCodes) {
  make_runs("a", 1, 12, 0);
  make_runs("b", 1, 24, 0, {.number = 1});
  make_runs("debug", 1, 12, 0, {.number = 2, .build_type = "Debug"});
  const CommandResult slower = verb({"compare", "a", "b", "--json"});
  ASSERT_EQ(slower.exit_code, 0) << slower.err;
  const Json json = Json::parse(slower.out);
  EXPECT_EQ(json.at("verdict"), "slower");
  EXPECT_EQ(json.at("metrics").at(0).at("name"), "throughput");
  EXPECT_EQ(json.at("metrics").at(0).at("unit"), "image/s");
  for (const char* key : {"ratio", "ci95", "metrics", "differences"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(verb({"compare", "a", "debug"}).exit_code, 10);
  EXPECT_EQ(verb({"compare", "a"}).exit_code, 2);
  EXPECT_EQ(verb({"compare", "a", "absent"}).exit_code, 2);
  EXPECT_EQ(verb({"compare", "a", "b", "--format", "md"}).out.rfind("### ", 0), 0u);
  EXPECT_EQ(verb({"compare", "a", "a"}).exit_code, 2);
  edit_file(folder_ / "b/run-001/record.json", "\"median\": 2", "\"median\": 1");
  EXPECT_EQ(verb({"compare", "a", "b"}).exit_code, 9);
}

TEST_F(ResultVerbs, NoVerbBelievesARecordThatWasEditedAlone) {
  make_runs("a", 1, 12, 0);
  make_runs("b", 1, 12, 0, {.number = 1});
  edit_file(folder_ / "a/run-000/record.json", "\"node\"", "\"mode\"");
  for (const Words& words :
       {Words{"compare", "a", "b"}, Words{"gate", "--base", "a", "--head", "b"},
        Words{"baseline", "save", "main", "a"}, Words{"show", "a/run-000"},
        Words{"pack", "a/run-000"}, Words{"verify", "a/run-000"}}) {
    const CommandResult result = verb(words);
    EXPECT_EQ(result.exit_code, 9) << words.front() << result.out << result.err;
  }
  for (const Words& words : {Words{"rank", "a", "--json"}, Words{"history", "a", "--json"}}) {
    const CommandResult result = verb(words);
    EXPECT_EQ(result.exit_code, 8) << words.front() << result.out << result.err;
    EXPECT_NE(result.out.find("its journal gives"), std::string::npos) << result.out;
  }
  EXPECT_EQ(verb({"export", "a/run-000", "--to", "csv"}).exit_code, 9);
  // A number that no program writes so could still be shown.
  edit_file(folder_ / "b/run-001/record.json", "\"ranks\": 2", "\"ranks\": 4.0");
  EXPECT_EQ(verb({"show", "b/run-001"}).exit_code, 2);
  EXPECT_EQ(verb({"report", "a/run-000"}).exit_code, 0);
  EXPECT_NE(text_of("a/run-000/report.html").find("not what the journal gives"), std::string::npos);
}

TEST_F(ResultVerbs, PackSaysHowToCloseAKilledRun) {
  SampleRun killed = fixed_run();
  killed.lines.resize(killed.lines.size() - 4);
  killed.write({folder_ / "killed"});
  const CommandResult refused = verb({"pack", "killed"});
  EXPECT_EQ(refused.exit_code, 9);
  EXPECT_NE(refused.err.find("heteroperf recover"), std::string::npos) << refused.err;
  ASSERT_EQ(verb({"recover", "killed"}).exit_code, 0);
  EXPECT_EQ(verb({"pack", "killed"}).exit_code, 0);
}

TEST_F(ResultVerbs, BaselineIsKeptAndGatedAgainst) {
  make_runs("good", 5, 12, 0.002);
  make_runs("again", 5, 12.001, 0.002, {.number = 20});
  make_runs("bad", 5, 13.5, 0.002, {.number = 10});
  make_runs("worst", 1, 20, 0.002, {.number = 40});
  ASSERT_EQ(verb({"baseline", "save", "main", "good"}).exit_code, 0);
  EXPECT_EQ(verb({"gate", "--base", "main", "--head", "bad"}).exit_code, 3);
  const CommandResult same = verb({"gate", "--base", "baselines/main", "--head", "again"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  const CommandResult refused = verb({"baseline", "save", "main", "bad"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.err.find("--force"), std::string::npos);
  const CommandResult told = verb({"baseline", "save", "main", "bad", "--json"});
  EXPECT_EQ(told.exit_code, 3);
  const Json document = Json::parse(told.out);
  EXPECT_EQ(document.at("refused").at("verdict"), "regression");
  EXPECT_EQ(document.at("baselines").at(0).at("runs").at(0).at("run_id"), "run-000");
  EXPECT_EQ(verb({"baseline", "save", "main", "worst"}).exit_code, 3);
  EXPECT_EQ(verb({"baseline", "save", "main", "bad", "--force"}).exit_code, 0);
  EXPECT_EQ(
      Json::parse(verb({"baseline", "list", "--json"}).out).at("baselines").at(0).at("runs").size(),
      5u);
  EXPECT_EQ(verb({"baseline", "show", "mian"}).exit_code, 2);
  EXPECT_EQ(verb({"baseline", "rm", "main"}).out, "removed baselines/main: 5 files\n");
  EXPECT_EQ(Json::parse(verb({"baseline", "list", "--json"}).out).at("baselines").size(), 0u);
  EXPECT_EQ(verb({"baseline", "sav", "main", "good"}).exit_code, 2);
  ASSERT_EQ(verb({"baseline", "save", "main", "good/run-000"}).exit_code, 0);
  const fs::path file = fs::directory_iterator(folder_ / "baselines/main")->path();
  edit_file(file, "\"median\": 1", "\"median\": 9");
  EXPECT_EQ(verb({"gate", "--base", "baselines/main", "--head", "again"}).exit_code, 9);
  EXPECT_EQ(verb({"baseline", "save", "main", "again"}).exit_code, 9);
  EXPECT_EQ(verb({"baseline", "save", "main", "again", "--force"}).exit_code, 0);
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
  for (const Words& wrong : {Words{"--min-devices", "-1"}, Words{"--max-nodes", "-1"},
                             Words{"--workload", "imag"}, Words{"--precision", "fp23"}}) {
    const CommandResult refused = verb({"rank", "results", wrong[0], wrong[1]});
    EXPECT_EQ(refused.exit_code, 2) << wrong[0];
    const bool count = wrong[1] == "-1";
    EXPECT_NE(refused.err.find(count ? wrong[0] : "Did you mean '"), std::string::npos)
        << refused.err;
  }
  const Json ranking = Json::parse(verb({"rank", "results", "--json"}).out);
  EXPECT_EQ(ranking.at("entries").size(), 1u);
  EXPECT_EQ(ranking.at("excluded").size(), 23u);  // one seed for all of them
}

}  // namespace
}  // namespace heteroperf::testing
