#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "metrics/base/error.hpp"
#include "results/history/run_history.hpp"
#include "results/record/verify.hpp"
#include "results/report/runs_part.hpp"
#include "results/scaling/sweep_report.hpp"
#include "results/text/number_text.hpp"
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
  std::uint32_t threads = 1;
  std::string gpu = {};  ///< model of every device's
  bool emulated = false;
};

class SweepTest : public ::testing::Test {
 protected:
  /// Stores one run and notes it as complete.
  void store(SweepIndex& index, std::size_t number, const PointLoad& load) const {
    SweepRun& run = index.runs.at(number);
    StoredRun stored{.number = static_cast<int>(number), .step_s = load.step_s, .seed = run.seed};
    if (!load.gpu.empty()) stored.gpus.assign(load.devices, load.gpu);
    SampleRun sample = sample_of(stored);
    sample.last<ScaleEvent>().ranks = static_cast<std::int32_t>(load.devices);
    sample.last<ScaleEvent>().devices = {{"cpu", load.devices, load.threads, load.emulated}};
    sample.last<WorkloadEvent>().samples_per_step = load.samples_per_step;
    if (!cpus_.empty()) bind(sample);
    sample.last<StartEvent>().sweep = place_of(index, run);
    sample.write_finished(RunFiles{folder() / run.folder});
    run.state = SweepRunState::complete;
    run.exit_code = 0;
  }
  /// Runs stored from now on say that all ranks of a host may use these CPUs.
  void bind_to(const std::string& cpus) { cpus_ = cpus; }
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
  void bind(SampleRun& sample) const {
    Json system = Json::parse(sample.last<SystemEvent>().system.text);
    const int ranks = sample.last<ScaleEvent>().ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      const char* host = rank < ranks / 2 ? "a" : "b";
      system["binding"].push_back({{"rank", rank}, {"host", host}, {"cpus", cpus_}});
    }
    sample.last<SystemEvent>().system.text = system.dump();
  }

  TemporaryFolder folder_;
  std::string cpus_;
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
        damaged("\"repeats\": 1", "\"repeats\": 1e30"), damaged("\"point\": 0", "\"point\": 1e30"),
        std::string("{}")}) {
    try {
      parse_sweep(text, "here/sweep.json");
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("here/sweep.json"), std::string::npos);
    }
  }
}

TEST_F(SweepTest, NoTwoRunsLieInOneFolder) {
  SweepIndex index = index_of({{{"scale.ranks", "1"}}, {{"scale.ranks", "2"}}});
  index.runs.at(1).folder = index.runs.at(0).folder;
  EXPECT_THROW(parse_sweep(sweep_json_text(index), "sweep.json"), UserError);
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
  EXPECT_NEAR(report.rows[1].efficiency->value, 1, 0.01);  // twice the samples in the same time
}

TEST_F(SweepTest, AScaleOfAnotherModelOfGpuHasNoBase) {
  const SweepReport report = reported(
      {{1, 4, 12, 1, "NVIDIA A100"}, {2, 4, 8, 1, "NVIDIA H200"}, {4, 4, 5, 1, "NVIDIA H200"}});
  ASSERT_EQ(report.rows.size(), 3u);
  EXPECT_FALSE(report.rows[0].efficiency || report.rows[0].speedup);
  EXPECT_EQ(report.rows[1].scaling, "base");
  EXPECT_NEAR(report.rows[2].efficiency->value, 0.8, 0.01);
}

TEST_F(SweepTest, EmulatedDevicesAreTheSameOnAnyMachine) {
  const SweepReport report =
      reported({{1, 4, 12, 1, "NVIDIA A100", true}, {2, 4, 8, 1, "NVIDIA H200", true}});
  ASSERT_EQ(report.rows.size(), 2u);
  EXPECT_EQ(report.rows[0].scaling, "base");
  EXPECT_TRUE(report.rows[1].efficiency.has_value());
}

TEST_F(SweepTest, RunsOfOneScaleHaveNoEfficiency) {
  const SweepReport report = reported({{2, 4, 12}});
  EXPECT_FALSE(report.rows[0].efficiency.has_value());
  EXPECT_TRUE(report.rows[0].scaling.empty());
}

