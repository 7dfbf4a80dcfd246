// Runs that refer to runs: the printed command, and searches that start from a history.
#include <gtest/gtest.h>

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

const Words small{"--micro-batch", "2", "--set", "measure.peak_s=0", "-q"};

Words tiny_llm(const Words& more) {
  return joined(
      joined({"run", "llm", "--size", "nano", "--set", "measure.evaluation_samples=4"}, small),
      more);
}

Words tiny_search(const Words& more) {
  return joined(
      joined({"run", "automl-image", "--size", "w16", "--ranks", "2", "--steps", "14", "--set",
              "automl.first_rung_steps=2", "--set", "automl.evaluation_samples=8"},
             small),
      more);
}

Json json_file(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

void expect_success(const CommandResult& result) { ASSERT_EQ(result.exit_code, 0) << result.err; }

TEST(RunAgain, ThePrintedCommandIsTheSameRun) {
  const ScratchFolder folder;
  expect_success(heteroperf(
      tiny_llm({"--steps", "4", "--set", "out=first", "--set", "optimizer.learning_rate=0.002"}),
      folder.path(), {"HETEROPERF_SEED=9"}));
  const Json first = json_file(folder / "first/record.json");
  const std::string command = first.at("reproduce");
  EXPECT_EQ(command.find("first"), std::string::npos) << command;
  EXPECT_NE(command.find("--seed 9"), std::string::npos) << command;
  std::istringstream text(command);
  Words words{std::istream_iterator<std::string>(text), {}};
  words.erase(words.begin());
  expect_success(heteroperf(joined(words, {"--out", "second"}), folder.path()));
  const Json second = json_file(folder / "second/record.json");
  EXPECT_EQ(second.at("reproduce"), command);
  EXPECT_EQ(second.at("metrics").at("quality").at("value"),
            first.at("metrics").at("quality").at("value"));
}

/// The command that an error names between back quotes, run where it was named.
CommandResult follow(const std::string& error, const ScratchFolder& folder) {
  const std::size_t begin = error.find('`'), end = error.rfind('`');
  EXPECT_LT(begin, end) << error;
  const std::string command = error.substr(begin + 1, end - begin - 1);
  const std::string place = std::filesystem::path(heteroperf_path()).parent_path().string();
  return Command({"/bin/bash", "-c", "PATH=" + place + ":$PATH; " + command}, folder.path())
      .finish();
}

TEST(RunAgain, AFinishedTrainingBySteps) {
  const ScratchFolder folder;
  expect_success(heteroperf(
      tiny_llm({"--steps", "4", "--set", "checkpoint.at_end=true", "--out", "r"}), folder.path()));
  const std::vector<Words> lengths{{}, {"--steps", "8"}, {"--duration", "3"}};
  std::set<std::string> answers;
  for (const Words& length : lengths) {
    const CommandResult refused = heteroperf(joined({"resume", "r"}, length), folder.path());
    EXPECT_EQ(refused.exit_code, 2);
    answers.insert(refused.err);
  }
  ASSERT_EQ(answers.size(), 1u) << *answers.begin() << *answers.rbegin();
  expect_success(follow(*answers.begin(), folder));
}

TEST(RunAgain, AFinishedTrainingAtAConstantRate) {
  const ScratchFolder folder;
  expect_success(heteroperf(tiny_llm({"--steps", "4", "--set", "optimizer.schedule=constant",
                                      "--set", "checkpoint.at_end=true", "--out", "r"}),
                            folder.path()));
  const CommandResult refused = heteroperf({"resume", "r"}, folder.path());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--steps 8"), std::string::npos) << refused.err;
  expect_success(follow(refused.err, folder));
  expect_success(heteroperf({"resume", "r", "--duration", "0.1"}, folder.path()));
}

TEST(RunAgain, ARunByTimeWithoutCheckpoints) {
  const ScratchFolder folder;
  expect_success(heteroperf(tiny_llm({"--duration", "0.1", "--out", "r"}), folder.path()));
  for (const Words& length : std::vector<Words>{{}, {"--steps", "8"}, {"--duration", "3"}}) {
    const CommandResult refused = heteroperf(joined({"resume", "r"}, length), folder.path());
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("r has no checkpoint"), std::string::npos) << refused.err;
  }
  expect_success(follow(heteroperf({"resume", "r"}, folder.path()).err, folder));
  expect_success(heteroperf({"resume", "results/latest"}, folder.path()));
}

