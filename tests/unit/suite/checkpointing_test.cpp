#include "suite/training/checkpointing.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

#include "results/journal/journal.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"
#include "tests/unit/results/sample_run.hpp"
#include "tests/unit/suite/no_engine.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Two ranks that save without tensors: which steps each was asked to save.
struct Saved {
  std::mutex mutex;
  std::vector<std::string> folders[2];
};

class CheckpointingTest : public ::testing::Test {
 protected:
  /// `steps`: seconds that each step takes.
  void train(const std::vector<double>& steps, bool interrupted) {
    JournalWriter journal((folder_.path() / "journal.jsonl").string());
    test::NoEngine engine;  // saving is the test's
    run_on_threads(2, {}, [&](World& world) {
      const auto rank = world.communicator->rank().index();
      RankContext context{config_, placement_, world, engine};
      context.run_folder = folder_.path().string();
      if (rank == 0) context.first.journal = &journal;
      Checkpointing checkpoints(context, [&](const std::string& folder) {
        {
          const std::lock_guard lock(saved_.mutex);
          saved_.folders[rank].push_back(fs::path(folder).filename());
          fs::create_directories(folder);
        }
        // As saving is: no rank writes once another has returned.
        world.communicator->barrier();
        return CheckpointReport{7, 100, 0.5};
      });
      for (std::size_t n = 0; n < steps.size(); ++n) {
        std::this_thread::sleep_for(std::chrono::duration<double>(steps[n]));
        checkpoints.after_step(n + 1);
      }
      checkpoints.at_end(steps.size(), interrupted);
    });
    journal.flush_now();
    EXPECT_EQ(saved_.folders[0], saved_.folders[1]);
  }
  std::string journal_text() const {
    std::ifstream file(folder_.path() / "journal.jsonl");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TemporaryFolder folder_;
  RunConfig config_;
  Placement placement_;
  Saved saved_;
};

using Names = std::vector<std::string>;

TEST_F(CheckpointingTest, OffUnlessAskedFor) {
  train({0, 0, 0}, true);
  EXPECT_EQ(saved_.folders[0], Names{});
}

TEST_F(CheckpointingTest, BySteps) {
  config_.checkpoint.every_steps = 2;
  config_.checkpoint.keep = 0;
  train({0, 0, 0, 0, 0}, false);
  EXPECT_EQ(saved_.folders[0], (Names{"step-2", "step-4"}));
}

TEST_F(CheckpointingTest, AtTheEndOnceAndOfAnInterruptedRun) {
  config_.checkpoint.every_steps = 2;
  config_.checkpoint.keep = 0;
  train({0, 0, 0}, true);
  EXPECT_EQ(saved_.folders[0], (Names{"step-2", "step-3"}));
  config_.checkpoint.at_end = true;
  saved_.folders[0].clear();
  saved_.folders[1].clear();
  fs::remove_all(folder_.path());
  fs::create_directories(folder_.path());
  train({0, 0}, false);
  EXPECT_EQ(saved_.folders[0], Names{"step-2"});
}

TEST_F(CheckpointingTest, ByTimeOnAllRanksAlike) {
  config_.checkpoint.every_s = 1000;
  train({0, 0}, false);
  EXPECT_EQ(saved_.folders[0], Names{});
}

TEST_F(CheckpointingTest, ByTimeEveryStepThatTakesLonger) {
  config_.checkpoint.every_s = 1e-9;
  config_.checkpoint.keep = 0;
  train({0.001, 0.001}, false);
  EXPECT_EQ(saved_.folders[0], (Names{"step-1", "step-2"}));
}

TEST_F(CheckpointingTest, OldOnesGoAndTheJournalNamesEach) {
  config_.checkpoint.every_steps = 1;
  config_.checkpoint.keep = 1;
  train({0, 0, 0}, false);
  const auto places = list_checkpoints(folder_.path());
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].step, 3u);
  const std::string journal = journal_text();
  std::size_t lines = 0;
  for (std::size_t at = journal.find("\"kind\":\"checkpoint\",\"n\":7,\"bytes\":100");
       at != std::string::npos; at = journal.find("\"kind\":\"checkpoint\"", at + 1)) {
    ++lines;
  }
  EXPECT_EQ(lines, 3u) << journal;
}

}  // namespace
}  // namespace heteroperf
