// Every place of the command line that takes a file, with every file that is not what is wanted.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/golden/result_verbs.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// A command line; FILE stands for what is wrong.
struct Place {
  const char* name;
  Words words;
};

const Place places[] = {
    {"RunCluster", {"run", "llm", "--size", "nano", "--cluster", "FILE"}},
    {"RunPlan", {"run", "llm", "--size", "nano", "--plan", "FILE"}},
    {"RunHistory", {"run", "automl-image", "--set", "automl.history=FILE"}},
    {"PlanCluster", {"plan", "llm", "--size", "nano", "--cluster", "FILE"}},
    {"PlanProfile", {"plan", "llm", "--size", "nano", "--cluster", "laptop", "--profile", "FILE"}},
    {"PlanLearn", {"plan", "llm", "--size", "nano", "--cluster", "laptop", "--learn", "FILE"}},
    {"PlanImport",
     {"plan", "llm", "--size", "nano", "--cluster", "laptop", "--import", "plan:FILE"}},
    {"PlanFlagScale",
     {"plan", "llm", "--size", "nano", "--cluster", "laptop", "--import", "flagscale:FILE"}},
    {"PlanHexiScale", {"plan", "llm", "--size", "nano", "--cluster", "hexiscale:FILE@10"}},
    {"Count", {"count", "FILE"}},
    {"Simulate", {"simulate", "FILE"}},
    {"SimulateCosts", {"simulate", "schedule.json", "--costs-file", "FILE"}},
    {"SimulateNetwork", {"simulate", "schedule.json", "--model", "links", "--network", "FILE"}},
    {"ScheduleImport", {"schedule", "--import", "FILE"}},
    {"ScheduleGraph", {"schedule", "auto", "--graph", "FILE"}},
    {"ScheduleCosts",
     {"schedule", "1f1b", "--ranks", "2", "--micro-batches", "4", "--costs-file", "FILE"}},
    {"CommPace", {"comm", "allreduce", "--ranks", "2", "-e", "8", "--pace", "FILE"}},
    {"ExportMegatron", {"export", "FILE", "--to", "megatron"}},
    {"ExportFlagScale", {"export", "FILE", "--to", "flagscale"}},
    {"ExportCsv", {"export", "FILE", "--to", "csv"}},
    {"Verify", {"verify", "FILE"}},
    {"Show", {"show", "FILE"}},
    {"Recover", {"recover", "FILE"}},
    {"Resume", {"resume", "FILE"}},
    {"Pack", {"pack", "FILE"}},
    {"Report", {"report", "FILE"}},
    {"ReportTrace", {"report", "a/run-000", "-o", "r.html", "--trace", "FILE"}},
    {"Align", {"align", "a/run-000", "FILE"}},
    {"Compare", {"compare", "a", "FILE"}},
    {"Gate", {"gate", "--base", "FILE", "--head", "a"}},
    {"Baseline", {"baseline", "save", "main", "FILE"}},
    {"History", {"history", "FILE"}},
    {"Rank", {"rank", "FILE"}},
    {"RankPower", {"rank", "a", "--power", "FILE"}},
    {"RankSystems", {"rank", "a", "--systems", "FILE"}},
    {"RankAiperf", {"rank", "a", "--aiperf", "FILE"}}};

Words with_file(const Words& words, const std::string& file) {
  Words result;
  for (const std::string& word : words) {
    result.push_back(std::regex_replace(word, std::regex("FILE"), file));
  }
  return result;
}

class WrongFile : public ::testing::TestWithParam<Place> {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<ScratchFolder>();
    store_run(*folder_ / "a", {});
    fs::create_directory(*folder_ / "folder");
    const CommandResult plan =
        heteroperf({"plan", "llm", "--size", "nano", "--cluster", "laptop", "--json"});
    const CommandResult schedule = heteroperf(
        {"schedule", "1f1b", "--ranks", "2", "--micro-batches", "4", "--format", "json"});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    ASSERT_EQ(schedule.exit_code, 0) << schedule.err;
    folder_->write("plan.json", plan.out);
    folder_->write("schedule.json", schedule.out);
    folder_->write("cut.json", plan.out.substr(0, plan.out.size() / 2));
    folder_->write("empty.json", "");
    folder_->write("binary.json", std::string("\x7f"
                                              "ELF\0\1\2\xff\xfe\n\"{",
                                              12));
    folder_->write("baselines.json", R"({"_format":"heteroperf-baselines","_version":1})");
    folder_->write("foreign.json", R"({"_format":"theirs","_version":1,"a":{}})");
    folder_->write("list.json", "[1, 2, 3]");
  }
  static void TearDownTestSuite() { folder_.reset(); }

  /// One error of the user's that names the file.
  static void expect_refused(const std::string& file) {
    const CommandResult plain = heteroperf(with_file(GetParam().words, file), folder_->path());
    EXPECT_EQ(plain.exit_code, 2) << plain.out << plain.err;
    EXPECT_EQ(plain.out, "");
    EXPECT_EQ(std::count(plain.err.begin(), plain.err.end(), '\n'), 1) << plain.err;
    EXPECT_NE(plain.err.find(file), std::string::npos) << plain.err;
  }

  static void expect_refused_in_json(const std::string& file) {
    Words words = with_file(GetParam().words, file);
    words.emplace_back("--json");
    const CommandResult result = heteroperf(words, folder_->path());
    EXPECT_EQ(result.exit_code, 2) << result.err;
    const Json report = Json::parse(result.out, nullptr, false);
    ASSERT_FALSE(report.is_discarded()) << result.out;
    EXPECT_EQ(report.at("error").at("kind"), "usage");
    EXPECT_EQ(report.at("error").at("details").size(), 1u) << result.out;
  }

  static std::unique_ptr<ScratchFolder> folder_;
};

std::unique_ptr<ScratchFolder> WrongFile::folder_;

TEST_P(WrongFile, GetsOneLine) {
  for (const char* file : {"folder", "nowhere.json", "empty.json", "cut.json", "binary.json",
                           "baselines.json", "foreign.json", "list.json"}) {
    SCOPED_TRACE(file);
    expect_refused(file);
  }
  expect_refused_in_json("baselines.json");
}

INSTANTIATE_TEST_SUITE_P(Places, WrongFile, ::testing::ValuesIn(places),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace heteroperf::testing
