#include "runners/plan/rivals/sailor/sailor_score.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "tests/unit/runners/plan/rivals/sailor/small_sailor.hpp"
#include "tests/unit/workloads/data/shared_data.hpp"

namespace heteroperf {
namespace {

class PublishedScore : public testing::Test {
 protected:
  void SetUp() override {
    const auto folder = shared_data("sailor");
    if (!folder) GTEST_SKIP() << "no sailor among the shared data (HETEROPERF_SHARED)";
    tables_.emplace(
        read_sailor_inputs({.folder = *folder, .training = "training_config_opt_350.json"}));
    a100_ = tables_->place("A100-40");
    v100_ = tables_->place("V100-16");
  }
  double score(const SailorPlan& plan) const {
    check_sailor_plan(*tables_, plan);
    EXPECT_TRUE(fits_sailor_memory(*tables_, plan));
    EXPECT_EQ(sailor_report(*tables_, plan).step_time_s, sailor_step_time_s(*tables_, plan));
    return sailor_step_time_s(*tables_, plan);
  }

  std::optional<SailorTables> tables_;
  int a100_ = 0, v100_ = 0;
};

TEST_F(PublishedScore, HomogeneousPlans) {
  EXPECT_NEAR(score({{{0, 26, {{8, a100_, 4}}}}, 8, {}}), 7.9932, 5e-5);
  EXPECT_NEAR(score({{{0, 26, {{24, v100_, 4}}}}, 4, {}}), 9.0212, 5e-5);
  EXPECT_NEAR(score({{{0, 26, {{16, a100_, 2}}}}, 4, {}}), 7.7097, 5e-5);
  EXPECT_NEAR(score({{{0, 14, {{24, v100_, 2}}}, {14, 26, {{24, v100_, 2}}}}, 1, {}}), 8.8364,
              5e-5);
}

TEST_F(PublishedScore, SailorsOwnPlanForTheMix) {
  const SailorPlan plan{
      {{0, 13, {{24, v100_, 4}, {3, a100_, 1}}}, {13, 26, {{27, a100_, 1}}}}, 2, {}};
  EXPECT_NEAR(score(plan), 5.8837, 5e-5);
  EXPECT_NEAR(sailor_report(*tables_, plan).reduction_s, 1.3927, 5e-5);
}

TEST_F(PublishedScore, UnevenSharesOfOneStage) {
  const SailorPlan plan{
      {{0, 26, {{8, a100_, 4}, {24, v100_, 4}}}}, 4, {{8, 4, 17, {}}, {24, 4, 5, {}}}};
  EXPECT_NEAR(score(plan), 4.9134, 5e-5);
}

TEST_F(PublishedScore, MemoryTableIsKept) {
  const SailorPlan plan{{{0, 26, {{16, a100_, 2}}}}, 8, {}};
  EXPECT_FALSE(fits_sailor_memory(*tables_, plan));
  try {
    check_sailor_plan(*tables_, plan);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("stage 0 needs 45."), std::string::npos)
        << error.what();
  }
}

TEST_F(PublishedScore, MissingProfilesAreNamed) {
  const SailorPlan plan{{{0, 26, {{8, a100_, 4}, {24, v100_, 4}}}}, 16, {}};
  EXPECT_TRUE(std::isinf(sailor_step_time_s(*tables_, plan)));
  try {
    check_sailor_plan(*tables_, plan);
    FAIL();
  } catch (const UserError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("A100-40 tp4 micro-batch 16"), std::string::npos) << message;
  }
}

