#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "metrics/error.hpp"
#include "results/history/run_history.hpp"
#include "results/scaling/sweep_comparison.hpp"
#include "results/scaling/sweep_report.hpp"
#include "results/verify.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

SweepIndex index_of(std::vector<SweepPoint> points, std::size_t repeats = 1) {
  SweepIndex index;
  index.sweep_id = "sweep-x";
  index.created_utc = "2026-01-01T00:00:00Z";
  index.command = {"run", "--set", "workload=llm"};
  for (const auto& [key, value] : points.front()) index.axes.push_back({key});
  index.points = std::move(points);
  index.repeats = repeats;
  index.runs = there_and_back(index);
  return index;
}

/// Devices and samples per step of a point's runs, and how long their steps take.
struct PointLoad {
  std::uint32_t devices = 1;
  std::uint64_t samples_per_step = 4;
  double step_s = 12;
};

class SweepTest : public ::testing::Test {
 protected:
  /// Stores one run and notes it as complete.
  void store(SweepIndex& index, std::size_t number, const PointLoad& load) const {
    SweepRun& run = index.runs.at(number);
    SampleRun sample =
        sample_of({.number = static_cast<int>(number), .step_s = load.step_s, .seed = run.seed});
    sample.last<ScaleEvent>().devices = {{"cpu", load.devices, 1, false}};
    sample.last<WorkloadEvent>().samples_per_step = load.samples_per_step;
    sample.write_finished(RunFiles{folder() / run.folder});
    run.state = SweepRunState::complete;
  }
  /// One run per point.
  SweepReport reported(const std::vector<PointLoad>& loads) const {
    std::vector<SweepPoint> points;
    for (const PointLoad& load : loads) {
      points.push_back({{"scale.ranks", std::to_string(load.devices)}});
    }
    SweepIndex index = index_of(points);
    for (std::size_t i = 0; i < loads.size(); ++i) store(index, i, loads[i]);
    write_sweep(folder(), index);
    return report_sweep(folder());
  }
  const fs::path& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

TEST_F(SweepTest, OrderGoesThereAndBackAndSeedsAreDistinct) {
  const SweepIndex index = index_of({{{"a", "1"}}, {{"a", "2"}}, {{"a", "3"}}}, 3);
  std::vector<std::size_t> points;
  std::set<std::pair<std::size_t, std::uint64_t>> seeds;
  std::set<std::string> folders;
  for (const SweepRun& run : index.runs) {
    points.push_back(run.point);
    seeds.emplace(run.point, run.seed);
    folders.insert(run.folder);
  }
  EXPECT_EQ(points, (std::vector<std::size_t>{0, 1, 2, 2, 1, 0, 0, 1, 2}));
  EXPECT_EQ(seeds.size(), 9u);
  EXPECT_EQ(folders.size(), 9u);
  EXPECT_EQ(index.runs[4].seed, 2u);
}

TEST_F(SweepTest, FolderNamesHoldWhateverTheValueIs) {
  const SweepIndex index = index_of({{{"data.source", "text:/a/../b c'$(x)\n"}}});
  EXPECT_EQ(index.runs[0].folder, "001-source=text--a-..-b-c---x---seed=1");
}

TEST_F(SweepTest, IndexRoundTrips) {
  SweepIndex index = index_of({{{"scale.ranks", "1"}}, {{"scale.ranks", "2"}}}, 2);
  index.first_seed = 1ull << 60;
  index.runs = there_and_back(index);
  index.runs[1].state = SweepRunState::failed;
  index.runs[1].exit_code = 6;
  index.runs[1].reason = "bytes \xff that are no text";
  index.set_aside.push_back({"aside/x-1", "running", "no record"});
  const std::string text = sweep_json_text(index);
  const SweepIndex again = parse_sweep(text, "sweep.json");
  EXPECT_EQ(sweep_json_text(again), text);
  EXPECT_EQ(again.runs[3].seed, (1ull << 60) + 1);
  EXPECT_EQ(Json::parse(text).at("status"), "partial");
}

TEST_F(SweepTest, DamagedIndicesAreRefusedWithTheirPath) {
  const std::string good = sweep_json_text(index_of({{{"scale.ranks", "1"}}}));
  const auto damaged = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text :
       {good.substr(0, good.size() / 2), damaged("heteroperf-sweep", "other"),
        damaged("\"_version\": 1", "\"_version\": 2"), damaged("001-ranks=1-seed=1", "../x"),
        damaged("\"state\": \"waiting\"", "\"state\": \"late\""),
        damaged("\"point\": 0", "\"point\": 7"), damaged("\"repeats\": 1", "\"repeats\": \"x\""),
        std::string("{}")}) {
    try {
      parse_sweep(text, "here/sweep.json");
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("here/sweep.json"), std::string::npos);
    }
  }
}

