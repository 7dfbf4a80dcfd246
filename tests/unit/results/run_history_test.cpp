#include "results/history/run_history.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "results/record/run_folder.hpp"
#include "tests/unit/metrics/noise.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::json;

TEST(RunHistory, FindsTheStepWithCommitAndEnvironment) {
  const TemporaryFolder folder;
  NoiseSource noise(2);
  for (int i = 0; i < 30; ++i) {
    const bool slow = i >= 20;
    store_run(folder.path(), {.number = i,
                              .step_s = 12 * (slow ? 1.06 : 1.0) * (1 + 0.01 * noise.normal()),
                              .commit = "commit" + std::to_string(i),
                              .host = i < 10 ? "old" : "new"});
  }
  std::ofstream(folder.path() / "notes.txt") << "foreign";
  const RunHistory history = run_history(find_runs({folder.path()}), compared_metric("throughput"));
  ASSERT_EQ(history.series.size(), 1u);
  const HistorySeries& series = history.series[0];
  ASSERT_EQ(series.points.size(), 30u);
  ASSERT_EQ(series.changes.size(), 1u);
  EXPECT_EQ(series.changes[0].index, 20u);
  EXPECT_EQ(series.changes[0].commit, "commit20");
  EXPECT_TRUE(series.changes[0].worse);
  EXPECT_NEAR(series.changes[0].after / series.changes[0].before, 1 / 1.06, 0.01);
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(series.points[i].environment_changes.empty(), i != 10) << i;
  }
  EXPECT_EQ(history.foreign, 1u);
  const RunHistory times = run_history(find_runs({folder.path()}), compared_metric("step_time_s"));
  ASSERT_EQ(times.series[0].changes.size(), 1u);
  EXPECT_TRUE(times.series[0].changes[0].worse);
  const Json json = Json::parse(json_text(history_document(history)));
  EXPECT_EQ(unstated_keys(history_document(history)), std::vector<std::string>());
  EXPECT_EQ(json.at("change_points").at(0).at("index"), 20);
  EXPECT_EQ(json.at("change_points").at(0).at("commit"), "commit20");
  EXPECT_EQ(json.at("series").at(0).at("points").size(), 30u);
  EXPECT_NE(console_text(history_document(history)).find("WORSE"), std::string::npos);
}

TEST(RunHistory, SeriesAreKeptApartAndBadRecordsSkipped) {
  const TemporaryFolder folder;
  store_run(folder.path(), {.number = 1});
  store_run(folder.path(), {.number = 2, .build_type = "Debug"});
  SampleRun none = sample_of({.number = 3});
  none.erase_steps();
  none.write_finished(RunFiles{folder.path() / "none"});
  const RunFiles edited{store_run(folder.path(), {.number = 4})};
  edit_file(edited.record(), "2026-01-01", "2031-01-01");
  SampleRun dateless = sample_of({.number = 5});
  dateless.last<StartEvent>().created_utc = "yesterday";
  dateless.write_finished(RunFiles{folder.path() / "dateless"});
  const RunHistory history = run_history(find_runs({folder.path()}), compared_metric("throughput"));
  EXPECT_EQ(history.series.size(), 2u);
  ASSERT_EQ(history.skipped.size(), 3u);
  std::string reasons;
  for (const SkippedEntry& one : history.skipped) reasons += one.reason + '\n';
  for (const char* reason : {"no throughput", "not what was measured", "yesterday"}) {
    EXPECT_NE(reasons.find(reason), std::string::npos) << reasons;
  }
}

TEST(RunHistory, AnotherModelOfGpuIsAMark) {
  const TemporaryFolder folder;
  for (int i = 0; i < 4; ++i) {
    store_run(folder.path(), {.number = i, .gpus = {i < 2 ? "NVIDIA A100" : "NVIDIA H200"}});
  }
  const RunHistory history = run_history(find_runs({folder.path()}), compared_metric("throughput"));
  ASSERT_EQ(history.series.size(), 1u);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& changes = history.series[0].points.at(i).environment_changes;
    if (i != 2) {
      EXPECT_TRUE(changes.empty()) << i;
      continue;
    }
    EXPECT_EQ(changes,
              (std::vector<std::string>{"/system/gpus: 1 x NVIDIA A100 -> 1 x NVIDIA H200"}));
  }
}

