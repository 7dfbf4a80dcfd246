// What a report says, as a value: charts, tables and notices of runs that were never run.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "metrics/error.hpp"
#include "results/record.hpp"
#include "results/report/downsample.hpp"
#include "results/report/report_page.hpp"
#include "results/report/run_sections.hpp"
#include "results/report/runs_part.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

ReportRun report_run(const SampleRun& sample) {
  ReportRun run;
  run.journal = sample.journal();
  run.summary = summarize(run.journal);
  run.validity = judge(run.journal, run.summary);
  run.record = build_record(run.journal, run.summary, run.validity);
  return run;
}

const ReportChart* find_chart(const ReportPart& part, const std::string& id) {
  for (const ReportSection& section : part.sections) {
    for (const ReportChart& chart : section.charts) {
      if (chart.id == id) return &chart;
    }
  }
  return nullptr;
}

bool has_notice(const ReportPart& part, NoticeLevel level, const std::string& text) {
  const auto& notices = part.sections.front().notices;
  return std::any_of(notices.begin(), notices.end(), [&](const ReportNotice& notice) {
    return notice.level == level && notice.text.find(text) != std::string::npos;
  });
}

bool has_figure(const ReportPart& part, const std::string& name) {
  const auto& figures = part.sections.front().figures;
  return std::any_of(figures.begin(), figures.end(),
                     [&](const ReportFigure& figure) { return figure.name == name; });
}

std::string html_of(const ReportPart& part) { return report_html({"HeteroPerf report", {part}}); }

// ---------------------------------------------------------------- down-sampling

TEST(LargestTriangles, KeepsShortLinesWhole) {
  const std::vector<double> x{1, 2, 3}, y{5, 1, 9};
  EXPECT_EQ(largest_triangles(x, y), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_TRUE(largest_triangles({}, {}).empty());
}

TEST(LargestTriangles, KeepsEndsOrderAndPeaks) {
  std::mt19937 random(7);
  for (const std::size_t points : {1001u, 1777u, 50000u}) {
    std::vector<double> x(points), y(points);
    for (std::size_t i = 0; i < points; ++i) {
      x[i] = static_cast<double>(i);
      y[i] = static_cast<double>(random() % 100) / 1000;
    }
    const std::size_t peak = 1 + random() % (points - 2);
    y[peak] = 1000;
    const auto kept = largest_triangles(x, y);
    ASSERT_EQ(kept.size(), most_chart_points);
    EXPECT_EQ(kept.front(), 0u);
    EXPECT_EQ(kept.back(), points - 1);
    EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
    EXPECT_EQ(std::adjacent_find(kept.begin(), kept.end()), kept.end());
    EXPECT_NE(std::find(kept.begin(), kept.end(), peak), kept.end());
  }
}

// ---------------------------------------------------------------- tables

TEST(ChartTable, HoldsEveryValue) {
  ReportChart lines;
  lines.x = {"time", "s"};
  lines.y = {"rate", "op/s"};
  lines.series = {{"a", SeriesMark::line, {1, 2}, {3, std::nan("")}, {2, 3}, {4, 5}}};
  const ReportTable table = chart_table(lines);
  EXPECT_EQ(table.columns, (std::vector<std::string>{"time [s]", "a [op/s]", "a, low", "a, high"}));
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"1", "3", "2", "4"}));
  EXPECT_EQ(table.rows[1], (std::vector<std::string>{"2", "", "3", "5"}));

  ReportChart grid;
  grid.kind = ChartKind::grid;
  grid.edges = {0, 4, 8};
  grid.series = {{"rank 0"}, {"rank 1"}};
  grid.series[0].y = {1, 1.5};
  grid.series[1].y = {2};
  EXPECT_EQ(chart_table(grid).rows,
            (std::vector<std::vector<std::string>>{{"0", "4", "1", "2"}, {"4", "8", "1.5", ""}}));

  ReportChart spans;
  spans.kind = ChartKind::spans;
  spans.categories = {"rank 0"};
  spans.series = {{"forward"}};
  spans.spans = {{0, 0, 0.5, 1, "F 0.0"}};
  EXPECT_EQ(chart_table(spans).rows[0],
            (std::vector<std::string>{"rank 0", "forward", "F 0.0", "0.5", "1"}));
}