/// By the formulas of README.md, replica by replica, without groups or run lengths.
double plain_score(const SailorTables& tables, const SailorPlan& plan) {
  const auto expand = [](const SailorStage& stage) {
    std::vector<SailorReplicas> all;
    for (const SailorReplicas& r : stage.replicas) {
      for (int i = 0; i < r.count; ++i) all.push_back(r);
    }
    return all;
  };
  const std::size_t stages = plan.stages.size();
  std::vector<std::vector<SailorReplicas>> replicas;
  for (const SailorStage& stage : plan.stages) replicas.push_back(expand(stage));
  const auto width = static_cast<std::int64_t>(replicas[0].size());
  const std::int64_t size = plan.micro_batch,
                     count = (tables.global_batch() + size * width - 1) / (size * width);
  double slowest = 0, sum = 0, update = 0, sync = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    const SailorStage& stage = plan.stages[s];
    double compute = 0, act = 0, grad = 0;
    int least = 64;
    for (std::size_t j = 0; j < replicas[s].size(); ++j) {
      const SailorReplicas& r = replicas[s][j];
      least = std::min(least, r.seat.tensor);
      compute = std::max(compute, tables.compute_s(r.seat, size, stage.layers));
      update = std::max(update, tables.update_s(r.seat, size, stage.layers.begin));
      const auto send = [&](std::size_t other, int layer) {
        const SailorReplicas& to = replicas[other][j % replicas[other].size()];
        return tables.send_s(r.seat, to.seat, layer, size);
      };
      if (s + 1 < stages) act = std::max(act, send(s + 1, stage.layers.end - 1));
      if (s > 0) grad = std::max(grad, send(s - 1, stage.layers.begin));
    }
    double communication = act + grad;
    if (s == 0 && stages > 3) communication = 2 * act;
    if (s + 1 == stages) communication = 2 * grad;
    for (std::size_t j = 0; j + 1 < replicas[s].size(); ++j) {
      sync = std::max(
          sync, tables.reduction_s(replicas[s][j].seat.place, replicas[s][j + 1].seat.place,
                                   static_cast<int>(replicas[s].size()), least, stage.layers));
    }
    slowest = std::max(slowest, compute + communication);
    sum += compute + communication;
  }
  return static_cast<double>(count - 1) * slowest + sum + update + sync;
}

SailorPlan random_plan(RandomStream& random, int most_width) {
  SailorPlan plan;
  const int stages = 1 + static_cast<int>(random.below(4));
  for (int s = 0; s < stages; ++s) {
    SailorStage& stage = plan.stages.emplace_back();
    stage.layers = {s, s + 1 == stages ? 4 : s + 1};
    const int groups = 1 + static_cast<int>(random.below(3));
    for (int g = 0; g < groups; ++g) {
      stage.replicas.push_back(
          {1 + static_cast<int>(random.below(static_cast<std::uint64_t>(most_width))),
           static_cast<int>(random.below(2)), 1 + static_cast<int>(random.below(2))});
    }
  }
  plan.micro_batch = std::int64_t{1} << random.below(3);
  return plan;
}

TEST(SailorScore, RunsOfReplicasScoreAsOneByOne) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  RandomStream random(7);
  for (int i = 0; i < 300; ++i) {
    const SailorPlan plan = random_plan(random, 5);
    EXPECT_DOUBLE_EQ(sailor_step_time_s(tables, plan), plain_score(tables, plan))
        << to_string(plan, tables.places());
  }
}

TEST(SailorScore, EqualSharesGiveSailorsOwnScore) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  RandomStream random(11);
  for (int i = 0; i < 200; ++i) {
    SailorPlan plan = random_plan(random, 3);
    const int width = 6;
    for (SailorStage& stage : plan.stages) {
      const int first = 1 + static_cast<int>(random.below(width - 1));
      stage.replicas = {{first, 0, 1 + static_cast<int>(random.below(2))},
                        {width - first, 1, 1 + static_cast<int>(random.below(2))}};
    }
    SailorPlan shared = plan;
    const std::int64_t count = 48 / (plan.micro_batch * width);
    if (count * plan.micro_batch * width != 48) continue;
    shared.shares = {{2, plan.micro_batch, count, {}}, {4, plan.micro_batch, count, {}}};
    EXPECT_DOUBLE_EQ(sailor_step_time_s(tables, shared), plain_score(tables, plan));
  }
}

TEST(SailorScore, TailsCostOneMoreMicroBatchOfTheirSize) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  const int fast = tables.place("fast"), slow = tables.place("slow");
  const SailorPlan plan{
      {{0, 4, {{1, fast, 1}, {1, slow, 1}}}}, 1, {{1, 4, 9, {2, 1}}, {1, 2, 4, {1}}}};
  check_sailor_plan(tables, plan);
  // 10 units of a layer's forward and backward: 0.003 s each on "fast", per sample.
  const double of_fast = 0.03 * (4 * 9 + 2 + 1), of_slow = 0.09 * (2 * 4 + 1);
  EXPECT_NEAR(sailor_report(tables, plan).pipeline_s, std::max(of_fast, of_slow), 1e-12);
}