TEST_F(SweepTest, StrongAndWeakScalingAgainstTheSmallest) {
  // The same operations in a third of the time on 4 devices; 4 times the samples would be weak.
  const SweepReport strong = reported({{4, 4, 4}, {1, 4, 12}});
  ASSERT_EQ(strong.rows.size(), 2u);
  EXPECT_EQ(strong.rows[0].scaling, "strong");
  EXPECT_NEAR(*strong.rows[0].speedup, 3, 0.01);
  EXPECT_NEAR(strong.rows[0].efficiency->value, 0.75, 0.01);
  EXPECT_EQ(strong.rows[1].scaling, "base");
  EXPECT_EQ(strong.rows[1].efficiency->value, 1);
}

TEST_F(SweepTest, WeakAndMixedScalingAreNamed) {
  const SweepReport report = reported({{1, 4, 12}, {2, 8, 12}, {4, 8, 12}});
  ASSERT_EQ(report.rows.size(), 3u);
  EXPECT_EQ(report.rows[1].scaling, "weak");
  EXPECT_EQ(report.rows[2].scaling, "mixed");
  EXPECT_NEAR(report.rows[1].efficiency->value, 0.5, 0.01);  // the sample's operations are fixed
}

TEST_F(SweepTest, RunsOfOneScaleHaveNoEfficiency) {
  const SweepReport report = reported({{2, 4, 12}});
  EXPECT_FALSE(report.rows[0].efficiency.has_value());
  EXPECT_TRUE(report.rows[0].scaling.empty());
}

TEST_F(SweepTest, OtherAxesMakeCurvesOfTheirOwn) {
  SweepIndex index = index_of({{{"scale.ranks", "1"}, {"plan.schedule", "a"}},
                               {{"scale.ranks", "2"}, {"plan.schedule", "a"}},
                               {{"scale.ranks", "2"}, {"plan.schedule", "b"}},
                               {{"scale.ranks", "4"}, {"plan.schedule", "b"}}});
  const PointLoad loads[] = {{1, 4, 12}, {2, 4, 6}, {2, 4, 12}, {4, 4, 12}};
  for (std::size_t i = 0; i < 4; ++i) store(index, i, loads[i]);
  write_sweep(folder(), index);
  const SweepReport report = report_sweep(folder());
  EXPECT_NEAR(report.rows[1].efficiency->value, 1, 0.01);
  EXPECT_EQ(report.rows[2].scaling, "base");
  EXPECT_NEAR(report.rows[3].efficiency->value, 0.5, 0.01);
}

TEST_F(SweepTest, RepetitionsGiveIntervalsRunByRun) {
  SweepIndex index = index_of({{{"scale.ranks", "1"}}, {{"scale.ranks", "2"}}}, 3);
  // The machine becomes slower from round to round; both points do alike.
  for (std::size_t i = 0; i < index.runs.size(); ++i) {
    const double drift = 1 + 0.1 * static_cast<double>(index.runs[i].repeat);
    store(index, i,
          index.runs[i].point == 0 ? PointLoad{1, 4, 12 * drift} : PointLoad{2, 4, 7.5 * drift});
  }
  write_sweep(folder(), index);
  const SweepReport report = report_sweep(folder());
  const RepeatedRate& efficiency = *report.rows[1].efficiency;
  EXPECT_NEAR(efficiency.value, 0.8, 0.01);
  ASSERT_TRUE(efficiency.ci95.has_value());
  EXPECT_LT(efficiency.ci95->high - efficiency.ci95->low, 0.02);
  const Interval& ops = *report.rows[1].ops_per_second.ci95;
  EXPECT_GT((ops.high - ops.low) / report.rows[1].ops_per_second.value, 0.1);
  const Json json = Json::parse(sweep_report_json_text(report));
  EXPECT_EQ(json.at("results").at(1).at("runs"), 3);
  EXPECT_NE(sweep_report_console_text(report).find("strong"), std::string::npos);
}