TEST(ChartTable, PutsSeriesOfOtherPlacesOneAfterAnother) {
  ReportChart chart;
  chart.series = {{"a", SeriesMark::line, {1}, {2}}, {"b", SeriesMark::points, {3, 4}, {5, 6}}};
  const ReportTable table = chart_table(chart);
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[2][0], "b");
  EXPECT_EQ(table.rows[2][2], "6");
}

// ---------------------------------------------------------------- one run

TEST(RunPart, OfAClosedRunHasScoreAndCharts) {
  const ReportPart part = run_part(report_run(fixed_run()), "r-");
  EXPECT_TRUE(has_notice(part, NoticeLevel::good, "closed, can be ranked"));
  EXPECT_TRUE(has_figure(part, "OPS (strict)"));
  const ReportChart* ops = find_chart(part, "r-ops");
  ASSERT_NE(ops, nullptr);
  ASSERT_FALSE(ops->bands.empty());
  EXPECT_EQ(ops->bands.front().label, "warm-up");
  EXPECT_GT(ops->bands.front().to, ops->bands.front().from);
  for (const char* id : {"r-quality", "r-steps", "r-durations"}) {
    EXPECT_NE(find_chart(part, id), nullptr) << id;
  }
}

TEST(RunPart, RateTimesTimeIsTheOperations) {
  const ReportRun run = report_run(fixed_run());
  const ReportPart part = run_part(run, "");
  const ChartSeries& rate = find_chart(part, "ops")->series.front();
  const double width_s = rate.x[1] - rate.x[0];
  double sum = 0;
  for (const double value : rate.y) sum += value * width_s;
  EXPECT_NEAR(sum / run.summary.operations.strict.to_double(), 1, 1e-9);
}

TEST(RunPart, HistogramCountsTheWindowsSteps) {
  const ReportRun run = report_run(fixed_run());
  const ReportPart part = run_part(run, "");
  const ReportChart& chart = *find_chart(part, "steps");
  double count = 0;
  for (const double bin : chart.series.front().y) count += bin;
  EXPECT_EQ(count, static_cast<double>(run.summary.steps));
  EXPECT_EQ(chart.categories.size(), chart.series.front().y.size());
}

TEST(RunPart, LongestStepsStayInTheLastBin) {
  SampleRun sample = fixed_run({.steps = 300});
  auto& step = sample.last<StepEvent>();
  step.t_start_ns -= 400'000'000'000;  // it overlaps the one before; the chart must show it anyway
  const ReportRun run = report_run(sample);
  const ReportPart part = run_part(run, "");
  const ReportChart& chart = *find_chart(part, "steps");
  EXPECT_NE(chart.note.find("longer steps"), std::string::npos) << chart.note;
  double count = 0;
  for (const double bin : chart.series.front().y) count += bin;
  EXPECT_EQ(count, static_cast<double>(run.summary.steps));
}

TEST(RunPart, OfAnInvalidRunShowsNoScore) {
  SampleRun sample = fixed_run();
  sample.last<StepEvent>().loss = std::numeric_limits<double>::quiet_NaN();
  const ReportPart part = run_part(report_run(sample), "");
  EXPECT_TRUE(has_notice(part, NoticeLevel::bad, "invalid"));
  EXPECT_FALSE(has_figure(part, "OPS (strict)"));
  EXPECT_TRUE(find_chart(part, "ops")->rules.empty());
  EXPECT_NE(html_of(part).find("finite_loss"), std::string::npos);
}

TEST(RunPart, OfAFailedRunSaysWhy) {
  SampleRun sample = fixed_run();
  sample.last<StopEvent>() = {RunStatus::failed, "rank 3 was lost in all_reduce", 6};
  const ReportPart part = run_part(report_run(sample), "");
  EXPECT_TRUE(has_notice(part, NoticeLevel::bad, "rank 3 was lost"));
  EXPECT_NE(html_of(part).find("rank 3 was lost"), std::string::npos);
}