TEST(RunAgain, TheConfigurationHoldsWhatWasChosen) {
  const ScratchFolder folder;
  expect_success(heteroperf(tiny_llm({"--duration", "0.1", "--out", "r"}), folder.path()));
  const Json config = json_file(folder / "r/config.json");
  EXPECT_EQ(config.at("model").at("size"), "nano");
  EXPECT_EQ(config.at("model").at("sequence_length"), 128);
  EXPECT_EQ(config.at("optimizer").at("learning_rate"), 1e-3);
  EXPECT_EQ(config.at("optimizer").at("schedule"), "constant");
  EXPECT_EQ(config.at("batch").at("micro_batches"), 1);
  EXPECT_FALSE(config.contains("automl"));
  EXPECT_FALSE(config.at("model").contains("name"));
  const Json workload = json_file(folder / "r/record.json").at("workload").at("config");
  EXPECT_EQ(workload.at("optimizer").at("schedule"), "constant");
}

TEST(RunAgain, ASweepGoesOnWhereItWasKilled) {
  const ScratchFolder folder;
  const Words words =
      tiny_llm({"--sweep", "ranks=1,2", "--repeat", "2", "--steps", "4", "--out", "s", "--json"});
  Command killed(joined({heteroperf_path()}, words), folder.path());
  ASSERT_TRUE(killed.wait_until(
      [&] { return std::filesystem::exists(folder / "s/001-ranks=1-seed=1/record.json"); }));
  kill(killed.pid(), SIGKILL);
  killed.finish();
  CommandResult again;
  do {  // as long as the run that was going on holds the folder
    again = heteroperf(words, folder.path());
  } while (again.exit_code == 2 && again.err.find("another process") != std::string::npos);
  expect_success(again);
  const Json sweep = Json::parse(again.out);
  EXPECT_EQ(sweep.at("status"), "complete");
  EXPECT_EQ(sweep.at("results").size(), 2u);
  std::set<std::string> seeds;
  for (const Json& run : sweep.at("runs")) {
    const std::string home = folder / "s/" + run.at("folder").get<std::string>();
    EXPECT_EQ(json_file(home + "/record.json").at("seeds").at("run"), run.at("seed"));
    seeds.insert(run.at("point").dump() + run.at("seed").dump());
  }
  EXPECT_EQ(seeds.size(), 4u);
  expect_success(heteroperf({"verify", "s"}, folder.path()));
  EXPECT_EQ(heteroperf({"compare", "s", "s"}, folder.path()).exit_code, 2);
}

TEST(RunAgain, ASweepGoesOnWithAnIndexMadeAgain) {
  const ScratchFolder folder;
  const Words words =
      tiny_llm({"--sweep", "ranks=1,2", "--repeat", "2", "--steps", "4", "--out", "s", "--json"});
  expect_success(heteroperf(words, folder.path()));
  const Json before = json_file(folder / "s/sweep.json");
  std::filesystem::remove(folder / "s/sweep.json");
  std::filesystem::remove_all(folder / "s/004-ranks=1-seed=2");
  EXPECT_EQ(heteroperf(words, folder.path()).exit_code, 2);
  const CommandResult recovered = heteroperf({"recover", "s", "--json"}, folder.path());
  expect_success(recovered);
  const Json rebuilt = Json::parse(recovered.out);
  EXPECT_EQ(rebuilt.at("runs").size(), 3u);
  EXPECT_EQ(rebuilt.at("status"), "partial");
  for (const char* key : {"command", "axes", "points", "first_seed"}) {
    EXPECT_EQ(rebuilt.at(key), before.at(key)) << key;
  }
  expect_success(heteroperf({"verify", "s"}, folder.path()));
  const CommandResult again = heteroperf(words, folder.path());
  expect_success(again);
  const Json whole = Json::parse(again.out);
  EXPECT_EQ(whole.at("status"), "complete");
  for (const Json& run : whole.at("runs")) {  // only the last was run again
    EXPECT_EQ(run.contains("wall_s"), run.at("folder") == "004-ranks=1-seed=2") << run;
  }
  EXPECT_FALSE(json_file(folder / "s/sweep.json").contains("rebuilt"));
}

