// Speed as its users meet it: which way makes each product of this machine, which configuration is
// the fastest, and whether the operations that a run says it executed are those that the libraries
// say they made.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

// ---------------------------------------------------------------- the libraries' own logs

/// 2 per multiply-add of "MKL_VERBOSE SGEMM(N,T,768,2048,256,…) …": rows, columns, inner extent.
double operations_of_mkl(const std::string& line) {
  static const std::regex product(
      "^MKL_VERBOSE SGEMM(?:_[A-Z]+)?\\([NTC],[NTC],([0-9]+),([0-9]+),([0-9]+),.*");
  std::smatch match;
  if (!std::regex_match(line, match, product)) return 0;
  return 2 * std::stod(match[1]) * std::stod(match[2]) * std::stod(match[3]);
}

/// 2 per multiply-add of a convolution's line, whose last words are its extents:
/// "…,g1mb32_ic64oc128_ih16oh8kh3sh2dh0ph1_iw16ow8kw3sw2dw0pw1,0.5".
double operations_of_onednn(const std::string& line) {
  if (line.find(",convolution,") == std::string::npos || line.find(",exec") == std::string::npos) {
    return 0;
  }
  static const std::regex extents(
      "(?:g([0-9]+))?mb([0-9]+)_ic([0-9]+)oc([0-9]+)_ih[0-9]+oh([0-9]+)kh([0-9]+)[a-z0-9]*"
      "_iw[0-9]+ow([0-9]+)kw([0-9]+)");
  std::smatch match;
  if (!std::regex_search(line, match, extents)) return 0;
  double operations = 2;
  for (std::size_t i = 2; i <= 8; ++i) operations *= std::stod(match[i]);
  return match[1].matched ? operations / std::stod(match[1]) : operations;
}

/// The operations in one process's log, and its record.
struct Logged {
  double operations = 0;
  std::size_t of_mkl = 0, of_onednn = 0;  ///< lines
  Json record;
};

Logged logged_run(const Words& words, const std::string& steps) {
  const ScratchFolder folder;
  const CommandResult result = heteroperf(
      joined(words, {"--quick", "--ranks", "1", "--threads-per-rank", "1", "--steps", steps,
                     "--set", "measure.warmup_steps=1", "--set", "measure.peak_s=0", "--set",
                     "measure.evaluation_samples=1", "--out", "r"}),
      folder.path(), {"MKL_VERBOSE=1", "ONEDNN_VERBOSE=1"});
  EXPECT_EQ(result.exit_code % 8, 0) << result.err;  // so few steps are no valid result
  Logged logged;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const double mkl = operations_of_mkl(line), onednn = operations_of_onednn(line);
    logged.of_mkl += mkl > 0 ? 1 : 0;
    logged.of_onednn += onednn > 0 ? 1 : 0;
    logged.operations += mkl + onednn;
  }
  const CommandResult record = heteroperf({"show", "r", "--json"}, folder.path());
  logged.record = Json::parse(record.out);
  return logged;
}

double executed_per_step(const Json& record) {
  return std::stod(record.at("operations").at("per_step").at("executed").get<std::string>());
}

/// The operations that the libraries make in one step: what a run of three steps logs more than one
/// of two.
double logged_per_step(const Words& words, Logged& longer) {
  const Logged shorter = logged_run(words, "2");
  longer = logged_run(words, "3");
  return longer.operations - shorter.operations;
}

TEST(Witness, ALanguageModelsProductsAreThoseThatMklLogs) {
  // Attention of our own is in nobody's log: with none of it in the passes, what is left is MKL's.
  Logged run;
  const double products = logged_per_step({"run", "llm", "--size", "micro", "--set",
                                           "engine.products=mkl:8x8x8nn/own:1x4x4x64x64causal"},
                                          run);
  if (run.of_mkl == 0) GTEST_SKIP() << "this LibTorch's BLAS is no MKL, or keeps no log";
  const Json counted = Json::parse(heteroperf({"count", "micro", "--per-layer", "--json"}).out);
  double attention = 0;
  for (const Json& layer : counted.at("layers")) {
    if (layer.at("kind") != "attention") continue;
    for (const char* pass : {"forward", "input_gradient"}) {
      attention += std::stod(layer.at("strict").at(pass).get<std::string>());
    }
  }
  ASSERT_GT(attention, 0) << counted;
  const double samples = run.record.at("workload").at("samples_per_step").get<double>();
  EXPECT_EQ(executed_per_step(run.record), products + attention * samples);
}

TEST(Witness, AClassifiersProductsAreThoseThatTheLibrariesLog) {
  Logged run;
  const double products = logged_per_step(
      {"run", "image", "--micro-batch", "8", "--set", "engine.products=libtorch"}, run);
  if (run.of_mkl + run.of_onednn == 0) GTEST_SKIP() << "this LibTorch's libraries keep no logs";
  EXPECT_GT(run.of_onednn, 0U);
  EXPECT_EQ(executed_per_step(run.record), products);
}