TEST_F(SweepTest, WhatFailedOrWasEditedHidesNothingElse) {
  SweepIndex index = index_of({{{"scale.ranks", "1"}}, {{"scale.ranks", "2"}}}, 2);
  for (std::size_t i = 0; i < 4; ++i) store(index, i, {static_cast<std::uint32_t>(i % 2 + 1)});
  index.runs[0].state = SweepRunState::failed;
  index.runs[0].reason = "the reason";
  edit_file(folder() / index.runs[1].folder / "record.json", "\"value\": ", "\"value\": 1");
  fs::remove_all(folder() / index.runs[2].folder);
  write_sweep(folder(), index);
  const SweepReport report = report_sweep(folder());
  EXPECT_EQ(report.rows.size(), 1u);
  ASSERT_EQ(report.unscored.size(), 3u);
  EXPECT_EQ(report.unscored[0].reason, "the reason");
  EXPECT_NE(report.unscored[1].reason.find("not what was measured"), std::string::npos);
  EXPECT_FALSE(verify(folder()).ok());
}

TEST_F(SweepTest, OtherVerbsTakeItsRunsAndNotWhatWasSetAside) {
  SweepIndex index = index_of({{{"scale.ranks", "2"}}}, 3);
  for (std::size_t i = 0; i < 2; ++i) store(index, i, {});
  fs::create_directories(folder() / "aside");
  fs::copy(folder() / index.runs[0].folder, folder() / "aside/x", fs::copy_options::recursive);
  edit_file(folder() / "aside/x/record.json", "run-000", "run-999");
  write_sweep(folder(), index);
  EXPECT_EQ(find_runs({folder()}).runs.size(), 2u);
  EXPECT_EQ(find_runs({folder().parent_path() / folder().filename()}).skipped.size(), 0u);
  const RunHistory history = run_history(find_runs({folder()}), compared_metric("throughput"));
  EXPECT_EQ(history.series.at(0).points.size(), 2u);
  EXPECT_TRUE(verify(folder()).ok());
  edit_file(folder() / "sweep.json", "\"repeats\": 3", "\"repeats\":  3");
  EXPECT_FALSE(verify(folder() / "sweep.json").ok());
}

TEST_F(SweepTest, AFolderOfRunsIsVerifiedRunByRun) {
  for (int i = 0; i < 3; ++i) store_run(folder(), {.number = i});
  std::ofstream(folder() / "notes.txt") << "no run";
  const Verification good = verify(folder());
  EXPECT_TRUE(good.ok()) << good.to_json();
  EXPECT_EQ(good.checks.front().name.rfind("run-000/", 0), 0u);
  EXPECT_EQ(good.checks.back().name.rfind("run-002/", 0), 0u);
  edit_file(folder() / "run-001/record.json", "\"steps\": ", "\"steps\": 1");
  const Verification bad = verify(folder());
  EXPECT_FALSE(bad.ok());
  for (const VerifyCheck& check : bad.checks) {
    EXPECT_TRUE(check.ok || check.name.starts_with("run-001/")) << check.name;
  }
}

TEST_F(SweepTest, SweepsAreComparedPointByPoint) {
  TemporaryFolder other;
  SweepIndex a = index_of({{{"scale.ranks", "1"}}, {{"scale.ranks", "2"}}}, 2);
  SweepIndex b = index_of({{{"scale.ranks", "2"}}, {{"scale.ranks", "4"}}}, 2);
  for (std::size_t i = 0; i < 4; ++i) store(a, i, {a.runs[i].point == 0 ? 1u : 2u, 4, 12});
  write_sweep(folder(), a);
  for (std::size_t i = 0; i < 4; ++i) {
    SweepRun& run = b.runs[i];
    SampleRun sample = sample_of({.number = 100 + static_cast<int>(i), .step_s = 24});
    sample.last<ScaleEvent>().devices = {{"cpu", run.point == 0 ? 2u : 4u, 1, false}};
    sample.last<WorkloadEvent>().samples_per_step = 4;
    sample.write_finished(RunFiles{other.path() / run.folder});
    run.state = SweepRunState::complete;
  }
  write_sweep(other.path(), b);
  const SweepComparison comparison = compare_sweeps(folder(), other.path(), 0.02);
  ASSERT_EQ(comparison.points.size(), 1u);
  EXPECT_EQ(comparison.points[0].point, "ranks=2");
  EXPECT_NEAR(*comparison.points[0].comparison.ratio, 0.5, 0.01);
  EXPECT_EQ(comparison.only_a, std::vector<std::string>{"ranks=1"});
  EXPECT_EQ(comparison.only_b, std::vector<std::string>{"ranks=4"});
  const Json json = Json::parse(sweep_comparison_json_text(comparison));
  EXPECT_EQ(json.at("verdict"), "slower");
}

}  // namespace
}  // namespace heteroperf
