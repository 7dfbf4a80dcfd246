#include "runners/engine/checkpoint/checkpoint.hpp"

#include <gtest/gtest.h>

#include "metrics/base/error.hpp"
#include "tests/unit/runners/engine/checkpoint/stored_training.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class CheckpointFolder : public testing::Test {
 protected:
  void save_step(std::uint64_t step) {
    save(checkpoint_folder(run_.path(), step), some_state(step), sharding_);
  }
  void cut(std::uint64_t step) {
    const fs::path file = checkpoint_folder(run_.path(), step) / "rank-0.safetensors";
    fs::resize_file(file, fs::file_size(file) - 1);
  }
  std::vector<std::uint64_t> steps() const {
    std::vector<std::uint64_t> list;
    for (const CheckpointPlace& place : list_checkpoints(run_.path())) list.push_back(place.step);
    return list;
  }

  ScratchFolder run_;
  RandomStream random_{12};
  StoredTraining training_ = StoredTraining::random(3, random_);
  Sharding sharding_ = random_sharding(training_, 2, random_, Fill::training);
  std::vector<std::string> warnings_;
};

TEST_F(CheckpointFolder, ListsByStepAndNothingElse) {
  EXPECT_TRUE(steps().empty());
  for (const std::uint64_t step : {9u, 120u, 13u}) save_step(step);
  fs::create_directories(run_ / "checkpoints" / "step-x");
  fs::create_directories(run_ / "checkpoints" / ".step-500.tmp");
  EXPECT_EQ(steps(), (std::vector<std::uint64_t>{120, 13, 9}));
}

TEST_F(CheckpointFolder, TheLastGoodOneSkipsBrokenOnesWithAWarning) {
  for (const std::uint64_t step : {10u, 20u, 30u}) save_step(step);
  EXPECT_EQ(last_good_checkpoint(run_.path(), {}, warnings_).step, 30u);
  EXPECT_TRUE(warnings_.empty());
  cut(30);
  EXPECT_EQ(last_good_checkpoint(run_.path(), {}, warnings_).step, 20u);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("step-30"), std::string::npos) << warnings_[0];
  EXPECT_EQ(last_good_checkpoint(run_.path(), 10, warnings_).step, 10u);
  EXPECT_THROW(last_good_checkpoint(run_.path(), 11, warnings_), UserError);
  EXPECT_THROW(last_good_checkpoint(run_.path(), 30, warnings_), UserError);
}

TEST_F(CheckpointFolder, WithoutAGoodOneEverythingWrongIsTold) {
  save_step(1);
  save_step(2);
  cut(1);
  cut(2);
  try {
    last_good_checkpoint(run_.path(), {}, warnings_);
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_EQ(error.problems().size(), 2u);
  }
}

TEST_F(CheckpointFolder, PruningKeepsTheNewest) {
  for (const std::uint64_t step : {1u, 2u, 3u, 4u}) save_step(step);
  fs::create_directories(run_ / "checkpoints" / ".step-3.tmp" / "rest");
  prune_checkpoints(run_.path(), 0, warnings_);
  EXPECT_EQ(steps().size(), 4u);
  EXPECT_FALSE(fs::exists(run_ / "checkpoints" / ".step-3.tmp"));
  prune_checkpoints(run_.path(), 2, warnings_);
  EXPECT_EQ(steps(), (std::vector<std::uint64_t>{4, 3}));
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(run_ / "checkpoints"), fs::directory_iterator()),
            2);
}

}  // namespace
}  // namespace heteroperf