// ---------------------------------------------------------------- what is fastest here

TEST(DoctorSpeed, TellsTheRateOfEveryWayAndTheOneThatIsTaken) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "cache");
  const Words cache{"XDG_CACHE_HOME=" + (folder / "cache")};
  const CommandResult result = heteroperf({"doctor", "--speed", "--json"}, folder.path(), cache);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json speed = Json::parse(result.out).at("speed");
  EXPECT_GT(speed.at("peak_ops_per_second"), 1e8);
  std::map<std::string, std::size_t> products;
  for (const Json& product : speed.at("products")) {
    ++products[product.at("workload").get<std::string>()];
    const std::string way = product.at("way").get<std::string>();
    double fastest = 0;
    for (const auto& [key, value] : product.items()) {
      if (key.ends_with("_ops_per_second")) fastest = std::max(fastest, value.get<double>());
    }
    EXPECT_GE(product.at(way + "_ops_per_second").get<double>(), .97 * fastest) << product;
    EXPECT_LE(product.at("utilization"), 1) << product;
  }
  EXPECT_EQ(products.size(), 3U);
  // A run of the same kind takes these times and measures nothing.
  const CommandResult run =
      heteroperf({"run", "image", "--steps", "1", "--set", "measure.peak_s=0", "--json"},
                 folder.path(), cache);
  const Json record = Json::parse(run.out);
  for (const Json& measured : record.at("products").at("measured")) {
    bool same = false;
    for (const Json& product : speed.at("products")) {
      same = same || (product.at("shape") == measured.at("shape") &&
                      product.at("way") == measured.at("way"));
    }
    EXPECT_TRUE(same) << measured;
  }
}

/// True once the process has a handler of its own for the signal.
bool catches(pid_t pid, int signal_number) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string word;
  while (status >> word) {
    if (word != "SigCgt:") continue;
    status >> word;
    return (std::stoull(word, nullptr, 16) >> (signal_number - 1) & 1) != 0;
  }
  return false;
}

TEST(DoctorSpeed, ASignalEndsItWithoutATable) {
  const ScratchFolder folder;
  Command command({heteroperf_path(), "doctor", "--speed"}, folder.path(),
                  {"XDG_CACHE_HOME=" + folder.path()});
  ASSERT_TRUE(command.wait_until([&] { return catches(command.pid(), SIGINT); }));
  kill(command.pid(), SIGINT);
  const CommandResult result = command.finish();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_NE(result.err.find("stopped by a signal"), std::string::npos) << result.err;
  EXPECT_EQ(result.out, "");
}

Words tuned(const std::string& seconds, const Words& more = {}) {
  return joined({"run", "llm", "--size", "nano", "--ranks", "1", "--threads-per-rank", "1",
                 "--tune", seconds, "--out", "t"},
                more);
}

TEST(Tune, PrintsTheBestThreeAndTheCommandOfTheBest) {
  const ScratchFolder folder;
  const CommandResult result = heteroperf(tuned("60", {"--json"}), folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json tuning = Json::parse(result.out);
  const Json& best = tuning.at("best");
  ASSERT_EQ(best.size(), 3U) << tuning;
  EXPECT_GE(tuning.at("configurations").size(), 3U);
  for (std::size_t i = 0; i < best.size(); ++i) {
    EXPECT_LE(best[i].at("rate"), best[0].at("rate"));
    EXPECT_LE(best[i].at("ci95")[0], best[i].at("ci95")[1]);
    EXPECT_GE(best[i].at("runs"), 2);
  }
  const std::string command = tuning.at("command").get<std::string>();
  EXPECT_NE(command.find("heteroperf run llm "), std::string::npos) << command;
  const std::string micro_batch = best[0].at("batch").at("micro_batch").get<std::string>();
  EXPECT_NE(command.find(" --micro-batch " + micro_batch), std::string::npos) << command;
  EXPECT_TRUE(std::filesystem::exists(folder / "t/tuning.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "results/latest"));
}

TEST(Tune, RefusesATimeThatIsTooShortForTwoRounds) {
  const ScratchFolder folder;
  const CommandResult result = heteroperf(tuned("3"), folder.path());
  EXPECT_EQ(result.exit_code, 2) << result.out;
  EXPECT_NE(result.err.find("--tune 3 is too short for two rounds"), std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("Give "), std::string::npos) << result.err;
}

TEST(Tune, RefusesAxesThatChangeItsWindowOrTheWork) {
  const ScratchFolder folder;
  for (const auto& [axis, path] :
       {std::pair("duration=5,30", "measure.duration_s"), std::pair("pp=1,2", "plan.pipeline")}) {
    const CommandResult result =
        heteroperf({"run", "llm", "--ranks", "2", "--tune", "60", "--sweep", axis}, folder.path());
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_NE(result.err.find("--tune cannot sweep " + std::string(path)), std::string::npos)
        << result.err;
  }
}

}  // namespace
}  // namespace heteroperf::testing