/// A run of 12 s a step on `pipeline` stages, of a program that also knows the keys of `extra`.
void store_asked(const TemporaryFolder& folder, const StoredRun& stored, int pipeline,
                 const std::string& extra = "") {
  SampleRun run = sample_of(stored);
  run.last<ConfigEvent>().config.text = R"({"seed":)" + std::to_string(stored.number) +
                                        R"(,"plan":{"pipeline":)" + std::to_string(pipeline) +
                                        extra + "}}";
  run.write_finished(RunFiles{folder.path() / std::to_string(stored.number)});
}

TEST(RunHistory, RunsThatWereAskedForOtherwiseAreAnotherSeries) {
  const TemporaryFolder folder;
  for (int i = 0; i < 8; ++i) {
    store_asked(folder, {.number = i, .step_s = i % 2 == 0 ? 12.0 : 30.0}, 1 + i % 2);
  }
  const RunHistory history = run_history(find_runs({folder.path()}), compared_metric("throughput"));
  ASSERT_EQ(history.series.size(), 2u);
  for (const HistorySeries& series : history.series) {
    EXPECT_EQ(series.points.size(), 4u);
    EXPECT_TRUE(series.changes.empty());
  }
  EXPECT_TRUE(history.series[0].label.ends_with(", plan.pipeline=1")) << history.series[0].label;
  const Json json = Json::parse(json_text(history_document(history)));
  EXPECT_EQ(json.at("series").at(1).at("setup"), Json({{"/config/plan/pipeline", "2"}}));
}

TEST(RunHistory, LabelsTellSeriesOfOtherKeysApart) {
  const TemporaryFolder folder;
  store_run(folder.path(), {.number = 1});
  store_run(folder.path(), {.number = 2, .build_type = "Debug"});
  const auto series = run_history(find_runs({folder.path()}), compared_metric("throughput")).series;
  ASSERT_EQ(series.size(), 2u);
  EXPECT_NE(series[0].label, series[1].label);
  EXPECT_EQ(series[0].setup, (RecordLeaves{{"/key/program.build_type", "Debug"}}));
}

TEST(RunHistory, KeysOfANewProgramAndItsPlanAreMarks) {
  const TemporaryFolder folder;
  store_asked(folder, {.number = 0, .commit = "old"}, 1);
  store_asked(folder, {.number = 1, .commit = "new"}, 1, R"(,"overlap":true)");
  SampleRun replanned = sample_of({.number = 2, .commit = "new"});
  replanned.last<ConfigEvent>().config.text = R"({"plan":{"pipeline":1,"overlap":true}})";
  replanned.last<PlanEvent>().summary = "pp 2 x tp 1 x dp 1";
  replanned.write_finished(RunFiles{folder.path() / "2"});
  const RunHistory history = run_history(find_runs({folder.path()}), compared_metric("throughput"));
  ASSERT_EQ(history.series.size(), 1u);
  const auto& points = history.series[0].points;
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[1].environment_changes,
            std::vector<std::string>{"/config/plan/overlap: (none) -> true"});
  ASSERT_EQ(points[2].environment_changes.size(), 1u);
  EXPECT_TRUE(points[2].environment_changes[0].starts_with("/plan_summary: "));
  EXPECT_NE(console_text(history_document(history)).find("* /plan_summary: "), std::string::npos);
}

TEST(RunHistory, ASettingOfOneProgramIsAnotherSeries) {
  const TemporaryFolder folder;
  store_asked(folder, {.number = 0}, 1);
  store_asked(folder, {.number = 1}, 1, R"(,"file":"plan.json")");
  EXPECT_EQ(run_history(find_runs({folder.path()}), compared_metric("throughput")).series.size(),
            2u);
}

TEST(RunHistory, NamesOfFoldersAreEscaped) {
  const TemporaryFolder folder;
  const std::filesystem::path torn = folder.path() / "evil\x1b[2J\xff\nskipped x";
  std::filesystem::create_directories(torn);
  std::ofstream(torn / "record.json") << "{";
  const std::string text = console_text(
      history_document(run_history(find_runs({folder.path()}), compared_metric("throughput"))));
  EXPECT_NE(text.find("skipped "), std::string::npos);
  for (const char* raw : {"\x1b", "\xff", "\nskipped x"}) {
    EXPECT_EQ(text.find(raw), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace heteroperf