TEST(SailorScore, WhatIsNoPlanIsRefused) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  const int fast = tables.place("fast");
  const SailorPlan good{{{0, 2, {{2, fast, 1}}}, {2, 4, {{2, fast, 2}}}}, 2, {}};
  EXPECT_NO_THROW(check_sailor_plan(tables, good));
  const auto expect = [&](const std::string& words, auto change) {
    SailorPlan plan = good;
    change(plan);
    std::string message = "no error";
    try {
      check_sailor_plan(tables, plan);
    } catch (const UserError& error) {
      message = error.what();
    }
    EXPECT_NE(message.find(words), std::string::npos) << words << "\nnot in: " << message;
  };
  expect("has no stages", [](SailorPlan& p) { p.stages.clear(); });
  expect("the stages have 3 layers", [](SailorPlan& p) { p.stages[1].layers.end = 3; });
  expect("stage 1 has layers 1 to 3", [](SailorPlan& p) { p.stages[1].layers.begin = 1; });
  expect("stage 1 has no replicas", [](SailorPlan& p) { p.stages[1].replicas.clear(); });
  expect("degree 4 on fast", [](SailorPlan& p) { p.stages[1].replicas[0].seat.tensor = 4; });
  expect("0 replicas of a kind", [](SailorPlan& p) { p.stages[0].replicas[0].count = 0; });
  expect("micro-batch of 0", [](SailorPlan& p) { p.micro_batch = 0; });
  expect("no profile of tiny for fast tp1 micro-batch 3; fast tp2 micro-batch 3",
         [](SailorPlan& p) { p.micro_batch = 3; });
  expect("take 40 samples together", [](SailorPlan& p) { p.shares = {{2, 4, 5, {}}}; });
  expect("shares for 3 pipelines", [](SailorPlan& p) { p.shares = {{3, 4, 4, {}}}; });
  expect("tails are smaller", [](SailorPlan& p) { p.shares = {{2, 4, 5, {4}}}; });
}

TEST(SailorScore, ALinkInOneDirectionRefusesThePlansThatNeedTheOther) {
  SmallSailor small;
  small.network["here"]["slow"]["1"]["here"]["fast"].erase("2");
  const SailorTables tables(small.read());
  const int fast = tables.place("fast"), slow = tables.place("slow");
  const SailorPlan other{{{0, 2, {{2, fast, 1}}}, {2, 4, {{2, slow, 1}}}}, 2, {}};
  EXPECT_NO_THROW(check_sailor_plan(tables, other));
  const SailorPlan needs{{{0, 2, {{2, fast, 2}}}, {2, 4, {{2, slow, 1}}}}, 2, {}};
  EXPECT_TRUE(std::isinf(sailor_step_time_s(tables, needs)));
  try {
    check_sailor_plan(tables, needs);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("slow to fast"), std::string::npos) << error.what();
  }
}

TEST(SailorTables, PlacesDegreesAndSizes) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  EXPECT_EQ(tables.places(), (std::vector<std::string>{"fast", "slow"}));
  EXPECT_EQ(tables.degrees(0), (std::vector<int>{1, 2}));
  EXPECT_EQ(tables.micro_batches({1, 2}), (std::vector<std::int64_t>{1, 2, 4}));
  EXPECT_TRUE(std::isinf(tables.compute_s({0, 1}, 3, {0, 1})));
  EXPECT_TRUE(std::isinf(tables.memory_bytes(3, 1, {0, 1}, 1)));
  // 24 B × 2·10⁶ parameters, 4 B × 6·10⁶ values × 2 samples × 3 in flight, 2 GB.
  EXPECT_DOUBLE_EQ(tables.memory_bytes(1, 2, {0, 2}, 3), 48e6 + 144e6 + 2e9);
  EXPECT_THROW(tables.place("fsat"), UserError);
  EXPECT_THROW(tables.place("fast", "there"), UserError);
}

}  // namespace
}  // namespace heteroperf
