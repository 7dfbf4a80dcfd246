// Runs from start to record: what is written, what bad input gets, what survives an early end.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

/// A run of a few small steps.
Words tiny(const std::string& workload, const Words& more = {}) {
  const Words size = workload == "llm" ? Words{"--size", "nano"} : Words{};
  return joined(joined({"run", workload, "--micro-batch", "2", "--set", "measure.peak_s=0", "--set",
                        "measure.evaluation_samples=4", "-q"},
                       size),
                more);
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Json> journal_of(const std::string& folder) {
  std::ifstream file(folder + "/journal.jsonl");
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

std::vector<Json> lines_of_kind(const std::string& folder, const std::string& kind) {
  std::vector<Json> found;
  for (const Json& line : journal_of(folder)) {
    if (line.at("kind") == kind) found.push_back(line);
  }
  return found;
}

std::size_t count_lines(const std::string& path, const std::string& text) {
  std::ifstream file(path);
  std::size_t count = 0;
  for (std::string line; std::getline(file, line);) count += line.find(text) != std::string::npos;
  return count;
}

TEST(Run, EndsOnceItsThroughputIsKnown) {
  const ScratchFolder folder;
  const CommandResult result =
      heteroperf(tiny("llm", {"--ranks", "2", "--duration", "300", "--until", "50%", "--set",
                              "measure.until_after_s=0.5", "--out", "r", "--json"}),
                 folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json record = Json::parse(result.out);
  const Json& until = record.at("metrics").at("until");
  EXPECT_EQ(until.at("reached"), true) << until;
  EXPECT_EQ(until.at("requested_fraction"), 0.5);
  EXPECT_EQ(until.at("looks").size(), lines_of_kind(folder / "r", "look").size());
  const Json& told = record.at("metrics").at("throughput");
  const double low = told.at("ci95").at(0), value = told.at("value");
  EXPECT_NEAR(low, value / 2, 1e-6 * value);
  EXPECT_EQ(record.at("config").at("measure").at("until_percent"), 50);
  EXPECT_NE(record.at("reproduce").get<std::string>().find(" --until 50"), std::string::npos);
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
  const CommandResult shown = heteroperf({"show", "r"}, folder.path());
  EXPECT_TRUE(std::regex_search(shown.out, std::regex("until +± 50 % reached: ±"))) << shown.out;
}

TEST(Run, SaysHowLongAPrecisionWouldHaveTaken) {
  const ScratchFolder folder;
  const CommandResult result =
      heteroperf(tiny("llm", {"--ranks", "1", "--duration", "4", "--until", "0.1%", "--out", "r"}),
                 folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::regex_search(
      result.out, std::regex("until +± 0.1 % not reached: ± .* it takes .* s .--duration [0-9]+")))
      << result.out;
  const Json until = Json::parse(read(folder / "r/record.json")).at("metrics").at("until");
  EXPECT_EQ(until.at("reached"), false);
  EXPECT_GT(until.at("needed_s").get<double>(), 1.5);
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
}

TEST(Run, WritesARecordThatVerifies) {
  const ScratchFolder folder;
  const CommandResult result = heteroperf(
      tiny("llm", {"--ranks", "2", "--steps", "6", "--out", "r", "--json"}), folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json record = Json::parse(result.out);
  EXPECT_EQ(record, Json::parse(read(folder / "r/record.json")));
  EXPECT_EQ(record.at("_format"), "heteroperf-record");
  EXPECT_EQ(record.at("status"), "complete");
  EXPECT_EQ(record.at("validity").at("class"), "open");
  EXPECT_EQ(record.at("validity").at("rankable"), false);
  EXPECT_EQ(record.at("scale").at("ranks"), 2);
  EXPECT_EQ(record.at("operations").at("strict"), record.at("operations").at("executed"));
  EXPECT_GT(record.at("metrics").at("throughput").at("value").get<double>(), 0.0);
  EXPECT_GT(record.at("metrics").at("peak_memory_bytes").at("max").get<double>(), 0.0);
  for (const char* name : {"journal.jsonl", "config.json", "plan.json", "environment.json"}) {
    EXPECT_TRUE(fs::exists(folder / "r" / fs::path(name))) << name;
  }
  const CommandResult check = heteroperf({"verify", "r", "--json"}, folder.path());
  EXPECT_EQ(check.exit_code, 0) << check.out;
  EXPECT_EQ(heteroperf({"show", "r"}, folder.path()).exit_code, 0);
}

/// Measured at both ends, by a product that is named; the memory's rate or the reason why not.
TEST(Run, MeasuresItsPeakBeforeAndAfter) {
  const ScratchFolder folder;
  const CommandResult result = heteroperf({"run",
                                           "llm",
                                           "--size",
                                           "nano",
                                           "--ranks",
                                           "2",
                                           "--threads-per-rank",
                                           "1",
                                           "--micro-batch",
                                           "2",
                                           "--steps",
                                           "4",
                                           "--set",
                                           "measure.peak_s=0.05",
                                           "--set",
                                           "measure.evaluation_samples=4",
                                           "--out",
                                           "r",
                                           "-q",
                                           "--json"},
                                          folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> peaks = lines_of_kind(folder / "r", "peak");
  ASSERT_EQ(peaks.size(), 2u);
  EXPECT_NE(peaks[0].contains("memory_bytes_per_second"), peaks[0].contains("memory_reason"));
  EXPECT_FALSE(peaks[1].contains("memory_bytes_per_second"));
  double greatest = 0;
  for (const Json& peak : peaks) {
    greatest = std::max(greatest, peak.at("ops_per_second").get<double>());
    EXPECT_GT(peak.at("mm_ops_per_second").get<double>(), 0);
    EXPECT_GE(peak.at("products").size(), 1u);
    EXPECT_EQ(peak.at("tried").at(0), "aten::mm");
  }
  const Json record = Json::parse(result.out);
  const Json& utilization = record.at("metrics").at("utilization");
  EXPECT_EQ(utilization.at("peak_ops_per_second").get<double>(), greatest);
  EXPECT_TRUE(utilization.contains("peak_products"));
  EXPECT_TRUE(utilization.contains("peak_tried"));
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
}

/// On 2 CPUs or 200: that many threads share them.
TEST(Run, TellsNoRateOfMemoryThatThreadsShare) {
  const ScratchFolder folder;
  const std::string ranks = std::to_string(2 * std::thread::hardware_concurrency());
  const CommandResult result =
      heteroperf({"run", "llm", "--size", "nano", "--ranks", ranks, "--threads-per-rank", "1",
                  "--micro-batch", "1", "--steps", "2", "--set", "measure.peak_s=0.05", "--set",
                  "measure.evaluation_samples=" + ranks, "--out", "r", "-q"},
                 folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> peaks = lines_of_kind(folder / "r", "peak");
  ASSERT_EQ(peaks.size(), 2u);
  EXPECT_FALSE(peaks[0].contains("memory_bytes_per_second"));
  EXPECT_NE(peaks[0].at("memory_reason").get<std::string>().find(ranks + " threads share "),
            std::string::npos);
}

TEST(Run, CheckedRanksGetTheSameLosses) {
  const ScratchFolder folder;
  const auto losses = [&](const std::string& out, const Words& more) {
    const CommandResult result = heteroperf(
        joined(tiny("llm", {"--ranks", "2", "--steps", "3", "--out", out, "--json"}), more),
        folder.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const bool checked = Json::parse(result.out).at("config").at("comm").at("check");
    EXPECT_EQ(checked, !more.empty());
    std::vector<double> found;
    for (const Json& step : lines_of_kind(folder / out, "step")) found.push_back(step.at("loss"));
    EXPECT_GE(found.size(), 3U);
    return found;
  };
  EXPECT_EQ(losses("plain", {}), losses("checked", {"--set", "comm.check=true"}));
}

std::vector<double> losses_of(const fs::path& folder) {
  std::vector<double> losses;
  for (const Json& step : lines_of_kind(folder, "step")) losses.push_back(step.at("loss"));
  return losses;
}

/// Every way of products gives the same training but for its last digits, is counted to the last
/// operation, and stands in the command that repeats the run. One that this machine lacks is
/// refused.
TEST(Run, ProductsOfEveryWayTrainTheSame) {
  const ScratchFolder folder;
  std::vector<double> first;
  for (const std::string way : {"mkl", "own", "onednn"}) {
    const std::string setting = "engine.products=" + way;
    const CommandResult result =
        heteroperf(joined(tiny("llm", {"--ranks", "2", "--steps", "6", "--out", way, "--json"}),
                          {"--set", setting}),
                   folder.path());
    if (way == "onednn" && result.exit_code != 0) {
      EXPECT_EQ(result.exit_code, 5) << result.err;
      EXPECT_NE(result.err.find("this machine has no products by onednn"), std::string::npos)
          << result.err;
      continue;
    }
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const Json record = Json::parse(result.out);
    EXPECT_EQ(record.at("config").at("engine").at("products"), way);
    const bool named = record.at("reproduce").get<std::string>().find(setting) != std::string::npos;
    EXPECT_TRUE(named) << record.at("reproduce");
    EXPECT_EQ(record.at("products").dump(), Json({{"choice", way}}).dump());
    const Json& counts = record.at("operations").at("per_step");
    EXPECT_EQ(counts.at("executed"), counts.at("strict")) << counts;
    const std::vector<double> losses = losses_of(folder / way);
    if (first.empty()) first = losses;
    ASSERT_EQ(losses.size(), first.size());
    for (std::size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], first[i], 1e-4 * first[i]) << way << ", step " << i;
    }
    EXPECT_EQ(heteroperf({"verify", way}, folder.path()).exit_code, 0) << way;
  }
}

/// The ways that a run chose for itself stand in its record for each product, and who repeats the
/// run or goes on with it takes them from there: the same bits.
TEST(Run, ChosenWaysOfProductsArePartOfTheRun) {
  const ScratchFolder folder;
  const auto run = [&](const std::string& out, const Words& more) {
    const CommandResult result = heteroperf(
        joined(tiny("llm", {"--ranks", "2", "--steps", "6", "--out", out, "--json"}), more),
        folder.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out);
  };
  const Json record =
      run("chosen", {"--set", "checkpoint.at_end=true", "--set", "optimizer.schedule=constant"});
  const Json& products = record.at("products");
  EXPECT_GE(products.at("measured").size(), 6U) << products;
  for (const Json& product : products.at("measured")) {
    EXPECT_TRUE(product.at("seconds").contains(product.at("way").get<std::string>())) << product;
    EXPECT_GT(product.at("seconds").at("own"), 0) << product;
  }
  const std::string setting = "engine.products=" + products.at("choice").get<std::string>();
  EXPECT_NE(record.at("reproduce").get<std::string>().find(" --set " + setting), std::string::npos)
      << record.at("reproduce");
  const CommandResult shown = heteroperf({"show", "chosen"}, folder.path());
  EXPECT_TRUE(std::regex_search(
      shown.out,
      std::regex("products +[a-z]+ \\([0-9]+ of [0-9]+ shapes; [0-9.]+ x LibTorch's\\)")))
      << shown.out;
  const Json again = run("again", {"--set", setting, "--set", "optimizer.schedule=constant"});
  EXPECT_EQ(losses_of(folder / "again"), losses_of(folder / "chosen"));
  EXPECT_EQ(again.at("products").at("choice"), products.at("choice"));
  EXPECT_EQ(heteroperf({"verify", "chosen", "--replay", "3"}, folder.path()).exit_code, 0);
  const CommandResult resumed =
      heteroperf({"resume", "chosen", "--steps", "8", "--out", "resumed", "--json"}, folder.path());
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(Json::parse(resumed.out).at("products").at("choice"), products.at("choice"));
}

TEST(Run, RankLogsAreThereWhenAskedFor) {
  const ScratchFolder folder;
  const Words words = tiny("llm", {"--ranks", "2", "--steps", "3"});
  ASSERT_EQ(heteroperf(joined(words, {"--out", "without"}), folder.path()).exit_code, 0);
  EXPECT_FALSE(fs::exists(folder / "without/rank-0.log"));
  ASSERT_EQ(heteroperf(joined(words, {"--out", "with", "--rank-logs"}), folder.path()).exit_code,
            0);
  for (const char* name : {"with/rank-0.log", "with/rank-1.log"}) {
    const std::string log = read(folder / name);
    for (const char* line : {"llm nano", "step 0, loss ", "peak memory ", "  done\n"}) {
      EXPECT_NE(log.find(line), std::string::npos) << name << log;
    }
  }
  EXPECT_NE(read(folder / "with/rank-0.log").find("phase evaluate"), std::string::npos);
  EXPECT_EQ(heteroperf({"verify", "with"}, folder.path()).exit_code, 0);
  const Json record = Json::parse(read(folder / "with/record.json"));
  EXPECT_EQ(record.at("config").at("rank_logs"), true);
  EXPECT_EQ(record.at("reproduce").get<std::string>().find("rank_logs"), std::string::npos);
}

TEST(Run, AFlippedByteFailsVerification) {
  const ScratchFolder folder;
  ASSERT_EQ(heteroperf(tiny("llm", {"--ranks", "1", "--steps", "3", "--out", "r"}), folder.path())
                .exit_code,
            0);
  for (const char* name : {"journal.jsonl", "record.json"}) {
    const std::string path = folder / "r/" + name;
    const std::string good = read(path);
    std::string bad = good;
    bad[bad.size() / 2] ^= 1;
    folder.write(std::string("r/") + name, bad);
    EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 9) << name;
    folder.write(std::string("r/") + name, good);
  }
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
}

TEST(Run, TheSuiteRunsEveryWorkloadAndVerifiesAsAWhole) {
  const ScratchFolder folder;
  const CommandResult result = heteroperf({"run",
                                           "--ranks",
                                           "2",
                                           "--micro-batch",
                                           "2",
                                           "--steps",
                                           "4",
                                           "--size",
                                           "auto",
                                           "--set",
                                           "measure.peak_s=0",
                                           "--set",
                                           "measure.evaluation_samples=4",
                                           "--set",
                                           "automl.first_rung_steps=2",
                                           "--set",
                                           "automl.evaluation_samples=4",
                                           "--set",
                                           "model.sequence_length=16",
                                           "-q",
                                           "--out",
                                           "s",
                                           "--json"},
                                          folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(Json::parse(result.out).is_object());
  for (const char* workload : {"image", "automl-image", "llm"}) {
    EXPECT_TRUE(fs::exists(folder / "s" / fs::path(workload) / "record.json")) << workload;
  }
  const Json suite = Json::parse(read(folder / "s/suite.json"));
  EXPECT_EQ(suite.at("status"), "complete");
  for (const char* workload : {"image", "automl-image", "llm"}) {
    const Json start = journal_of(folder / "s/" + workload).front();
    EXPECT_EQ(start.at("suite").at("run_id"), suite.at("run_id"));
    EXPECT_EQ(start.at("suite").at("workloads"), Json({"image", "automl-image", "llm"}));
    EXPECT_EQ(start.at("suite_workload"), workload);
  }
  EXPECT_EQ(heteroperf({"verify", "s"}, folder.path()).exit_code, 0);
}

/// What must be equal when a search is repeated: all that is not a time.
Json repeatable(const std::string& folder) {
  Json lines = Json::array();
  for (Json line : journal_of(folder)) {
    const std::string kind = line.at("kind");
    if (kind != "trial" && kind != "step" && kind != "eval") continue;
    for (const char* key : {"t_ns", "t_start_ns", "t_end_ns", "prev", "split"}) line.erase(key);
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(Run, ASearchBySteps_RepeatsItsTrialsAndLosses) {
  const ScratchFolder folder;
  const Words search = tiny(
      "automl-image", {"--size", "w16", "--ranks", "2", "--steps", "14", "--seed", "5", "--set",
                       "automl.first_rung_steps=2", "--set", "automl.evaluation_samples=8"});
  ASSERT_EQ(heteroperf(joined(search, {"--out", "a"}), folder.path()).exit_code, 0);
  ASSERT_EQ(heteroperf(joined(search, {"--out", "b"}), folder.path()).exit_code, 0);
  const Json first = repeatable(folder / "a");
  EXPECT_GT(lines_of_kind(folder / "a", "trial").size(), 4u);
  EXPECT_EQ(first, repeatable(folder / "b"));
  ASSERT_EQ(heteroperf(joined(search, {"--out", "c", "--set", "automl.history=a"}), folder.path())
                .exit_code,
            0);
  EXPECT_NE(first, repeatable(folder / "c"));
}

std::int64_t time_of(const Json& line) { return line.at("t_ns").get<std::int64_t>(); }

/// The one final evaluation, behind the last step of all groups.
Json final_evaluation(const std::string& folder) {
  Json found;
  for (const Json& line : lines_of_kind(folder, "eval")) {
    if (!line.contains("final")) continue;
    EXPECT_TRUE(found.is_null()) << "a second one: " << line;
    found = line;
  }
  EXPECT_FALSE(found.is_null());
  for (const Json& step : lines_of_kind(folder, "step")) EXPECT_LE(time_of(step), time_of(found));
  return found;
}

void expect_scored_by(const Json& evaluation, const Json& record) {
  const Json& quality = record.at("metrics").at("quality");
  EXPECT_EQ(quality.at("final"), true);
  EXPECT_EQ(quality.at("value"), evaluation.at("accuracy"));
  EXPECT_EQ(quality.at("samples"), evaluation.at("samples"));
}

TEST(Run, ASearchByTimeEndsInAllGroupsAtOnce) {
  const ScratchFolder folder;
  constexpr double duration_s = 1.5;
  const CommandResult result = heteroperf(
      tiny("automl-image", {"--size", "w16", "--ranks", "3", "--duration", "1.5", "--set",
                            "automl.first_rung_steps=2", "--set", "automl.rungs=2", "--set",
                            "automl.evaluation_samples=8", "--out", "r", "--json"}),
      folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json record = Json::parse(result.out);
  std::int64_t measured_by_all_ns = 0, first_end_ns = INT64_MAX;
  std::set<int> ended;
  for (const Json& line : lines_of_kind(folder / "r", "phase")) {
    if (line.at("phase") == "measure") measured_by_all_ns = time_of(line);
    if (line.at("phase") != "finish") continue;
    first_end_ns = std::min(first_end_ns, time_of(line));
    EXPECT_TRUE(ended.insert(line.at("group").get<int>()).second) << "ends twice: " << line;
  }
  EXPECT_EQ(ended, (std::set<int>{0, 1, 2}));
  const double measured_s = record.at("metrics").at("measured_s");
  EXPECT_NEAR(measured_s, static_cast<double>(first_end_ns - measured_by_all_ns) * 1e-9, 1e-9);
  EXPECT_GE(measured_s, duration_s) << "asked for";
  for (const Json& line : lines_of_kind(folder / "r", "step")) {
    EXPECT_LT(line.at("t_start_ns").get<std::int64_t>(), first_end_ns) << "one group goes on";
  }
  const Json evaluation = final_evaluation(folder / "r");
  expect_scored_by(evaluation, record);
  EXPECT_EQ(evaluation.at("trial"), record.at("search").at("best").at("id"));
  const std::size_t wrong =
      record.at("metrics").at("regulated_score").at("wrong").get<std::size_t>();
  EXPECT_GE(wrong, 100u);
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
}

TEST(Run, AClassifierIsEvaluatedUntilItsErrorIsKnown) {
  const ScratchFolder folder;
  const auto evaluate = [&](const std::string& out, const Words& more) {
    const CommandResult result = heteroperf(
        joined(tiny("image", {"--ranks", "1", "--steps", "2", "--json", "--out", out}), more),
        folder.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    expect_scored_by(final_evaluation(folder / out), Json::parse(result.out));
    return lines_of_kind(folder / out, "eval").back();
  };
  const Json full = evaluate("full", {});
  const double samples = full.at("samples"), accuracy = full.at("accuracy");
  const double wrong = std::round(samples * (1 - accuracy));
  EXPECT_GE(wrong, 100);
  EXPECT_LE(wrong, 101) << "it goes on by two samples";
  EXPECT_EQ(evaluate("quick", {"--quick"}).at("samples"), 4);
}

/// CIFAR-10 records that all differ.
std::string distinct_images(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += char(i % 10) + std::string(3072, char(i + 1));
  return bytes;
}

/// Beginning behind the samples that trials were judged on, and round the end of the split.
TEST(Run, AFinalEvaluationTakesAllOfASmallSplit) {
  const ScratchFolder folder;
  folder.write("few/data_batch_1.bin", distinct_images(100));
  const CommandResult result = heteroperf(
      tiny("automl-image", {"--size", "w16", "--data", "cifar10:few", "--ranks", "1", "--steps",
                            "4", "--set", "automl.first_rung_steps=1", "--set",
                            "automl.evaluation_samples=3", "--json", "--out", "r"}),
      folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json record = Json::parse(result.out);
  const std::string data = record.at("workload").at("data");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(data, found, std::regex("([0-9]+) validation images"))) << data;
  EXPECT_LT(std::stoi(found[1]), 100);
  EXPECT_EQ(final_evaluation(folder / "r").at("samples"), std::stoi(found[1]));
}

struct BadRun {
  const char* name;
  Words arguments;
  int exit_code;
  const char* message;
};

class BadRuns : public ::testing::TestWithParam<BadRun> {};

TEST_P(BadRuns, EndWithOneClearMessage) {
  const ScratchFolder folder;
  folder.write("short.txt", "too short");
  folder.write("idx/images-idx3-ubyte",
               std::string("\0\0\x08\x03\0\0\0\x64\0\0\0\x1c\0\0\0\x1c", 16) + "cut");
  folder.write("idx/labels-idx1-ubyte",
               std::string("\0\0\x08\x01\0\0\0\x64", 8) + std::string(100, '\1'));
  folder.write("cifar/data_batch_1.bin", std::string(3073 * 2 + 100, '\1'));
  folder.write("few/data_batch_1.bin", distinct_images(12));
  folder.write("a_file", "");
  const CommandResult result = heteroperf(GetParam().arguments, folder.path());
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result.out << result.err;
  EXPECT_TRUE(std::regex_search(result.err, std::regex(GetParam().message))) << result.err;
}

const BadRun bad_runs[] = {
    {"TextShorterThanAContext", tiny("llm", {"--data", "text:short.txt", "--out", "r"}), 2,
     "short.txt"},
    {"TruncatedIdx", tiny("image", {"--data", "idx:idx", "--out", "r"}), 2, "images-idx3-ubyte"},
    {"TruncatedCifar", tiny("image", {"--data", "cifar10:cifar", "--out", "r"}), 2,
     "data_batch_1.bin"},
    {"MoreRanksThanSamples",
     tiny("image", {"--data", "cifar10:few", "--ranks", "16", "--out", "r"}), 2,
     "needs 32 samples a step"},
    {"NonFiniteLoss",
     tiny("llm", {"--ranks", "1", "--steps", "20", "--set", "optimizer.learning_rate=1e30", "--set",
                  "optimizer.warmup_steps=0", "--out", "r"}),
     6, "not finite at step"},
    {"OutIsAFile", tiny("llm", {"--steps", "2", "--out", "a_file"}), 2, "a_file"},
    {"OutIsReadOnly", tiny("llm", {"--steps", "2", "--out", "/proc/heteroperf"}), 2,
     "/proc/heteroperf"},
};

INSTANTIATE_TEST_SUITE_P(Run, BadRuns, ::testing::ValuesIn(bad_runs),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Run, ANonFiniteLossLeavesAFailedRecord) {
  const ScratchFolder folder;
  heteroperf(bad_runs[4].arguments, folder.path());
  const Json record = Json::parse(read(folder / "r/record.json"));
  EXPECT_EQ(record.at("status"), "failed");
  EXPECT_EQ(record.at("validity").at("class"), "invalid");
  EXPECT_FALSE(record.at("metrics").contains("ops_per_second"));
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
}

TEST(Run, AFullDiskIsNamedAndKeepsWhatWasWritten) {
  const ScratchFolder folder;
  std::string command = "ulimit -f 24; exec '" + heteroperf_path() + "'";
  for (const std::string& word : tiny("llm", {"--ranks", "1", "--duration", "60", "--out", "r"})) {
    command += " '" + word + "'";
  }
  Command run({"/bin/sh", "-c", command}, folder.path());
  const CommandResult result = run.finish();
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_NE(result.err.find("journal.jsonl"), std::string::npos) << result.err;
  EXPECT_EQ(heteroperf({"recover", "r"}, folder.path()).exit_code, 0);
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Run, TooLittleMemoryLeavesARecord) {
  const ScratchFolder folder;
  // A machine of many cores must not fill it with stacks and arenas of threads.
  std::string command = "ulimit -v 4000000; export MALLOC_ARENA_MAX=1 OMP_NUM_THREADS=1; exec '" +
                        heteroperf_path() + "'";
  for (const char* word : {"run", "llm", "--size", "nano", "--ranks", "2", "--threads-per-rank",
                           "1", "--micro-batch", "1024", "--steps", "3", "--out", "r", "-q"}) {
    command += std::string(" ") + word;
  }
  const CommandResult result = Command({"/bin/sh", "-c", command}, folder.path()).finish();
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_NE(result.err.find("there was not enough memory"), std::string::npos) << result.err;
  EXPECT_EQ(Json::parse(read(folder / "r/record.json")).at("status"), "failed");
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
}
#endif

/// A long run that has journalled some steps.
class EndedEarly : public ::testing::Test {
 protected:
  EndedEarly()
      : run_(joined({heteroperf_path()},
                    tiny("llm", {"--ranks", "2", "--duration", "300", "--out", "r"})),
             folder_.path()) {
    const bool stepped = run_.wait_until(
        [&] { return count_lines(folder_ / "r/journal.jsonl", "\"kind\":\"step\"") >= 3; });
    EXPECT_TRUE(stepped) << run_.finish(std::chrono::seconds(0)).err;
  }

  ScratchFolder folder_;
  Command run_;
};

TEST_F(EndedEarly, SigintKeepsAPartialRecord) {
  kill(run_.pid(), SIGINT);
  const CommandResult result = run_.finish();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(Json::parse(read(folder_ / "r/record.json")).at("status"), "partial");
  EXPECT_EQ(heteroperf({"verify", "r"}, folder_.path()).exit_code, 0);
}

TEST_F(EndedEarly, SigtermKeepsAPartialRecord) {
  kill(run_.pid(), SIGTERM);
  EXPECT_EQ(run_.finish().exit_code, 130);
  EXPECT_EQ(Json::parse(read(folder_ / "r/record.json")).at("status"), "partial");
}

TEST_F(EndedEarly, KillNineIsRecoverable) {
  const std::size_t steps = lines_of_kind(folder_ / "r", "step").size();
  kill(run_.pid(), SIGKILL);
  EXPECT_EQ(run_.finish().exit_code, 137);
  EXPECT_FALSE(fs::exists(folder_ / "r/record.json"));
  const CommandResult recovered = heteroperf({"recover", "r", "--json"}, folder_.path());
  ASSERT_EQ(recovered.exit_code, 0) << recovered.err;
  EXPECT_EQ(Json::parse(recovered.out).at("status"), "partial");
  EXPECT_GE(lines_of_kind(folder_ / "r", "step").size(), steps);
  EXPECT_EQ(heteroperf({"verify", "r"}, folder_.path()).exit_code, 0);
}

TEST_F(EndedEarly, KillNineLeavesAnUnfinishedRunThatSaysSo) {
  kill(run_.pid(), SIGKILL);
  run_.finish();
  const CommandResult shown = heteroperf({"show", "r"}, folder_.path());
  EXPECT_EQ(shown.exit_code, 2);
  EXPECT_NE(shown.err.find("unfinished"), std::string::npos) << shown.err;
  EXPECT_NE(shown.err.find("heteroperf recover r`"), std::string::npos) << shown.err;
  const CommandResult verified = heteroperf({"verify", "r"}, folder_.path());
  EXPECT_EQ(verified.exit_code, 9);
  EXPECT_NE(verified.out.find("heteroperf recover r`"), std::string::npos) << verified.out;
}

TEST_F(EndedEarly, ASignalThatComesTwiceIsOneWish) {
  for (int i = 0; i < 3; ++i) {  // as timeout(1) does
    kill(run_.pid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(run_.finish().exit_code, 130);
  const Json record = Json::parse(read(folder_ / "r/record.json"));
  EXPECT_EQ(record.at("status"), "partial");
  EXPECT_EQ(record.at("status_reason"), "SIGTERM");
}

/// Evaluates for ever.
Words endless_evaluation(const std::string& key, const std::string& workload, const Words& more) {
  return joined({heteroperf_path(), "run", workload, "--ranks", "2", "--micro-batch", "2", "--set",
                 "measure.peak_s=0", "--set", key + "=100000000", "-q", "--out", "r"},
                more);
}

TEST(RunSignals, AnEvaluationIsInterrupted) {
  const ScratchFolder folder;
  Command run(
      endless_evaluation("measure.evaluation_samples", "llm", {"--size", "nano", "--steps", "2"}),
      folder.path());
  ASSERT_TRUE(run.wait_until(
      [&] { return count_lines(folder / "r/journal.jsonl", "\"phase\":\"evaluate\"") > 0; }));
  kill(run.pid(), SIGINT);
  const CommandResult result = run.finish(std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 130) << result.err;
  const Json record = Json::parse(read(folder / "r/record.json"));
  EXPECT_EQ(record.at("status"), "partial");
  EXPECT_EQ(record.at("status_reason"), "SIGINT");
  EXPECT_TRUE(lines_of_kind(folder / "r", "eval").empty());
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
}

TEST(RunSignals, ASearchsEvaluationIsInterrupted) {
  const ScratchFolder folder;
  Command run(endless_evaluation("automl.evaluation_samples", "automl-image",
                                 {"--size", "w16", "--duration", "300", "--set",
                                  "automl.first_rung_steps=1", "--set", "automl.group_ranks=2"}),
              folder.path());
  ASSERT_TRUE(run.wait_until(
      [&] { return count_lines(folder / "r/journal.jsonl", "\"kind\":\"step\"") > 0; }));
  kill(run.pid(), SIGINT);
  const CommandResult result = run.finish(std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(Json::parse(read(folder / "r/record.json")).at("status"), "partial");
  EXPECT_EQ(lines_of_kind(folder / "r", "trial").back().at("state"), "truncated");
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
}

/// In virtual time a group's answer may wait for another group, which must say that it leaves.
TEST(RunSignals, ASearchByStepsIsInterruptedInEveryGroup) {
  const ScratchFolder folder;
  Command run({heteroperf_path(),
               "run",
               "automl-image",
               "--size",
               "w16",
               "--ranks",
               "3",
               "--micro-batch",
               "2",
               "--steps",
               "1000000",
               "--set",
               "measure.peak_s=0",
               "--set",
               "automl.first_rung_steps=3",
               "--set",
               "automl.evaluation_samples=4",
               "-q",
               "--out",
               "r"},
              folder.path());
  ASSERT_TRUE(run.wait_until(
      [&] { return count_lines(folder / "r/journal.jsonl", "\"kind\":\"trial\"") > 6; }));
  kill(run.pid(), SIGINT);
  const CommandResult result = run.finish(std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 130) << result.err;
  const Json record = Json::parse(read(folder / "r/record.json"));
  EXPECT_EQ(record.at("status"), "partial");
  EXPECT_GT(record.at("search").at("master").at("answers").get<int>(), 6);
  EXPECT_EQ(record.at("search").at("master").at("groups_lost"), 0);
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
}

// ---------------------------------------------------------------- suites that end early

Words suite(const Words& more) {
  return joined({"run", "--ranks", "2", "--micro-batch", "2", "--set", "measure.peak_s=0", "--set",
                 "measure.evaluation_samples=4", "--set", "automl.first_rung_steps=2", "--set",
                 "automl.evaluation_samples=4", "--set", "model.sequence_length=16", "-q"},
                more);
}

TEST(EarlySuite, AnInterruptLeavesATrueSuiteRecord) {
  const ScratchFolder folder;
  fs::create_directories(folder / "results");
  fs::create_directory_symlink("older", folder / "results/latest");
  Command run(joined({heteroperf_path()}, suite({"--duration", "300", "--json"})), folder.path());
  const auto stepped = [&] {
    return count_lines(folder / "results/latest/image/journal.jsonl", "\"kind\":\"step\"") > 0;
  };
  ASSERT_TRUE(run.wait_until(stepped));
  kill(run.pid(), SIGINT);
  const CommandResult result = run.finish();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  const Json record = Json::parse(result.out);
  EXPECT_EQ(record.at("status"), "partial");
  EXPECT_TRUE(record.at("workloads").at(0).contains("record_sha256"));
  const CommandResult check = heteroperf({"verify", "results/latest"}, folder.path());
  EXPECT_EQ(check.exit_code, 0) << check.out;
}

TEST(EarlySuite, AFailureLeavesATrueSuiteRecord) {
  const ScratchFolder folder;
  const CommandResult result =
      heteroperf(suite({"--steps", "20", "--set", "optimizer.learning_rate=1e30", "--set",
                        "optimizer.warmup_steps=0", "--out", "s", "--json"}),
                 folder.path());
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_TRUE(Json::parse(result.out).contains("error"));
  const Json record = Json::parse(read(folder / "s/suite.json"));
  EXPECT_EQ(record.at("status"), "failed");
  const CommandResult check = heteroperf({"verify", "s"}, folder.path());
  EXPECT_EQ(check.exit_code, 0) << check.out;
}

// ---------------------------------------------------------------- latest

TEST(Latest, BesideOutIsTheUsers) {
  const ScratchFolder folder;
  fs::create_directories(folder / "own/mine");
  fs::create_directory_symlink("mine", folder / "own/latest");
  ASSERT_EQ(
      heteroperf(tiny("llm", {"--ranks", "1", "--steps", "2", "--out", "own/run1"}), folder.path())
          .exit_code,
      0);
  EXPECT_EQ(fs::read_symlink(folder / "own/latest"), "mine");
  ASSERT_EQ(
      heteroperf(tiny("llm", {"--ranks", "1", "--steps", "2", "--out", "run2"}), folder.path())
          .exit_code,
      0);
  EXPECT_FALSE(fs::exists(fs::symlink_status(folder / "latest")));
}

TEST(Latest, NamesARunThatWasKilled) {
  const ScratchFolder folder;
  Command run(joined({heteroperf_path()}, tiny("llm", {"--ranks", "1", "--duration", "300"})),
              folder.path());
  const bool stepped = run.wait_until([&] {
    return count_lines(folder / "results/latest/journal.jsonl", "\"kind\":\"step\"") > 0;
  });
  kill(run.pid(), SIGKILL);
  const CommandResult result = run.finish();
  EXPECT_TRUE(stepped) << result.err;
  EXPECT_EQ(heteroperf({"recover", "results/latest"}, folder.path()).exit_code, 0);
}

}  // namespace
}  // namespace heteroperf::testing
