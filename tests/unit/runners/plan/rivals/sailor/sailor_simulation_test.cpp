#include "runners/plan/rivals/sailor/sailor_score.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "tests/unit/runners/plan/rivals/sailor/small_sailor.hpp"
#include "tests/unit/workloads/data/shared_data.hpp"

namespace heteroperf {
namespace {

struct Measured {
  std::string name;
  bool is_opt = true;
  SailorPlan plan;  ///< with the run's own number of micro-batches
  double step_time_s = 0, reduction_s = 0;
};

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto ranks = [](const std::vector<double>& values) {
    std::vector<double> found;
    for (const double v : values) {
      double below = 0, equal = 0;
      for (const double w : values) {
        below += w < v ? 1 : 0;
        equal += w == v ? 1 : 0;
      }
      found.push_back(below + (equal + 1) / 2);
    }
    return found;
  };
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double mean = (static_cast<double>(a.size()) + 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xy / std::sqrt(xx * yy);
}

/// The runs published for one kind of node, against exact simulation.
class MeasuredRuns : public testing::Test {
 protected:
  void SetUp() override {
    const auto folder = shared_data("sailor");
    if (!folder) GTEST_SKIP() << "no sailor among the shared data (HETEROPERF_SHARED)";
    for (const char* training :
         {"training_config_gpt_neo27.json", "training_config_opt_350.json"}) {
      tables_.emplace_back(read_sailor_inputs({.folder = *folder, .training = training}));
    }
    std::set<std::filesystem::path> files;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(*folder) / "measured_gh200")) {
      files.insert(entry.path());
    }
    for (const auto& file : files) {
      Measured one;
      one.name = file.stem().string();
      one.is_opt = one.name.starts_with("OPT");
      const Json run = parse_strict_json(read_text_file(file), file.string());
      one.step_time_s = run.at("real");
      one.reduction_s = run.at("red_grads");
      one.plan = read_sailor_plan(file, tables_[one.is_opt]);
      const int width = one.plan.stages.front().width();
      const std::int64_t batch = run.at("gbs"), together = one.plan.micro_batch * width;
      one.plan.shares = {{width, one.plan.micro_batch, (batch + together - 1) / together, {}}};
      runs_.push_back(std::move(one));
    }
  }

  double simulated_s(const Measured& one) const {
    return simulated_sailor_step_s(tables_[one.is_opt], one.plan);
  }

  /// A run whose sums alone take as long as the step, or that lacks layers of its model.
  bool inconsistent(const Measured& one) const {
    return one.reduction_s >= one.step_time_s ||
           one.plan.stages.back().layers.end != tables_[one.is_opt].layers();
  }

  std::vector<SailorTables> tables_;
  std::vector<Measured> runs_;
};

TEST_F(MeasuredRuns, AreWithinTheStatedErrors) {
  ASSERT_EQ(runs_.size(), 27u);
  std::vector<double> simulated, measured;
  double error = 0, formula_error = 0;
  std::vector<std::string> left_out;
  for (const Measured& one : runs_) {
    if (inconsistent(one)) {
      left_out.push_back(one.name);
      continue;
    }
    simulated.push_back(simulated_s(one));
    measured.push_back(one.step_time_s);
    const double formula_s = sailor_step_time_s(tables_[one.is_opt], one.plan);
    fmt::print("| {} | {:.3f} | {:.3f} | {:+.1f} % | {:+.1f} % |\n", one.name, one.step_time_s,
               simulated.back(), 100 * (simulated.back() / one.step_time_s - 1),
               100 * (formula_s / one.step_time_s - 1));
    error += std::abs(simulated.back() / one.step_time_s - 1) / 26;
    formula_error += std::abs(formula_s / one.step_time_s - 1) / 26;
  }
  const double correlation = rank_correlation(simulated, measured);
  fmt::print("mean error {:.2f} % ({:.2f} % by the published formula); rank correlation {:.4f}\n",
             100 * error, 100 * formula_error, correlation);
  EXPECT_EQ(left_out, std::vector<std::string>{"GPT-NEO_N4_plan_config_N4_D4"});
  EXPECT_EQ(simulated.size(), 26u);
  EXPECT_LE(error, 0.07);
  EXPECT_GE(correlation, 0.95);
  EXPECT_LT(error, formula_error);
}

TEST(SailorSimulation, OneStageTakesItsMicroBatchesOneByOne) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  const SailorPlan plan{{{0, 4, {{3, tables.place("fast"), 1}}}}, 2, {}};
  const SailorReport parts = sailor_report(tables, plan);
  EXPECT_NEAR(simulated_sailor_step_s(tables, plan),
              8 * tables.compute_s({0, 1}, 2, {0, 4}) + parts.reduction_s + parts.update_s, 1e-9);
}

TEST(SailorSimulation, TheSlowestPipelineCounts) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  const int fast = tables.place("fast"), slow = tables.place("slow");
  const SailorPlan plan{
      {{0, 4, {{1, fast, 1}, {1, slow, 1}}}}, 1, {{1, 4, 9, {2, 1}}, {1, 2, 4, {1}}}};
  const SailorReport parts = sailor_report(tables, plan);
  EXPECT_NEAR(simulated_sailor_step_s(tables, plan),
              0.03 * (4 * 9 + 2 + 1) + parts.reduction_s + parts.update_s, 1e-9);
}

TEST(SailorSimulation, WhatCannotBeFollowedIsRefused) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  const SailorPlan unequal{{{0, 2, {{1, 0, 1}}}, {2, 4, {{2, 0, 1}}}}, 2, {}};
  EXPECT_THROW(simulated_sailor_step_s(tables, unequal), UserError);
  const SailorPlan missing{{{0, 4, {{1, 0, 1}}}}, 3, {}};
  EXPECT_THROW(simulated_sailor_step_s(tables, missing), UserError);
}

}  // namespace
}  // namespace heteroperf