TEST(RunPart, OfAnUnclosedRunSaysSo) {
  SampleRun sample = fixed_run();
  sample.lines.pop_back();
  ReportRun run = report_run(sample);
  run.stored = RecordState::absent;
  const ReportPart part = run_part(run, "");
  EXPECT_TRUE(has_notice(part, NoticeLevel::bad, "not closed"));
  EXPECT_TRUE(has_notice(part, NoticeLevel::note, "no record.json"));
}

TEST(RunPart, OfAStartAloneOpens) {
  SampleRun sample = fixed_run();
  sample.lines.resize(1);
  const ReportPart part = run_part(report_run(sample), "");
  for (const ReportSection& section : part.sections) EXPECT_TRUE(section.charts.empty());
  EXPECT_NE(html_of(part).find("before its first step"), std::string::npos);
}

TEST(RunPart, OfZeroStepsOpens) {
  SampleRun sample = fixed_run();
  sample.erase_all<StepEvent>();
  sample.erase_all<EvalEvent>();
  const ReportPart part = run_part(report_run(sample), "");
  EXPECT_EQ(find_chart(part, "ops"), nullptr);
  EXPECT_NE(html_of(part).find("No step ended."), std::string::npos);
}

TEST(RunPart, ClocksThatGoBackwardsOpen) {
  SampleRun sample = fixed_run();
  for (JournalLine& line : sample.lines) {
    if (auto* step = std::get_if<StepEvent>(&line.event)) {
      std::swap(step->t_start_ns, step->t_end_ns);
    }
  }
  const ReportPart part = run_part(report_run(sample), "");
  EXPECT_TRUE(has_notice(part, NoticeLevel::bad, "invalid"));
  EXPECT_FALSE(html_of(part).empty());
}

TEST(RunPart, OfAMixShowsIdealSumAndPrediction) {
  const ReportPart part = run_part(report_run(planned_run()), "");
  const ReportChart* mix = find_chart(part, "mix-measured");
  ASSERT_NE(mix, nullptr);
  EXPECT_EQ(mix->categories,
            (std::vector<std::string>{"1 × fast alone", "1 × slow alone", "ideal sum", "mixed"}));
  EXPECT_EQ(mix->rules.front().at, 10.5);
  EXPECT_EQ(mix->series[0].y[2] + mix->series[1].y[2], 10.5);
  ASSERT_NE(find_chart(part, "split-rank"), nullptr);
  const ReportChart& split = *find_chart(part, "split-rank");
  double first = 0;
  for (const ChartSeries& series : split.series) first += series.y[0];
  EXPECT_NEAR(first, 12.24, 1e-9);  // the parts add up to a step's wall time
  EXPECT_NE(find_chart(part, "split-stage"), nullptr);
  EXPECT_NE(find_chart(part, "memory"), nullptr);
  EXPECT_TRUE(has_notice(part, NoticeLevel::note, "Emulated"));
}

TEST(RunPart, OfASearchShowsTrialsAndGroups) {
  const ReportPart part = run_part(report_run(search_run()), "");
  const ReportChart* trials = find_chart(part, "trials");
  ASSERT_NE(trials, nullptr);
  EXPECT_EQ(trials->series[1].y.back(), 0.8);
  EXPECT_NE(find_chart(part, "groups"), nullptr);
  EXPECT_NE(html_of(part).find("loss is NaN"), std::string::npos);
}

TEST(RunPart, NamesTheSlowestRank) {
  SampleRun sample = fixed_run();
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    RankStepsEvent steps;
    steps.rank = rank;
    steps.first_step = 2;
    steps.steps = 5;
    steps.steps_per_value = 2;
    steps.compute_ns.assign(3, rank == 1 ? 2'000'000 : 1'000'000);
    sample.insert_before_stop(steps);
  }
  const ReportPart part = run_part(report_run(sample), "");
  const ReportChart* chart = find_chart(part, "stragglers");
  ASSERT_NE(chart, nullptr);
  EXPECT_EQ(chart->edges, (std::vector<double>{2, 4, 6, 7}));
  EXPECT_EQ(chart->series[1].y[0], 2);
  EXPECT_NE(chart->description.find("rank 1: +100.0 %"), std::string::npos) << chart->description;
}