TEST_F(SweepTest, RanksAreHeldAgainstRanksOfAsManyThreads) {
  const SweepReport report = reported({{1, 4, 12, 2}, {2, 4, 12, 1}, {4, 4, 12, 1}});
  ASSERT_EQ(report.rows.size(), 3u);
  EXPECT_TRUE(report.rows[0].scaling.empty());
  EXPECT_FALSE(report.rows[0].efficiency || report.rows[0].speedup);
  EXPECT_EQ(report.rows[1].scaling, "base");
  EXPECT_NEAR(report.rows[2].efficiency->value, 0.5, 0.01);
  EXPECT_NE(sweep_report_text(report, DocumentForm::console).find("threads"), std::string::npos);
}

TEST_F(SweepTest, EveryFormTellsTheSameRows) {
  const SweepReport report = reported({{1, 4, 12, 1}, {2, 4, 12, 1}});
  const std::string csv = sweep_report_text(report, DocumentForm::csv);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3) << csv;
  const std::string header = csv.substr(0, csv.find('\n'));
  for (std::size_t at = 0; at < csv.size(); at = csv.find('\n', at) + 1) {
    const std::string line = csv.substr(at, csv.find('\n', at) - at);
    EXPECT_EQ(std::count(line.begin(), line.end(), ','),
              std::count(header.begin(), header.end(), ','))
        << line;
  }
  const std::string speedup = fmt::format("{}", *report.rows[1].speedup);
  EXPECT_NE(csv.find("," + speedup + ","), std::string::npos) << csv;
  const std::string markdown = sweep_report_text(report, DocumentForm::markdown);
  EXPECT_NE(markdown.find("\n| point | devices | runs |"), std::string::npos) << markdown;
  EXPECT_NE(markdown.find(fmt::format("| {:.3f} |", *report.rows[1].speedup)), std::string::npos)
      << markdown;
}

TEST_F(SweepTest, AMachineDividedAmongMoreRanksHasASpeedUpAlone) {
  const SweepReport report = reported({{1, 4, 12, 4}, {2, 4, 11, 2}, {4, 4, 16, 1}});
  EXPECT_EQ(report.rows[0].scaling, "base");
  for (const std::size_t row : {1u, 2u}) {
    EXPECT_EQ(report.rows[row].scaling, "divided");
    EXPECT_FALSE(report.rows[row].efficiency.has_value());
  }
  EXPECT_NEAR(*report.rows[2].speedup, 0.75, 0.01);
}

TEST_F(SweepTest, MoreThreadsThanCpusAreMarked) {
  bind_to("0-1,4");  // of two hosts: 6 CPUs
  const SweepReport report = reported({{6, 4, 12, 1}, {8, 4, 12, 1}});
  EXPECT_EQ(report.rows[0].crowding, "");
  EXPECT_EQ(report.rows[1].crowding, "8 threads on 6 CPUs");
  EXPECT_NE(sweep_report_text(report, DocumentForm::console).find("8 threads on 6 CPUs"),
            std::string::npos);
}

TEST_F(SweepTest, TheReportSaysTheSameAsTheTable) {
  SweepIndex index = index_of({{{"scale.ranks", "1"}}, {{"scale.ranks", "2"}}}, 3);
  for (std::size_t i = 0; i < index.runs.size(); ++i) {
    const double noise = 1 + 0.02 * static_cast<double>(i);
    store(index, i, {index.runs[i].point == 0 ? 1u : 2u, 4, 11 * noise});
  }
  write_sweep(folder(), index);
  const SweepReport report = report_sweep(folder());
  const SweepRow& row = report.rows.at(1);
  const ReportSection section = scaling_section(find_runs({folder()}));
  ASSERT_EQ(section.tables.size(), 1u);
  const auto& cells = section.tables[0].rows.at(1);
  EXPECT_EQ(value_text(cells.back(), Unit::none),
            percent_with_interval(row.efficiency->value, row.efficiency->ci95, 3));
  const ChartSeries& series = section.charts.at(0).series.at(0);
  EXPECT_EQ(series.y.at(1), row.ops_per_second.value);
  EXPECT_EQ(series.low.at(1), row.ops_per_second.ci95->low);
  EXPECT_EQ(series.high.at(1), row.ops_per_second.ci95->high);
}

