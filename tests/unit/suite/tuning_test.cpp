#include "suite/sweep/tuning.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

using Placed = std::set<std::pair<int, int>>;

Placed placements_of(const TuningSpace& space) {
  Placed placed;
  for (const TuningChoice& choice : tuning_choices(space)) {
    placed.emplace(choice.ranks, choice.threads);
  }
  return placed;
}

/// A run of four ranks with micro-batches of 8, one each.
TuningSpace space_of_four_cores() { return {.cores = 4, .micro_batch = 8, .samples = 32}; }

TEST(Tuning, RanksTimesThreadsUseEveryCore) {
  EXPECT_EQ(placements_of(space_of_four_cores()), (Placed{{1, 4}, {2, 2}, {4, 1}}));
}

TEST(Tuning, ReplicasThatDoNotDivideTheCoresLeaveSomeIdle) {
  TuningSpace space = space_of_four_cores();
  space.ranks_of_replica = 3;
  EXPECT_EQ(placements_of(space), (Placed{{3, 1}}));
}

TEST(Tuning, TheSamplesOfAStepStay) {
  const auto choices = tuning_choices(space_of_four_cores());
  std::set<std::int64_t> of_one_rank;
  for (const TuningChoice& choice : choices) {
    EXPECT_EQ(choice.ranks * choice.micro_batch * choice.micro_batches, 32);
    if (choice.ranks == 1) of_one_rank.insert(choice.micro_batch);
  }
  EXPECT_EQ(of_one_rank, (std::set<std::int64_t>{2, 4, 8, 16, 32}));
  // Four ranks share 32 samples: none can take more than 8 at a time.
  EXPECT_EQ(choices.back(), (TuningChoice{4, 1, 8, 1}));
}

TEST(Tuning, ASearchKeepsTheSamplesOfItsGroups) {
  TuningSpace space = space_of_four_cores();
  space.search = true;
  space.ranks_of_replica = 2;
  space.samples = 16;
  for (const TuningChoice& choice : tuning_choices(space)) {
    EXPECT_EQ(choice.ranks % 2, 0);
    EXPECT_EQ(choice.micro_batch * choice.micro_batches, 16);
  }
  EXPECT_EQ(placements_of(space), (Placed{{2, 2}, {4, 1}}));
}

TEST(Tuning, WhatTheUserFixedStays) {
  TuningSpace space = space_of_four_cores();
  space.threads = 2;
  EXPECT_EQ(placements_of(space), (Placed{{2, 2}}));
  space = space_of_four_cores();
  space.ranks = 3;
  space.samples = 24;
  EXPECT_EQ(placements_of(space), (Placed{{3, 1}}));
  space = space_of_four_cores();
  space.fixed_micro_batch = 8;
  EXPECT_EQ(tuning_choices(space),
            (std::vector<TuningChoice>{{1, 4, 8, 4}, {2, 2, 8, 2}, {4, 1, 8, 1}}));
  space.fixed_micro_batches = 2;
  EXPECT_EQ(tuning_choices(space), (std::vector<TuningChoice>{{2, 2, 8, 2}}));
}

TEST(Tuning, ReplicasOfAPipelineTakeWholeRanks) {
  TuningSpace space = space_of_four_cores();
  space.ranks_of_replica = 2;
  EXPECT_EQ(placements_of(space), (Placed{{2, 2}, {4, 1}}));
}

TEST(Tuning, RoundsHalveToTheBestThree) {
  using Rounds = std::vector<std::size_t>;
  EXPECT_EQ(halving_rounds(16), (Rounds{16, 8, 4, 3}));
  EXPECT_EQ(halving_rounds(7), (Rounds{7, 4, 3}));
  EXPECT_EQ(halving_rounds(3), (Rounds{3, 3}));
  EXPECT_EQ(halving_rounds(2), (Rounds{2, 2}));
}

std::string refusal(const SweepRequest& request, double seconds) {
  try {
    launch_tuning(request, seconds, {});
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

TEST(Tuning, RefusesWhatItDecidesItself) {
  const auto refused = [](const Setting& setting, double seconds = 100) {
    return refusal({{{"workload", "llm"}, setting}}, seconds);
  };
  for (const char* path : {"measure.steps", "measure.duration_s", "plan.file", "cluster.file"}) {
    EXPECT_NE(refused({path, "3"}).find("exclude each other"), std::string::npos) << path;
  }
  EXPECT_NE(refusal({}, 100).find("without a workload"), std::string::npos);
  EXPECT_NE(refused({"seed", "1"}, 0).find("out of range"), std::string::npos);
  EXPECT_NE(refusal({{{"workload", "llm"}}, false, {}, 2}, 100).find("--repeat"),
            std::string::npos);
  EXPECT_NE(refusal({{{"workload", "llm"}, {"model.size", "nano"}}, false, {"ranks=1,2"}}, 100)
                .find("scale.ranks is swept twice"),
            std::string::npos);
}

TEST(Tuning, RefusesToChooseFromOneConfiguration) {
  const SweepRequest fixed{{{"workload", "llm"},
                            {"model.size", "nano"},
                            {"scale.ranks", "1"},
                            {"scale.threads_per_rank", "1"},
                            {"batch.micro_batch", "8"},
                            {"batch.micro_batches", "1"}}};
  EXPECT_NE(refusal(fixed, 100).find("nothing to choose"), std::string::npos);
}

}  // namespace
}  // namespace heteroperf