TEST(RunPart, MergesCellsOfManyRanks) {
  SampleRun sample = fixed_run();
  for (std::int32_t rank = 0; rank < 100; ++rank) {
    RankStepsEvent steps;
    steps.rank = rank;
    steps.steps = 1000;
    steps.steps_per_value = 4;
    for (std::int64_t i = 0; i < 250; ++i) steps.compute_ns.push_back(i % 2 == 0 ? 1000 : 3000);
    sample.insert_before_stop(steps);
  }
  const ReportPart part = run_part(report_run(sample), "");
  const ReportChart& chart = *find_chart(part, "stragglers");
  ASSERT_EQ(chart.series.size(), 100u);
  EXPECT_LE(chart.series.size() * chart.series[0].y.size(), 6000u);
  EXPECT_EQ(chart.edges.size(), chart.series[0].y.size() + 1);
  EXPECT_EQ(chart.edges.back(), 1000);
  EXPECT_EQ(chart.series[7].y[0], 1);  // 2000 ns on average, as the median of all
  EXPECT_NE(chart.note.find("mean of 32"), std::string::npos) << chart.note;
}

TEST(RunPart, HasNoRooflineOfEmulatedDevices) {
  EXPECT_EQ(find_chart(run_part(report_run(planned_run()), ""), "roofline"), nullptr);
}

TEST(RunPart, RooflineLiesUnderTheMeasuredCeilings) {
  SampleRun sample = planned_run();
  for (DeviceCount& device : sample.last<ScaleEvent>().devices) device.emulated = false;
  for (JournalLine& line : sample.lines) {
    if (auto* peak = std::get_if<PeakEvent>(&line.event)) peak->memory_bytes_per_second = 1e9;
  }
  const ReportPart part = run_part(report_run(sample), "");
  const ReportChart* chart = find_chart(part, "roofline");
  ASSERT_NE(chart, nullptr);
  EXPECT_EQ(chart->series[0].x.size(), 3u);
  EXPECT_EQ(chart->series[0].y.back(), 1e12);
  EXPECT_NEAR(chart->series[0].y.front() / chart->series[0].x.front(), 1e9, 1);
  ASSERT_GE(chart->series.size(), 2u);
  EXPECT_GT(chart->series[1].y[0], 0);
}

TEST(StepTimeline, ReadsTracesAndRefusesOthers) {
  const std::string trace =
      R"({"traceEvents":[{"ph":"M","name":"thread_name","tid":1,"args":{"name":"rank 0"}},)"
      R"({"ph":"X","name":"BW 0.1","tid":1,"ts":1000000,"dur":500000,"args":{}}]})";
  const StepTimeline timeline = step_timeline(trace, "t.json", 0.5);
  ASSERT_EQ(timeline.lanes.size(), 1u);
  EXPECT_EQ(timeline.lanes[0].name, "rank 0");
  EXPECT_EQ(timeline.lanes[0].spans[0].kind, "backward");
  EXPECT_EQ(timeline.lanes[0].spans[0].from_s, 0.5);
  EXPECT_EQ(timeline.lanes[0].spans[0].to_s, 0.75);
  for (const char* bad :
       {"", "{", "[]", "{}", R"({"traceEvents":[{"ph":1}]})", R"({"traceEvents":[]})"}) {
    const StepTimeline none = step_timeline(bad, "t.json", 1);
    EXPECT_TRUE(none.lanes.empty());
    EXPECT_FALSE(none.missing.empty()) << bad;
  }
}

TEST(RunPart, PutsPredictedLanesAboveMeasuredOnes) {
  ReportRun run = report_run(planned_run());
  run.predicted.lanes = {{"rank 0", {{"forward", "F 0.0", 0, 1}}}};
  run.measured.lanes = {{"rank 0", {{"forward", "F 0.0", 7, 8.5}}}};
  const ReportPart part = run_part(run, "");
  const ReportChart& chart = *find_chart(part, "pipeline");
  EXPECT_EQ(chart.categories, (std::vector<std::string>{"rank 0, predicted", "rank 0, measured"}));
  EXPECT_EQ(chart.spans[1].from, 0);  // each step begins at its first instruction
  EXPECT_EQ(chart.spans[1].to, 1.5);
}

