// `verify --replay`: losses that were trained are confirmed, invented ones are not.
#include <gtest/gtest.h>

#include <concepts>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "results/journal/journal.hpp"
#include "tests/golden/command.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

Words short_llm(const Words& more) {
  return joined({"run", "llm", "--size", "nano", "--ranks", "2", "--micro-batch", "2", "--set",
                 "measure.evaluation_samples=4", "--set", "measure.peak_s=0", "-q"},
                more);
}

class Replay : public ::testing::Test {
 protected:
  void run(const Words& words) const {
    const CommandResult result = heteroperf(words, folder_.path());
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  CommandResult verify(const Words& words) const {
    return heteroperf(joined({"verify"}, words), folder_.path());
  }

  /// The checks of `verify RUN --replay N --json` that are replays.
  Json replayed(const std::string& name, const std::string& steps, int exit_code) const {
    const CommandResult result = verify({name, "--replay", steps, "--json"});
    EXPECT_EQ(result.exit_code, exit_code) << result.out << result.err;
    Json replays = Json::array();
    const Json document = Json::parse(result.out);
    for (const Json& check : document.at("checks")) {
      if (check.at("name").get<std::string>().starts_with("replay")) replays.push_back(check);
    }
    return replays;
  }

  /// Writes the run's journal anew with what `change` makes of the events that it takes, hashes and
  /// record too.
  template <class Change>
  void forge(const std::string& name, Change change) const {
    const RunFiles files{folder_ / name};
    SampleRun run{read_journal(files.journal().string()).lines};
    for (JournalLine& line : run.lines) {
      std::visit(
          [&](auto& event) {
            if constexpr (std::invocable<Change, decltype(event)>) change(event);
          },
          line.event);
    }
    std::ofstream(files.journal(), std::ios::binary) << run.text();
    ASSERT_EQ(heteroperf({"recover", name}, folder_.path()).exit_code, 0);
  }

  ScratchFolder folder_;
};

/// A residual net at its first learning rates makes a hundred roundings of one within a step.
TEST_F(Replay, OtherKernelsOfAChaoticTrainingAreNoForgery) {
  std::string command =
      "export ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2; "
      "exec '" +
      heteroperf_path() + "'";
  for (const char* word :
       {"run", "image", "--ranks", "1", "--micro-batch", "8", "--steps", "6", "--set",
        "measure.evaluation_samples=4", "--set", "measure.peak_s=0", "--out", "r", "-q"}) {
    command += std::string(" ") + word;
  }
  ASSERT_EQ(Command({"/bin/sh", "-c", command}, folder_.path()).finish().exit_code, 0);
  Json checks = replayed("r", "6", 0);
  ASSERT_EQ(checks.size(), 1u);
  const std::string held = checks[0].at("expected");
  EXPECT_NE(held.find("other variables of kernels"), std::string::npos) << held;
  forge("r", [](StepEvent& step) {
    if (step.n == 0) step.loss *= 1.02;
  });
  checks = replayed("r", "6", 9);
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].at("actual").get<std::string>().substr(0, 12), "step 0: loss");
}

TEST_F(Replay, ATrainingFromItsStartAndBehindItsCheckpoint) {
  run(short_llm({"--steps", "10", "--set", "checkpoint.every_steps=4", "--out", "r"}));
  const Json checks = replayed("r", "6", 0);
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_EQ(checks[0].at("name"), "replay of steps 0 to 3");
  EXPECT_EQ(checks[1].at("name"), "replay of steps 8 to 9");
  EXPECT_EQ(checks[0].at("expected"), "4 losses, equal in every bit");

  ASSERT_EQ(verify({"r"}).exit_code, 0);
  forge("r", [](StepEvent& step) {
    if (step.n == 9) step.loss *= 1.02;
  });
  ASSERT_EQ(verify({"r"}).exit_code, 0) << "what only training tells";
  const Json wrong = replayed("r", "6", 9);
  ASSERT_EQ(wrong.size(), 2u);
  EXPECT_EQ(wrong[0].at("ok"), true);
  EXPECT_EQ(wrong[1].at("ok"), false);
  EXPECT_TRUE(wrong[1].at("actual").get<std::string>().starts_with("step 9: loss "));
}

