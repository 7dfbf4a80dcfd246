#include "runners/plan/sailor/sailor_simulation.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "metrics/base/error.hpp"
#include "runners/plan/sailor/sailor_score.hpp"
#include "tests/unit/runners/plan/sailor/small_sailor.hpp"
#include "tests/unit/workloads/data/shared_data.hpp"

namespace heteroperf {
namespace {

struct Measured {
  std::string name;
  bool is_opt = true;
  SailorRun run;
};

struct MeanErrors {
  double time = 0, memory = 0, published_time = 0;
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
      inputs_.push_back(read_sailor_inputs({.folder = *folder, .training = training}));
      tables_.emplace_back(inputs_.back());
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
      one.run = read_sailor_run(file, tables_[one.is_opt]);
      runs_.push_back(std::move(one));
    }
  }

  SailorPrediction predict(const Measured& one, const SailorCalibration& calibration) const {
    const SailorTables& tables = tables_[one.is_opt];
    return simulate_sailor_plan(inputs_[one.is_opt], tables, plan_of(one.run, tables), calibration);
  }

  /// A run whose sums alone take as long as the step, or that lacks layers of its model.
  bool inconsistent(const Measured& one) const {
    return *one.run.reduction_s >= *one.run.step_time_s ||
           one.run.plan.stages.back().end != tables_[one.is_opt].layers();
  }

  std::vector<SailorInputs> inputs_;
  std::vector<SailorTables> tables_;
  std::vector<Measured> runs_;
};

TEST_F(MeasuredRuns, AreWithinTheStatedErrors) {
  ASSERT_EQ(runs_.size(), 27u);
  std::vector<SailorRun> of_opt;
  for (const Measured& one : runs_) {
    const auto is = [&](const char* name) { return one.name == name; };
    if (is("OPT-350_N1_plan_config_N1_D1_M4_G1") || is("OPT-350_N16_plan_config_N16_D8") ||
        is("OPT-350_N32_plan_config_N32_D32")) {
      of_opt.push_back(one.run);
    }
  }
  ASSERT_EQ(of_opt.size(), 3u);
  const SailorCalibration calibration = calibrate_sailor(inputs_[1], tables_[1], of_opt);
  std::vector<double> predicted, measured;
  MeanErrors mean;
  std::vector<std::string> left_out;
  fmt::print("calibration: reduction x{:.3f}, activations x{:.3f}, runtime {:.2f} GB\n",
             calibration.reduction_factor, calibration.activation_factor,
             calibration.runtime_bytes / 1e9);
  for (const Measured& one : runs_) {
    if (inconsistent(one)) {
      left_out.push_back(one.name);
      continue;
    }
    const SailorPrediction found = predict(one, calibration);
    const double time = *one.run.step_time_s;
    const double bytes = static_cast<double>(one.run.peak_memory->value());
    const double published =
        sailor_step_time_s(tables_[one.is_opt], plan_of(one.run, tables_[one.is_opt]));
    fmt::print("| {} | {:.3f} | {:.3f} | {:+.1f} % | {:+.1f} % | {:.2f} | {:.2f} | {:+.1f} % |\n",
               one.name, time, found.step_time_s, 100 * (found.step_time_s / time - 1),
               100 * (published / time - 1), bytes / 1e9, found.peak_memory_bytes / 1e9,
               100 * (found.peak_memory_bytes / bytes - 1));
    mean.time += std::abs(found.step_time_s / time - 1) / 26;
    mean.memory += std::abs(found.peak_memory_bytes / bytes - 1) / 26;
    mean.published_time += std::abs(published / time - 1) / 26;
    predicted.push_back(found.step_time_s);
    measured.push_back(time);
  }
  const double correlation = rank_correlation(predicted, measured);
  fmt::print(
      "mean error {:.2f} % in time ({:.2f} % by the published formula), {:.2f} % in memory; rank "
      "correlation {:.4f}\n",
      100 * mean.time, 100 * mean.published_time, 100 * mean.memory, correlation);
  EXPECT_EQ(left_out, std::vector<std::string>{"GPT-NEO_N4_plan_config_N4_D4"});
  EXPECT_EQ(predicted.size(), 26u);
  EXPECT_LE(mean.time, 0.07);
  EXPECT_LE(mean.memory, 0.08);
  EXPECT_GE(correlation, 0.95);
  EXPECT_LT(mean.time, mean.published_time);
}

