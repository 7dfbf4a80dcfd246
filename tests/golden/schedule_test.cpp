// `schedule` and `simulate` as their users meet them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

Json json_of(Words words) {
  words.emplace_back("--json");
  const CommandResult result = heteroperf(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Json::parse(result.out);
}

std::string output_of(const Words& words) {
  const CommandResult result = heteroperf(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

TEST(ScheduleVerb, ReportsThePublishedNumbers) {
  const Json report = json_of({"schedule", "zb-h1", "--ranks", "8", "--micro-batches", "24",
                               "--costs", "18522,18086,9337,601"});
  EXPECT_EQ(report.at("name"), "zb-h1");
  EXPECT_EQ(report.at("instructions"), 8 * 24 * 3);
  EXPECT_NEAR(report.at("bubble_rate_makespan").get<double>(), 0.1585, 5e-5);
  EXPECT_EQ(report.at("checks").at("deadlock_free"), "rendezvous");
  EXPECT_TRUE(report.at("checks").at("complete"));
  EXPECT_TRUE(report.at("checks").at("matched"));
  EXPECT_TRUE(report.at("checks").at("memory_ok"));
  EXPECT_TRUE(report.at("checks").at("cycle").empty());
  for (const char* key : {"idle", "peak_activations", "peak_memory"}) {
    EXPECT_EQ(report.at(key).size(), 8u) << key;
  }
  EXPECT_EQ(report.at("weight_copies"), 1);
  EXPECT_LE(report.at("lower_bound").get<double>(), report.at("makespan").get<double>());
  EXPECT_EQ(report.at("hash").get<std::string>().size(), 32u);
}

TEST(ScheduleVerb, DrawsAChartThatFits) {
  const std::string text = output_of({"schedule", "1f1b", "--ranks", "4", "--micro-batches", "8"});
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) EXPECT_LE(line.size(), 130u) << line;
  for (const char* part :
       {"makespan", "bubble rate", "lower bound", "deadlock-free   rendezvous"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(ScheduleVerb, TablesComeBack) {
  const ScratchFolder folder;
  for (const char* format : {"csv", "csv-comms"}) {
    const std::string table =
        output_of({"schedule", "interleaved-1f1b", "--ranks", "4", "--micro-batches", "8",
                   "--chunks", "2", "--format", format});
    const std::string path = folder.write("table.csv", table);
    EXPECT_EQ(output_of({"schedule", "--import", path, "--format", format}), table);
    const Json report = json_of({"schedule", "--import", path, "--costs", "2,2,2,0"});
    EXPECT_EQ(report.at("chunks"), 2);
    EXPECT_NEAR(report.at("makespan").get<double>(), 8 * 6 + 3 * 6.0 / 2, 1e-9) << format;
  }
}

TEST(ScheduleVerb, AutoPlacesBranches) {
  const ScratchFolder folder;
  const std::string graph = folder.write("towers.json", R"({"ranks":2,"micro_batches":4,
      "segments":[{"name":"a","branch":"a"},{"name":"b","branch":"a"},
                  {"name":"c","branch":"b"},{"name":"d","branch":"b"}],
      "edges":[{"from":"a","to":"b"},{"from":"c","to":"d"}],
      "interactions":[{"members":["b","d"],"every":1}]})");
  const Json report = json_of({"schedule", "auto", "--graph", graph});
  const Json& placements = report.at("placements");
  // Each tower has a rank of its own, so that both work from the start.
  EXPECT_EQ(placements.at(0).at("placement"), "chain");
  EXPECT_EQ(report.at("makespan"), 4 * 6);
  EXPECT_EQ(placements.at(0).at("objective"), report.at("makespan"));
  EXPECT_NE(placements.at(0).at("why").get<std::string>().find("chosen"), std::string::npos);
  EXPECT_EQ(placements.back().at("why"), "none of its orders can end as early");
  EXPECT_EQ(report.at("graph").at("segments").at(1).at("rank"), 0);
  EXPECT_EQ(report.at("graph").at("segments").at(2).at("rank"), 1);
  EXPECT_EQ(heteroperf({"schedule", "1f1b", "--graph", graph}).exit_code, 2);
}

TEST(ScheduleVerb, TheNativeFormIsSimulated) {
  const ScratchFolder folder;
  const Words words{"schedule", "zb-v", "--ranks", "4", "--micro-batches", "8"};
  Words as_json = words;
  as_json.insert(as_json.end(), {"--format", "json"});
  const std::string path = folder.write("schedule.json", output_of(as_json));
  const Json direct = json_of(words);
  const Json simulated = json_of({"simulate", path, "--trace", folder / "trace.json"});
  EXPECT_EQ(simulated.at("step_time_s"), direct.at("makespan"));
  EXPECT_DOUBLE_EQ(simulated.at("throughput"), 8 / simulated.at("step_time_s").get<double>());
  EXPECT_EQ(simulated.at("per_rank").size(), 4u);
  EXPECT_FALSE(simulated.at("critical_path").empty());
  std::ifstream trace(folder / "trace.json");
  EXPECT_FALSE(Json::parse(trace).at("traceEvents").empty());
  EXPECT_EQ(json_of({"schedule", "--import", path}).at("hash"), direct.at("hash"));
  const Json dearer = json_of({"simulate", path, "--costs", "2,2,2,0"});
  EXPECT_EQ(dearer.at("step_time_s").get<double>(), 2 * direct.at("makespan").get<double>());
}

TEST(ScheduleVerb, AllStandSideBySide) {
  const Json all = json_of({"schedule", "all", "--ranks", "4", "--micro-batches", "8",
                            "--memory-limit", "4", "--evaluations", "50"});
  std::vector<std::string> names, skipped;
  for (const Json& one : all.at("schedules")) names.push_back(one.at("name"));
  for (const Json& one : all.at("skipped")) skipped.push_back(one.at("name"));
  EXPECT_NE(std::find(names.begin(), names.end(), "1f1b"), names.end());
  EXPECT_NE(std::find(names.begin(), names.end(), "auto"), names.end());
  EXPECT_NE(std::find(skipped.begin(), skipped.end(), "gpipe"), skipped.end());
  EXPECT_EQ(names.size() + skipped.size(), 17u);
  double best_auto = 0;
  for (const Json& one : all.at("schedules")) {
    if (one.at("name") == "auto") best_auto = one.at("makespan");
  }
  for (const Json& one : all.at("schedules")) {
    if (one.at("chunks") != 1 || one.at("weight_copies") != 1 || one.at("parts") != 1) continue;
    EXPECT_LE(best_auto, one.at("makespan").get<double>() + 1e-9) << one.at("name");
  }
}

TEST(ScheduleVerb, MemoryThatDoesNotFitIsToldByTheExitCode) {
  const CommandResult result = heteroperf({"schedule", "gpipe", "--ranks", "2", "--micro-batches",
                                           "8", "--memory-limit", "4", "--json"});
  EXPECT_EQ(result.exit_code, 8);
  EXPECT_FALSE(Json::parse(result.out).at("checks").at("memory_ok").get<bool>());
}

constexpr const char* two_branches = R"({"ranks": 2, "micro_batches": 2, "latency": 0,
  "segments": [
    {"name": "vision 0", "branch": "vision", "rank": 0, "forward": 20, "backward": 20, "weight": 20},
    {"name": "vision 1", "branch": "vision", "rank": 1, "forward": 14, "backward": 14, "weight": 14},
    {"name": "text", "branch": "text", "rank": 1, "forward": 6, "backward": 6, "weight": 6},
    {"name": "loss", "rank": 1, "forward": 0, "backward": 0, "weight": 0}],
  "edges": [{"from": "vision 0", "to": "vision 1"}, {"from": "vision 1", "to": "loss"},
            {"from": "text", "to": "loss"}]})";

TEST(ScheduleVerb, BranchesComeFromAGraphFile) {
  const ScratchFolder folder;
  const std::string path = folder.write("graph.json", two_branches);
  EXPECT_EQ(json_of({"schedule", "1f1b", "--graph", path}).at("makespan"), 180);
  EXPECT_LE(json_of({"schedule", "auto", "--graph", path}).at("makespan").get<double>(), 144);
}

TEST(ScheduleVerb, NetworksAreModelled) {
  const ScratchFolder folder;
  const std::string network = folder.write("network.json", R"({"bandwidth": 1, "capacity": 1})");
  const Words words{"schedule",        "1f1b", "--ranks", "4",
                    "--micro-batches", "8",    "--costs", "1,1,1,0.5"};
  Words links = words;
  links.insert(links.end(), {"--model", "links", "--network", network});
  const double free = json_of(words).at("makespan");
  EXPECT_GE(json_of(links).at("makespan").get<double>(), free);
}

struct BadTable {
  const char* name;
  std::string table;
  const char* message;
};

const BadTable bad_tables[] = {
    {"Empty", "", "empty"},
    {"UnknownToken", "0F0,0Q0\n", "0Q0"},
    {"Missing", "0F0,0F1,0B0\n", "0\\.1"},
    {"Duplicated", "0F0,0F0,0B0\n", "0\\.0"},
    {"GradientFirst", "0B0,0F0\n", "0\\.0"},
    {"Waiting", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", "wait for each other for ever"},
    {"StageOnTwoRanks", "0F0,0B0\n0F1,0B1\n", "0"},
    {"SendWithoutReceive", "0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n", "[Rr]eceive|RECV"},
};

TEST(ScheduleVerb, BadTablesGetOneClearMessage) {
  const ScratchFolder folder;
  for (const BadTable& bad : bad_tables) {
    const std::string path = folder.write("bad.csv", bad.table);
    const CommandResult result = heteroperf({"schedule", "--import", path});
    EXPECT_EQ(result.exit_code, 2) << bad.name << result.out;
    EXPECT_TRUE(std::regex_search(result.err, std::regex(bad.message))) << bad.name << result.err;
    EXPECT_EQ(result.out, "") << bad.name;
  }
}

struct BadWords {
  const char* name;
  Words words;
  const char* message;
};

const BadWords bad_words[] = {
    {"NoName", {"schedule"}, "no schedule is named"},
    {"UnknownName", {"schedule", "1f1c", "--ranks", "2", "--micro-batches", "2"}, "1f1b"},
    {"NoRanks", {"schedule", "1f1b", "--micro-batches", "2"}, "--ranks"},
    {"ZeroRanks", {"schedule", "1f1b", "--ranks", "0", "--micro-batches", "2"}, "--ranks 0"},
    {"AbsurdRanks", {"schedule", "1f1b", "--ranks", "1000000", "--micro-batches", "8"}, "1000000"},
    {"AbsurdMicroBatches",
     {"schedule", "1f1b", "--ranks", "1000", "--micro-batches", "2000000000"},
     "2000000000"},
    {"Costs",
     {"schedule", "1f1b", "--ranks", "2", "--micro-batches", "2", "--costs", "1,2,3"},
     "F,B,W,C"},
    {"NegativeCosts",
     {"schedule", "1f1b", "--ranks", "2", "--micro-batches", "2", "--costs", "1,-2,3,0"},
     "F,B,W,C"},
    {"HugeCosts",
     {"schedule", "1f1b", "--ranks", "2", "--micro-batches", "2", "--costs", "1e308,1,1,0"},
     "F,B,W,C"},
    {"InfiniteMemory",
     {"schedule", "1f1b", "--ranks", "2", "--micro-batches", "2", "--memory-limit", "inf"},
     "--memory-limit inf"},
    {"ManyChunks",
     {"schedule", "auto", "--ranks", "4", "--micro-batches", "4", "--chunks", "100000"},
     "128"},
    {"MissingCosts",
     {"schedule", "1f1b", "--ranks", "2", "--micro-batches", "2", "--costs-file", "nowhere.json"},
     "nowhere.json"},
    {"Chimera", {"schedule", "chimera", "--ranks", "3", "--micro-batches", "6"}, "2 or 4"},
    {"DualPipe", {"schedule", "dualpipe", "--ranks", "4", "--micro-batches", "6"}, "8"},
    {"Interleaved",
     {"schedule", "interleaved-1f1b", "--ranks", "4", "--micro-batches", "9", "--chunks", "2"},
     "micro-batches"},
    {"Format",
     {"schedule", "1f1b", "--ranks", "2", "--micro-batches", "2", "--format", "png"},
     "png"},
    {"Model",
     {"schedule", "1f1b", "--ranks", "2", "--micro-batches", "2", "--model", "x"},
     "links"},
    {"Objective",
     {"schedule", "auto", "--ranks", "2", "--micro-batches", "2", "--objective", "x"},
     "makespan"},
    {"Memory",
     {"schedule", "auto", "--ranks", "2", "--micro-batches", "2", "--memory-limit", "0.5"},
     "limit|memory"},
    {"MissingTable", {"schedule", "--import", "nowhere.csv"}, "nowhere.csv"},
    {"MissingGraph", {"schedule", "auto", "--graph", "nowhere.json"}, "nowhere.json"},
    {"MissingSchedule", {"simulate", "nowhere.json"}, "nowhere.json"},
};

TEST(ScheduleVerb, BadWordsGetOneClearMessage) {
  for (const BadWords& bad : bad_words) {
    Words words = bad.words;
    const CommandResult plain = heteroperf(words);
    EXPECT_EQ(plain.exit_code, 2) << bad.name << plain.out << plain.err;
    EXPECT_TRUE(std::regex_search(plain.err, std::regex(bad.message))) << bad.name << plain.err;
    words.emplace_back("--json");
    const CommandResult json = heteroperf(words);
    EXPECT_EQ(json.exit_code, 2) << bad.name;
    EXPECT_FALSE(Json::parse(json.out).at("error").at("details").empty()) << bad.name;
  }
}

TEST(ScheduleVerb, BadGraphsGetOneClearMessage) {
  const ScratchFolder folder;
  const auto message = [&](const std::string& text) {
    const CommandResult result =
        heteroperf({"schedule", "auto", "--graph", folder.write("graph.json", text)});
    EXPECT_EQ(result.exit_code, 2) << text << result.out;
    return result.err;
  };
  EXPECT_NE(message("{").find("graph.json"), std::string::npos);
  std::string cycle = two_branches, unknown = two_branches;
  const std::string last = R"({"from": "text", "to": "loss"})";
  cycle.replace(cycle.find(last), last.size(), R"({"from": "loss", "to": "vision 0"})");
  EXPECT_NE(message(cycle).find("cycle"), std::string::npos);
  unknown.replace(unknown.find("\"micro_batches\""), 15, "\"micro_batchs\"");
  EXPECT_NE(message(unknown).find("micro_batches"), std::string::npos);
}

}  // namespace
}  // namespace heteroperf::testing