TEST_F(Replay, ARunThatWentOnIsTrainedBehindItsOwnCheckpoint) {
  run(short_llm({"--steps", "4", "--set", "checkpoint.at_end=true", "--set",
                 "optimizer.schedule=constant", "--out", "first"}));
  run({"resume", "first", "--steps", "8", "--out", "bare", "-q", "--set",
       "checkpoint.at_end=false"});
  const CommandResult refused = verify({"bare", "--replay", "4"});
  EXPECT_EQ(refused.exit_code, 5) << refused.out;
  EXPECT_NE(refused.err.find("goes on from another run"), std::string::npos) << refused.err;
  run({"resume", "first", "--steps", "8", "--out", "second", "-q", "--set",
       "checkpoint.every_steps=3"});
  const Json checks = replayed("second", "2", 0);
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].at("name"), "replay of steps 6 to 7");
}

TEST_F(Replay, ASearch) {
  run({"run", "automl-image", "--size", "w16", "--ranks", "2", "--steps", "14", "--set",
       "automl.first_rung_steps=2", "--set", "automl.evaluation_samples=8", "--micro-batch", "2",
       "--set", "measure.peak_s=0", "-q", "--out", "s"});
  ASSERT_EQ(replayed("s", "4", 0).size(), 1u);
  forge("s", [](StepEvent& step) { step.loss *= 0.99; });
  EXPECT_EQ(replayed("s", "4", 9).at(0).at("ok"), false);
}

/// Which of two groups was first decides what it trained, so only the beginning can be trained
/// again.
TEST_F(Replay, ASearchByTimeUntilItsFirstRung) {
  run({"run", "automl-image", "--size", "w16", "--ranks", "2", "--duration", "2", "--set",
       "automl.first_rung_steps=3", "--set", "automl.evaluation_samples=8", "--micro-batch", "2",
       "--set", "measure.peak_s=0", "-q", "--out", "s"});
  const Json checks = replayed("s", "20", 0);
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].at("name"), "replay of steps 0 to 2");
  EXPECT_EQ(checks[0].at("expected"),
            "6 losses before the first rung (the rest depends on which of 2 groups was first), "
            "equal in every bit");
  forge("s", [](StepEvent& step) {
    if (step.trial == 1 && step.n == 2) step.loss *= 1.01;
  });
  const Json wrong = replayed("s", "20", 9);
  EXPECT_TRUE(wrong.at(0).at("actual").get<std::string>().starts_with("trial 1, step 2: loss "));
  // No trial has the number of one that was trained again.
  forge(
      "s", []<class E>(E & event) requires requires { event.trial; } {
        if (event.trial) *event.trial += 2;
      });
  forge("s", [](TrialEvent& trial) {
    trial.id += 2;
    if (trial.parent) *trial.parent += 2;
  });
  const CommandResult refused = verify({"s", "--replay", "20"});
  EXPECT_EQ(refused.exit_code, 5) << refused.out << refused.err;
  EXPECT_NE(refused.err.find("depends on which was first"), std::string::npos) << refused.err;
}

TEST_F(Replay, VariablesOfTheCallerChangeNothing) {
  run(short_llm({"--steps", "4", "--out", "r"}));
  const CommandResult result = heteroperf({"verify", "r", "--replay", "2"}, folder_.path(),
                                          {"HETEROPERF_SEED=9", "HETEROPERF_OUT=elsewhere"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "elsewhere"));
}

TEST_F(Replay, WhatCannotBeTrainedHereIsNamed) {
  // A busy machine may be late, which makes the run invalid and leaves it what it is.
  heteroperf(short_llm({"--cluster", "laptop", "--steps", "2", "--out", "paced"}), folder_.path());
  const CommandResult paced = verify({"paced", "--replay", "2"});
  EXPECT_EQ(paced.exit_code, 5);
  EXPECT_NE(paced.err.find("emulated"), std::string::npos) << paced.err;
  EXPECT_EQ(verify({".", "--replay", "2"}).exit_code, 2);
  EXPECT_EQ(verify({"paced", "--replay", "0"}).exit_code, 2);
}

TEST_F(Replay, OtherDataAreNoForgery) {
  folder_.write("data.txt", std::string(20000, 'a') + std::string(20000, 'b'));
  run(short_llm({"--steps", "3", "--data", "text:data.txt", "--out", "r"}));
  ASSERT_EQ(replayed("r", "2", 0).size(), 1u);
  folder_.write("data.txt", std::string(40000, 'c'));
  const CommandResult other = verify({"r", "--replay", "2"});
  EXPECT_EQ(other.exit_code, 5) << other.out;
  EXPECT_NE(other.err.find("data"), std::string::npos) << other.err;
}

}  // namespace
}  // namespace heteroperf::testing