TEST(RunPart, KeepsTheLongestOfManyInstructions) {
  ReportRun run = report_run(planned_run());
  StepLane lane{"rank 0", {}};
  for (int i = 0; i < 20000; ++i) lane.spans.push_back({"forward", "F", i * 10.0, i * 10.0 + i});
  run.measured.lanes = {lane};
  const ReportPart part = run_part(run, "");
  const ReportChart& chart = *find_chart(part, "pipeline");
  EXPECT_LE(chart.spans.size(), 3000u);
  EXPECT_GT(chart.spans.size(), 2900u);
  EXPECT_NE(chart.note.find("of 20000"), std::string::npos) << chart.note;
}

TEST(RunPart, DrawsSomeOfManyRanksWhole) {
  ReportRun run = report_run(planned_run());
  for (int rank = 0; rank < 100; ++rank) {
    StepLane lane{fmt::format("rank {}", rank), {}};
    for (int i = 0; i < 90; ++i) lane.spans.push_back({"forward", "F", i * 2.0, i * 2.0 + 1});
    run.measured.lanes.push_back(lane);
  }
  const ReportPart part = run_part(run, "");
  const ReportChart& chart = *find_chart(part, "pipeline");
  EXPECT_LE(chart.spans.size(), 3000u);
  EXPECT_EQ(chart.categories.size(), 34u);
  EXPECT_NE(chart.note.find("Of 100 ranks one in 3"), std::string::npos) << chart.note;
}

// ---------------------------------------------------------------- several runs

RunDigest digest_at(std::uint64_t ranks, double ops, std::uint64_t samples) {
  RunDigest run;
  run.run_id = "run-" + std::to_string(ranks);
  run.workload = "llm";
  run.ranks = ranks;
  run.samples_per_step = samples;
  run.devices = {{"cpu", ranks}};
  run.ops_per_second = ops;
  run.metrics.resize(compared_metrics().size());
  return run;
}

TEST(Scaling, SetsStrongAgainstTheSmallestRun) {
  RunSet runs;
  runs.runs = {digest_at(1, 10, 64), digest_at(2, 18, 64), digest_at(4, 30, 64)};
  const ReportSection section = scaling_section(runs);
  ASSERT_EQ(section.charts.size(), 1u);
  EXPECT_EQ(section.charts[0].x.scale, AxisScale::logarithmic);
  EXPECT_EQ(section.charts[0].series[1].y, (std::vector<double>{10, 20, 40}));
  EXPECT_EQ(section.tables[0].rows[2].back(), "75.0 %");
  EXPECT_NE(section.charts[0].title.find("strong"), std::string::npos);
}

TEST(Scaling, TellsWeakFromStrong) {
  RunSet runs;
  runs.runs = {digest_at(1, 10, 16), digest_at(2, 19, 32)};
  const ReportSection section = scaling_section(runs);
  ASSERT_EQ(section.charts.size(), 1u);
  EXPECT_NE(section.charts[0].title.find("weak"), std::string::npos);
}

TEST(Scaling, SaysThatThereIsNone) {
  RunSet runs;
  runs.runs = {digest_at(2, 10, 16), digest_at(2, 19, 32)};
  runs.runs[1].ops_per_second.reset();
  const ReportSection section = scaling_section(runs);
  EXPECT_TRUE(section.charts.empty());
  EXPECT_FALSE(section.paragraphs.empty());
}

TEST(RunsPart, ShowsWhereTheLevelChanged) {
  TemporaryFolder folder;
  for (int i = 0; i < 16; ++i) {
    store_run(folder.path(), {.number = i, .step_s = (i < 8 ? 12 : 14) * (1 + 0.002 * (i % 3))});
  }
  const ReportSources sources = report_sources({folder.path()});
  EXPECT_EQ(sources.folders.size(), 16u);
  const ReportPart part = runs_part(sources.records);
  const ReportChart* trend = find_chart(part, "trend-0");
  ASSERT_NE(trend, nullptr);
  ASSERT_EQ(trend->rules.size(), 1u);
  EXPECT_EQ(trend->rules[0].at, 8.5);
  EXPECT_NE(trend->rules[0].label.find("worse"), std::string::npos);
}