TEST_F(MeasuredRuns, TimeHoldsWithoutAnyCalibration) {
  double mean = 0;
  for (const Measured& one : runs_) {
    if (inconsistent(one)) continue;
    mean += std::abs(predict(one, {}).step_time_s / *one.run.step_time_s - 1) / 26;
  }
  fmt::print("mean error {:.2f} % in time without calibration\n", 100 * mean);
  EXPECT_LE(mean, 0.07);
}

TEST(SailorSimulation, OneStageTakesItsMicroBatchesOneByOne) {
  const SmallSailor small;
  const SailorInputs inputs = small.read();
  const SailorTables tables(inputs);
  const SailorPlan plan{{{0, 4, {{3, tables.place("fast"), 1}}}}, 2, {}};
  const SailorPrediction found = simulate_sailor_plan(inputs, tables, plan);
  EXPECT_NEAR(found.pipeline_s, 8 * tables.compute_s(0, 1, 2, 0, 4), 1e-9);
  EXPECT_DOUBLE_EQ(found.reduction_s, sailor_report(tables, plan).reduction_s);
  EXPECT_DOUBLE_EQ(found.step_time_s, found.pipeline_s + found.reduction_s + found.update_s);
  EXPECT_DOUBLE_EQ(found.peak_memory_bytes, tables.memory_bytes(1, 2, 0, 4, 1));
}

TEST(SailorSimulation, TheSlowestPipelineCounts) {
  const SmallSailor small;
  const SailorInputs inputs = small.read();
  const SailorTables tables(inputs);
  const int fast = tables.place("fast"), slow = tables.place("slow");
  const SailorPlan plan{
      {{0, 4, {{1, fast, 1}, {1, slow, 1}}}}, 1, {{1, 4, 9, {2, 1}}, {1, 2, 4, {1}}}};
  const SailorPrediction found = simulate_sailor_plan(inputs, tables, plan);
  EXPECT_NEAR(found.pipeline_s, 0.03 * (4 * 9 + 2 + 1), 1e-9);
}

TEST(SailorSimulation, FewMicroBatchesKeepFewActivations) {
  const SmallSailor small;
  const SailorInputs inputs = small.read();
  const SailorTables tables(inputs);
  SailorPlan plan{{{0, 2, {{1, 0, 1}}}, {2, 4, {{1, 0, 1}}}}, 4, {{1, 4, 1, {}}}};
  const SailorPrediction one = simulate_sailor_plan(inputs, tables, plan);
  EXPECT_DOUBLE_EQ(one.memory_bytes[0], one.memory_bytes[1]);
  plan.shares[0].micro_batches = 12;
  const SailorPrediction many = simulate_sailor_plan(inputs, tables, plan);
  EXPECT_DOUBLE_EQ(many.memory_bytes[0] - one.memory_bytes[0], 4.0 * 6e6 * 4);
}

TEST(SailorSimulation, CalibrationFindsWhatItWasGiven) {
  const SmallSailor small;
  const SailorInputs inputs = small.read();
  const SailorTables tables(inputs);
  const SailorCalibration given{1.7, 1.2, 3.5e9};
  std::vector<SailorRun> runs;
  for (const std::int64_t size : {1, 4}) {
    SailorRun& run = runs.emplace_back();
    run.plan = {{{0, 2, {{2, 0, 1}}}, {2, 4, {{2, 0, 1}}}}, size, {}};
    run.global_batch = 48;
    const auto truth = simulate_sailor_plan(inputs, tables, plan_of(run, tables), given);
    run.reduction_s = truth.reduction_s;
    run.peak_memory = Bytes(static_cast<std::uint64_t>(truth.peak_memory_bytes));
  }
  const SailorCalibration found = calibrate_sailor(inputs, tables, runs);
  EXPECT_NEAR(found.reduction_factor, 1.7, 1e-9);
  EXPECT_NEAR(found.activation_factor, 1.2, 1e-6);
  EXPECT_NEAR(found.runtime_bytes, 3.5e9, 100);
  runs.pop_back();
  EXPECT_DOUBLE_EQ(calibrate_sailor(inputs, tables, runs).activation_factor, 1.0);
}

TEST(SailorSimulation, WhatCannotBeFollowedIsRefused) {
  const SmallSailor small;
  const SailorInputs inputs = small.read();
  const SailorTables tables(inputs);
  const SailorPlan unequal{{{0, 2, {{1, 0, 1}}}, {2, 4, {{2, 0, 1}}}}, 2, {}};
  EXPECT_THROW(simulate_sailor_plan(inputs, tables, unequal), UserError);
  const SailorPlan missing{{{0, 4, {{1, 0, 1}}}}, 3, {}};
  EXPECT_THROW(simulate_sailor_plan(inputs, tables, missing), UserError);
}

}  // namespace
}  // namespace heteroperf