TEST(RunAgain, EveryRunOfASuiteHasACommandOfItsOwn) {
  const ScratchFolder folder;
  expect_success(heteroperf(
      joined(
          {"run", "--ranks", "1", "--steps", "4", "--set", "measure.evaluation_samples=4", "--set",
           "automl.first_rung_steps=2", "--set", "automl.evaluation_samples=8", "--out", "s"},
          small),
      folder.path()));
  for (const std::string workload : {"image", "automl-image", "llm"}) {
    const std::string command =
        json_file(folder / ("s/" + workload + "/record.json")).at("reproduce");
    EXPECT_EQ(command.find("heteroperf run " + workload + " --ranks 1 "), 0u) << command;
    EXPECT_EQ(command.find("automl.first") != std::string::npos, workload == "automl-image")
        << command;
  }
}

std::set<std::uint64_t> trials_of(const std::string& folder) {
  std::ifstream file(folder + "/journal.jsonl");
  std::set<std::uint64_t> ids;
  for (std::string line; std::getline(file, line);) {
    const Json event = Json::parse(line);
    if (event.at("kind") == "trial") ids.insert(event.at("id").get<std::uint64_t>());
  }
  return ids;
}

class History : public ::testing::Test {
 protected:
  History() { expect_success(heteroperf(tiny_search({"--out", "a"}), folder_.path())); }

  void expect_refusal(const Words& words, const std::string& why) {
    const CommandResult result = heteroperf(joined(words, {"--out", "r"}), folder_.path());
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "r"));
  }

  ScratchFolder folder_;
};

TEST_F(History, AChainKnowsTheTrialsOfAllItsRuns) {
  expect_success(
      heteroperf(tiny_search({"--out", "b", "--set", "automl.history=a"}), folder_.path()));
  std::filesystem::create_directory(folder_ / "elsewhere");
  expect_success(heteroperf(tiny_search({"--out", "c", "--set", "automl.history=../b"}),
                            folder_ / "elsewhere"));
  const auto a = trials_of(folder_ / "a"), b = trials_of(folder_ / "b"),
             c = trials_of(folder_ / "elsewhere/c");
  EXPECT_GT(*b.begin(), *a.rbegin());
  EXPECT_GT(*c.begin(), *b.rbegin());
  // A chain with a lost run is no history.
  std::filesystem::remove_all(folder_ / "a");
  expect_refusal(tiny_search({"--set", "automl.history=b"}), "no such run");
}

TEST_F(History, OfAnotherShapeIsRefusedBeforeAnythingIsWritten) {
  std::string images("\0\0\x08\x03\0\0\0\x64\0\0\0\x1c\0\0\0\x1c", 16), labels;
  labels.assign("\0\0\x08\x01\0\0\0\x64", 8);
  for (int i = 0; i < 100; ++i) {
    images += std::string(28 * 28, char(i + 1));
    labels += char(i % 10);
  }
  folder_.write("idx/images-idx3-ubyte", images);
  folder_.write("idx/labels-idx1-ubyte", labels);
  expect_refusal(tiny_search({"--data", "idx:idx", "--set", "automl.history=a"}),
                 "has samples {3, 32, 32} and outputs {10}, this run samples {1, 28, 28}");
}

TEST_F(History, OfAnotherWorkloadIsRefused) {
  expect_success(heteroperf(tiny_llm({"--steps", "2", "--out", "l"}), folder_.path()));
  expect_refusal(tiny_search({"--set", "automl.history=l"}), "it is a run of llm");
}

#ifdef HETEROPERF_MPIRUN

const Words as_root{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                    "OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_mpi_yield_when_idle=1"};

CommandResult under_mpirun(const Words& words, const std::string& folder) {
  Command run(joined({HETEROPERF_MPIRUN, "-n", "2", heteroperf_path()}, words), folder, as_root);
  return run.finish();
}

TEST(RunAgain, UnderALauncherTheCommandNamesIt) {
  const ScratchFolder folder;
  expect_success(under_mpirun(tiny_llm({"--steps", "2", "--out", "r"}), folder.path()));
  const std::string command = json_file(folder / "r/record.json").at("reproduce");
  EXPECT_EQ(command.find("mpirun -n 2 heteroperf run llm --threads-per-rank "), 0u) << command;
  EXPECT_EQ(command.find("--transport"), std::string::npos) << command;
}

TEST(RunAgain, ThreadsUnderALauncherAreRefused) {
  const ScratchFolder folder;
  const CommandResult result =
      under_mpirun(tiny_llm({"--steps", "2", "--transport", "threads"}), folder.path());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("--transport threads does not fit the launcher's world"),
            std::string::npos)
      << result.err;
}

#endif

}  // namespace
}  // namespace heteroperf::testing
