#include <gtest/gtest.h>

#include "metrics/error.hpp"
#include "suite/run/placement.hpp"
#include "suite/run/prepare.hpp"

namespace heteroperf {
namespace {

UsableCores four_cores() {
  UsableCores cores;
  cores.cpus = {0, 1, 2, 3};
  cores.physical = 4;
  return cores;
}

TEST(Placement, TakesOneRankPerCore) {
  const Placement placement = choose_placement({}, four_cores(), 0);
  EXPECT_EQ(placement.ranks, 4);
  EXPECT_EQ(placement.threads_per_rank, 1);
  ASSERT_EQ(placement.cpus.size(), 4u);
  EXPECT_EQ(placement.cpus[2], CpuSet{2});
}

TEST(Placement, DividesTheCoresAmongTheRanksAskedFor) {
  ScaleConfig config;
  config.ranks = 2;
  const Placement placement = choose_placement(config, four_cores(), 0);
  EXPECT_EQ(placement.threads_per_rank, 2);
  EXPECT_EQ(placement.cpus[1], (CpuSet{2, 3}));
}

TEST(Placement, DividesTheCoresByTheThreadsAskedFor) {
  ScaleConfig config;
  config.threads_per_rank = 3;
  EXPECT_EQ(choose_placement(config, four_cores(), 0).ranks, 1);
}

TEST(Placement, BindsNothingWhenRanksOutnumberCores) {
  ScaleConfig config;
  config.ranks = 9;
  const Placement placement = choose_placement(config, four_cores(), 0);
  EXPECT_EQ(placement.threads_per_rank, 1);
  EXPECT_TRUE(placement.cpus.empty());
  EXPECT_NE(placement.binding.find("9 ranks x 1 threads on 4 cores"), std::string::npos);
}

TEST(Placement, RefusesRanksUnlikeTheLaunchersWorld) {
  ScaleConfig config;
  config.ranks = 3;
  EXPECT_THROW(choose_placement(config, four_cores(), 2), UserError);
  config.ranks = 2;
  EXPECT_EQ(choose_placement(config, four_cores(), 2).ranks, 2);
}

TEST(Placement, RanksThatShareAMaskShareItsCores) {
  const Placement shared = choose_launched_placement({}, four_cores(), 8, {2, 2, 1});
  EXPECT_EQ(shared.ranks, 8);
  EXPECT_EQ(shared.threads_per_rank, 2);
  EXPECT_EQ(shared.cpus.front(), (CpuSet{2, 3}));
  const Placement own = choose_launched_placement({}, four_cores(), 8, {2, 1, 0});
  EXPECT_EQ(own.threads_per_rank, 4);
}

}  // namespace
}  // namespace heteroperf