TEST(ReportSources, CountUnfinishedRunsAndSkipForeignFiles) {
  TemporaryFolder folder;
  store_run(folder.path(), {.number = 1});
  fixed_run().write({folder.path() / "killed"});
  std::filesystem::create_directories(folder.path() / "other");
  const ReportSources sources = report_sources({folder.path()});
  EXPECT_EQ(sources.records.runs.size(), 1u);
  EXPECT_EQ(sources.folders.size(), 2u);
  EXPECT_EQ(read_report_run(folder.path() / "killed").stored, RecordState::absent);
  EXPECT_THROW(report_sources({folder.path() / "other"}), UserError);
  EXPECT_THROW(report_sources({folder.path() / "none"}), UserError);
}

TEST(ReportRun, TellsAnEditedRecord) {
  TemporaryFolder folder;
  const auto run = store_run(folder.path(), {});
  EXPECT_EQ(read_report_run(run).stored, RecordState::matches);
  edit_file(run / "record.json", "\"median\": 1", "\"median\": 2");
  EXPECT_EQ(read_report_run(run).stored, RecordState::differs);
}

// ---------------------------------------------------------------- the writer

TEST(ReportHtml, LetsNothingOutOfItsPlace) {
  SampleRun sample = fixed_run();
  const std::string hostile =
      "</script><script>alert(1)</script>\xe2\x80\xa8 \xff\xfe & \"quoted\" <!-- 'a'";
  sample.last<StopEvent>() = {RunStatus::failed, "", 6};
  auto& start = sample.last<StartEvent>();
  start.run_id = "a<b>&</h2>";
  ReportRun run = report_run(sample);
  ReportPart part = run_part(run, "");
  part.title = hostile;
  ReportChart chart;
  chart.id = "hostile";
  chart.title = chart.description = chart.note = hostile;
  chart.series = {{hostile, SeriesMark::points, {1}, {2}, {}, {}, {hostile}}};
  part.sections.front().charts.push_back(chart);
  const std::string html = html_of(part);
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_EQ(html.find("\xff"), std::string::npos);
  const std::string open = "<script type=\"application/json\" id=\"report-data\">";
  const std::size_t from = html.find(open) + open.size();
  const std::string data = html.substr(from, html.find("</script>", from) - from);
  EXPECT_EQ(data.find('<'), std::string::npos);
  EXPECT_TRUE(std::all_of(data.begin(), data.end(), [](char c) { return (c & 0x80) == 0; }));
  const auto json = nlohmann::json::parse(data);
  const std::string name = json.at("charts").at(0).at("series").at(0).at("name");
  EXPECT_NE(name.find("</script><script>alert(1)"), std::string::npos);
}

TEST(ReportHtml, AsksForNothingElse) {
  const std::string html = html_of(run_part(report_run(fixed_run()), ""));
  EXPECT_EQ(html.find(" src="), std::string::npos);
  EXPECT_EQ(html.find("@import"), std::string::npos);
  EXPECT_EQ(html.find("url("), std::string::npos);
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(html.find("Permission is hereby granted"), std::string::npos);
}

TEST(ReportHtml, HasATableForEveryChart) {
  const ReportPart part = run_part(report_run(planned_run()), "p-");
  const std::string html = html_of(part);
  std::size_t charts = 0;
  for (const ReportSection& section : part.sections) {
    for (const ReportChart& chart : section.charts) {
      ++charts;
      EXPECT_NE(html.find("<table id=\"" + chart.id + "-table\">"), std::string::npos) << chart.id;
      EXPECT_FALSE(chart.description.empty()) << chart.id;
      EXPECT_FALSE(chart_table(chart).rows.empty()) << chart.id;
    }
  }
  EXPECT_GT(charts, 5u);
}

TEST(ReportHtml, StaysSmallForLongRuns) {
  const ReportPart part = run_part(report_run(fixed_run({.steps = 40'000, .step_s = 0.01})), "");
  const std::string html = html_of(part);
  EXPECT_LT(html.size(), 1'000'000u);
  const ReportChart& durations = *find_chart(part, "durations");
  EXPECT_EQ(durations.series.front().x.size(), most_chart_points);
  EXPECT_NE(durations.note.find("largest-triangle-three-buckets"), std::string::npos);
  EXPECT_NE(durations.note.find("1000 of 40002"), std::string::npos);
}

}  // namespace
}  // namespace heteroperf