TEST_F(SweepTest, AnIntervalOfTwoFarRunsIsSaidToBeNone) {
  SweepIndex index = index_of({{{"scale.ranks", "1"}}, {{"scale.ranks", "2"}}}, 2);
  for (std::size_t i = 0; i < index.runs.size(); ++i) {
    store(index, i, {index.runs[i].point == 0 ? 1u : 2u, 4, index.runs[i].repeat == 0 ? 11. : 40.});
  }
  store(index, 1, {2, 4, 30});
  write_sweep(folder(), index);
  const SweepReport report = report_sweep(folder());
  const Interval& ops = *report.rows[1].ops_per_second.ci95;
  EXPECT_GT(ops.high / ops.low, 2);
  const std::string text = sweep_report_text(report, DocumentForm::console);
  EXPECT_NE(text.find("% (2 runs: no useful interval)"), std::string::npos) << text;
  EXPECT_EQ(text.find("±"), std::string::npos);
  const Json json = Json::parse(sweep_report_text(report, DocumentForm::json));
  EXPECT_EQ(json.at("results").at(1).at("ops_per_second").at("ci95").at(1), ops.high);
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
  const Json json = Json::parse(sweep_report_text(report, DocumentForm::json));
  EXPECT_EQ(json.at("results").at(1).at("runs"), 3);
  EXPECT_NE(sweep_report_text(report, DocumentForm::console).find("strong"), std::string::npos);
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
  SweepIndex index = index_of({{{"scale.ranks", "1"}}}, 3);
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

TEST_F(SweepTest, ALinkIsNoRunOfIt) {
  SweepIndex index = index_of({{{"scale.ranks", "1"}}});
  store(index, 0, {});
  write_sweep(folder(), index);
  const fs::path run = folder() / index.runs[0].folder;
  TemporaryFolder elsewhere;
  fs::rename(run, elsewhere.path() / "run");
  fs::create_directory_symlink(elsewhere.path() / "run", run);
  const Verification verification = verify(folder());
  EXPECT_FALSE(verification.ok());
  EXPECT_NE(verification.to_json().find("it is a link"), std::string::npos);
}

TEST_F(SweepTest, ADamagedIndexHidesNoRun) {
  SweepIndex index = index_of({{{"scale.ranks", "2"}}}, 3);
  for (std::size_t i = 0; i < 3; ++i) store(index, i, {});
  fs::create_directories(folder() / "aside");
  fs::rename(folder() / index.runs[2].folder, folder() / "aside/x");
  std::ofstream(folder() / "sweep.json") << "{\"_format\":";
  const RunSet found = find_runs({folder()});
  EXPECT_EQ(found.runs.size(), 2u);
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_EQ(found.skipped[0].path, folder() / "sweep.json");
}

TEST_F(SweepTest, ARunWhoseFolderIsGoneIsNotComplete) {
  SweepIndex index = index_of({{{"scale.ranks", "1"}}, {{"scale.ranks", "2"}}});
  for (std::size_t i = 0; i < 2; ++i) store(index, i, {static_cast<std::uint32_t>(i + 1)});
  fs::remove_all(folder() / index.runs[0].folder);
  write_sweep(folder(), index);
  const SweepReport report = report_sweep(folder());
  EXPECT_TRUE(
      sweep_report_text(report, DocumentForm::console).starts_with("1 of 2 runs are complete"));
  EXPECT_EQ(Json::parse(sweep_report_text(report, DocumentForm::json)).at("status"), "partial");
}

TEST_F(SweepTest, AnEditedExitCodeFailsVerification) {
  SweepIndex index = index_of({{{"scale.ranks", "1"}}});
  store(index, 0, {});
  write_sweep(folder(), index);
  EXPECT_TRUE(verify(folder()).ok());
  edit_file(folder() / "sweep.json", "\"exit_code\": 0", "\"exit_code\": 6");
  EXPECT_FALSE(verify(folder()).ok());
  index.sealed = false;  // as programs before wrote it
  write_sweep(folder(), index);
  EXPECT_TRUE(verify(folder()).ok());
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
  const Json json = Json::parse(sweep_comparison_text(comparison, DocumentForm::json));
  EXPECT_EQ(json.at("verdict"), "slower");
}

TEST_F(SweepTest, ASweepIsNotComparedWithItself) {
  SweepIndex index = index_of({{{"scale.ranks", "1"}}, {{"scale.ranks", "2"}}});
  for (std::size_t i = 0; i < 2; ++i) store(index, i, {static_cast<std::uint32_t>(i + 1)});
  write_sweep(folder(), index);
  TemporaryFolder other;
  fs::copy(folder(), other.path() / "copy", fs::copy_options::recursive);
  for (const fs::path& b : {folder(), other.path() / "copy"}) {
    try {
      compare_sweeps(folder(), b, 0.02);
      ADD_FAILURE() << b;
    } catch (const UserError& error) {
      ASSERT_EQ(error.problems().size(), 2u);
      EXPECT_EQ(error.problems()[1].problem, "the run run-001 is in A and in B");
    }
  }
}

}  // namespace
}  // namespace heteroperf
