#include "results/history/run_history.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "results/run_folder.hpp"
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
  const Json json = Json::parse(history_json_text(history));
  EXPECT_EQ(json.at("change_points").at(0).at("index"), 20);
  EXPECT_EQ(json.at("change_points").at(0).at("commit"), "commit20");
  EXPECT_EQ(json.at("series").at(0).at("points").size(), 30u);
  EXPECT_NE(history_console_text(history).find("WORSE"), std::string::npos);
}

TEST(RunHistory, SeriesAreKeptApartAndBadRecordsSkipped) {
  const TemporaryFolder folder;
  store_run(folder.path(), {.number = 1});
  store_run(folder.path(), {.number = 2, .build_type = "Debug"});
  SampleRun none = sample_of({.number = 3});
  none.erase_all<StepEvent>();
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
  for (const char* reason : {"no throughput", "edited", "yesterday"}) {
    EXPECT_NE(reasons.find(reason), std::string::npos) << reasons;
  }
}

}  // namespace
}  // namespace heteroperf
