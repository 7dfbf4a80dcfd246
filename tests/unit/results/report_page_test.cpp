// Lines and tables of a report, what it says of several runs, and how it is written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "metrics/base/error.hpp"
#include "results/report/report_page.hpp"
#include "results/report/report_run.hpp"
#include "results/report/runs_part.hpp"
#include "results/sweep/sweep_index.hpp"
#include "tests/unit/results/report_parts.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

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
  const Table table = chart_table(lines);
  EXPECT_EQ(labels_of(table),
            (std::vector<std::string>{"time [s]", "a [op/s]", "a, low", "a, high"}));
  EXPECT_EQ(cells_of(table, 0), (std::vector<std::string>{"1", "3", "2", "4"}));
  EXPECT_EQ(cells_of(table, 1), (std::vector<std::string>{"2", "", "3", "5"}));

  ReportChart grid;
  grid.kind = ChartKind::grid;
  grid.edges = {0, 4, 8};
  grid.series = {{"rank 0"}, {"rank 1"}};
  grid.series[0].y = {1, 1.5};
  grid.series[1].y = {2};
  const Table cells = chart_table(grid);
  EXPECT_EQ(cells_of(cells, 0), (std::vector<std::string>{"0", "4", "1", "2"}));
  EXPECT_EQ(cells_of(cells, 1), (std::vector<std::string>{"4", "8", "1.5", ""}));

  ReportChart spans;
  spans.kind = ChartKind::spans;
  spans.categories = {"rank 0"};
  spans.series = {{"forward"}};
  spans.spans = {{0, 0, 0.5, 1, "F 0.0"}};
  EXPECT_EQ(cells_of(chart_table(spans), 0),
            (std::vector<std::string>{"rank 0", "forward", "F 0.0", "0.5", "1"}));
}

TEST(ChartTable, PutsSeriesOfOtherPlacesOneAfterAnother) {
  ReportChart chart;
  chart.series = {{"a", SeriesMark::line, {1}, {2}}, {"b", SeriesMark::points, {3, 4}, {5, 6}}};
  const Table table = chart_table(chart);
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(cells_of(table, 2)[0], "b");
  EXPECT_EQ(cells_of(table, 2)[2], "6");
}

// ---------------------------------------------------------------- several runs

RunDigest digest_at(std::uint64_t ranks, double ops, std::uint64_t samples) {
  RunDigest run;
  run.run_id = "run-" + std::to_string(ranks);
  run.workload = "llm";
  run.ranks = ranks;
  run.samples_per_step = samples;
  run.devices = {{"cpu", ranks}};
  run.metrics[metric_place("ops_per_second")] = MetricValue{"", ops};
  return run;
}

TEST(Scaling, SetsStrongAgainstTheSmallestRun) {
  RunSet runs;
  runs.runs = {digest_at(1, 10, 64), digest_at(2, 18, 64), digest_at(4, 30, 64)};
  const ReportSection section = scaling_section(runs);
  ASSERT_EQ(section.charts.size(), 1u);
  EXPECT_EQ(section.charts[0].x.scale, AxisScale::logarithmic);
  EXPECT_EQ(section.charts[0].series[1].y, (std::vector<double>{10, 20, 40}));
  EXPECT_EQ(cells_of(section.tables[0], 2).back(), "75.0 %");
  EXPECT_NE(section.charts[0].title.find("strong"), std::string::npos);
}

TEST(Scaling, TellsWeakFromStrong) {
  RunSet runs;
  runs.runs = {digest_at(1, 10, 16), digest_at(2, 19, 32)};
  const ReportSection section = scaling_section(runs);
  ASSERT_EQ(section.charts.size(), 1u);
  EXPECT_NE(section.charts[0].title.find("weak"), std::string::npos);
}

RunDigest threaded(std::uint64_t ranks, std::uint64_t threads, double ops) {
  RunDigest run = digest_at(ranks, ops, 64);
  run.devices.front().threads = threads;
  return run;
}

TEST(Scaling, ComparesRanksOfAsManyThreads) {
  RunSet runs;
  runs.runs = {threaded(1, 1, 10), threaded(2, 1, 19), threaded(1, 2, 20), threaded(2, 2, 36)};
  const ReportSection section = scaling_section(runs);
  ASSERT_EQ(section.charts.size(), 2u);
  EXPECT_NE(section.charts[0].title.find("1 thread a rank"), std::string::npos);
  EXPECT_NE(section.charts[1].title.find("2 threads a rank"), std::string::npos);
  EXPECT_EQ(cells_of(section.tables[0], 1).back(), "95.0 %");
  EXPECT_EQ(cells_of(section.tables[1], 1).back(), "90.0 %");
}

TEST(Scaling, AMachineDividedAmongMoreRanksIsAFamilyToo) {
  RunSet runs;
  runs.runs = {threaded(1, 4, 10), threaded(2, 2, 12), threaded(4, 1, 14)};
  const ReportSection section = scaling_section(runs);
  ASSERT_EQ(section.charts.size(), 1u);
  EXPECT_NE(section.charts[0].title.find("threads a rank differ"), std::string::npos);
  EXPECT_EQ(labels_of(section.tables[0])[1], "threads a rank");
  EXPECT_EQ(cells_of(section.tables[0], 2)[1], "1");
  EXPECT_EQ(cells_of(section.tables[0], 2)[4], "1.4");
  EXPECT_EQ(cells_of(section.tables[0], 2).back(), "-");
  EXPECT_EQ(section.charts[0].series.size(), 1u);  // no line of an ideal
}

RunDigest on_gpus(std::uint64_t ranks, const std::string& model, double ops) {
  RunDigest run = digest_at(ranks, ops, 64);
  run.devices = {{"gpu", ranks}};
  run.gpus = {{model, ranks}};
  return run;
}

TEST(Scaling, AnotherModelOfGpuIsAnotherMachine) {
  RunSet runs;
  runs.runs = {on_gpus(1, "NVIDIA A100", 10), on_gpus(2, "NVIDIA H200", 40)};
  EXPECT_TRUE(scaling_section(runs).charts.empty());
  runs.runs.push_back(on_gpus(4, "NVIDIA H200", 60));
  const ReportSection section = scaling_section(runs);
  ASSERT_EQ(section.charts.size(), 1u);
  EXPECT_NE(section.charts[0].title.find("NVIDIA H200"), std::string::npos);
  EXPECT_EQ(cells_of(section.tables[0], 1).back(), "75.0 %");
  runs.runs.erase(runs.runs.begin());  // nothing to be told apart from
  EXPECT_EQ(scaling_section(runs).charts.at(0).title.find("NVIDIA H200"), std::string::npos);
}

TEST(Scaling, EmulatedDevicesAreTheSameOnEveryMachine) {
  RunSet runs;
  runs.runs = {digest_at(1, 10, 64), digest_at(2, 18, 64)};
  for (RunDigest& run : runs.runs) {
    run.host = run.run_id;
    run.emulated = true;
    run.modelled_samples_per_s = run.number("ops_per_second");
  }
  EXPECT_EQ(scaling_section(runs).charts.size(), 1u);
  for (RunDigest& run : runs.runs) run.emulated = false;
  EXPECT_TRUE(scaling_section(runs).charts.empty());
}

RunDigest planned_at(std::uint64_t ranks, const std::string& plan, double ops) {
  RunDigest run = digest_at(ranks, ops, 64);
  run.environment["/plan_summary"] = plan;
  run.environment["/scale/transport"] = "threads";
  run.data_fingerprint = "generated";
  run.key = {{"workload.hash", "of the work of a step too"},
             {"validity.ruleset", "1.7"},
             {"workload.precision", "fp32"},
             {"scale", std::to_string(ranks)},
             {"program.build_type", "Release"}};
  return run;
}

/// Each pair differs in its ranks and in one thing more.
TEST(Scaling, JoinsLikeWithLikeOnly) {
  const char* const two = "pp 1 x tp 1 x dp 2, 1f1b, 4 micro-batches of 8";
  const char* const four = "pp 1 x tp 1 x dp 4, 1f1b, 2 micro-batches of 8";
  const RunDigest small = planned_at(2, two, 10);
  const auto charts = [&](const RunDigest& large) {
    RunSet runs;
    runs.runs = {small, large};
    return scaling_section(runs).charts.size();
  };
  const RunDigest large = planned_at(4, four, 19);
  EXPECT_EQ(charts(large), 1u);
  const auto unlike = [&](const std::function<void(RunDigest&)>& change) {
    RunDigest other = large;
    change(other);
    return charts(other) == 0;
  };
  EXPECT_TRUE(unlike([](RunDigest& run) { run.data_fingerprint = "text"; }));
  EXPECT_TRUE(unlike([](RunDigest& run) { run.graph_hash = "another"; }));
  EXPECT_TRUE(unlike([](RunDigest& run) { run.precision = "bf16"; }));
  EXPECT_TRUE(unlike([](RunDigest& run) { run.key[1].value = "1.6"; }));
  EXPECT_TRUE(unlike([](RunDigest& run) { run.key[4].value = "Debug"; }));
  EXPECT_TRUE(unlike([](RunDigest& run) { run.environment["/scale/transport"] = "mpi"; }));
  EXPECT_TRUE(unlike([](RunDigest& run) { run.environment["/config/plan/recompute"] = "full"; }));
  EXPECT_TRUE(
      unlike([](RunDigest& run) { run.workload_leaves["/workload/config/optimizer"] = "sgd"; }));
  const auto planned_otherwise = [&](const std::string& plan) {
    return unlike([&](RunDigest& run) { run.environment["/plan_summary"] = plan; });
  };
  EXPECT_TRUE(planned_otherwise("pp 1 x tp 1 x dp 4, zb-h1, 2 micro-batches of 8"));
  EXPECT_TRUE(planned_otherwise("pp 2 x tp 2 x dp 1, 1f1b, 8 micro-batches of 8"));
  EXPECT_TRUE(planned_otherwise("pp 2 x tp 1 x dp 4, 1f1b, 2 micro-batches of 8"));
}

/// One degree of the plan grows with the ranks, whichever it is.
TEST(Scaling, ACurveIsOfOneDegreeOfThePlan) {
  RunSet runs;
  runs.runs = {planned_at(1, "pp 1 x tp 1 x dp 1, 1f1b, 8 micro-batches of 8", 10),
               planned_at(2, "pp 1 x tp 1 x dp 2, 1f1b, 4 micro-batches of 8", 19),
               planned_at(2, "pp 2 x tp 1 x dp 1, 1f1b, 8 micro-batches of 8", 17),
               planned_at(4, "pp 4 x tp 1 x dp 1, 1f1b, 8 micro-batches of 8", 30),
               planned_at(4, "pp 2 x tp 1 x dp 2, 1f1b, 4 micro-batches of 8", 33)};
  std::map<std::string, std::vector<double>> curves;
  for (const ReportChart& chart : scaling_section(runs).charts) {
    curves[chart.title] = chart.series[0].y;
  }
  const std::string head = "Scaling, strong: llm   on cpu, 64 samples a step, ",
                    tail = ", 1 thread a rank";
  EXPECT_EQ(curves,
            (std::map<std::string, std::vector<double>>{{head + "pp 1 x tp 1" + tail, {10, 19}},
                                                        {head + "pp 2 x tp 1" + tail, {17, 33}},
                                                        {head + "tp 1 x dp 1" + tail, {10, 17, 30}},
                                                        {head + "tp 1 x dp 2" + tail, {19, 33}}}));
}

TEST(Scaling, CurvesOfOneLabelSayWhatTellsThemApart) {
  RunSet runs;
  for (const char* data : {"generated", "text"}) {
    for (const std::uint64_t ranks : {1u, 2u}) {
      RunDigest& run =
          runs.runs.emplace_back(digest_at(ranks, 10 * static_cast<double>(ranks), 64));
      run.data_fingerprint = data;
      run.workload_leaves["/workload/data"] = std::string("data that are ") + data;
    }
  }
  const ReportSection section = scaling_section(runs);
  ASSERT_EQ(section.charts.size(), 2u);
  EXPECT_NE(section.charts[0].title.find("data that are generated"), std::string::npos);
  EXPECT_NE(section.charts[1].title.find("data that are text"), std::string::npos);
}

TEST(Scaling, PointsHaveTheirIntervals) {
  RunSet runs;
  runs.runs = {digest_at(1, 10, 64), digest_at(2, 18, 64)};
  runs.runs[0].metrics[metric_place("ops_per_second")]->ci95 = Interval{9.5, 10.5};
  const ReportChart chart = scaling_section(runs).charts.at(0);
  EXPECT_EQ(chart.series[0].low, (std::vector<double>{9.5, 18}));
  EXPECT_EQ(chart.series[0].high, (std::vector<double>{10.5, 18}));
}

TEST(Scaling, SaysThatThereIsNone) {
  RunSet runs;
  runs.runs = {digest_at(2, 10, 16), digest_at(2, 19, 32)};
  runs.runs[1].metrics[metric_place("ops_per_second")].reset();
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
  const ReportPart part = runs_part(sources);
  const ReportChart* trend = find_chart(part, "trend-0");
  ASSERT_NE(trend, nullptr);
  ASSERT_EQ(trend->rules.size(), 1u);
  EXPECT_EQ(trend->rules[0].at, 8.5);
  EXPECT_NE(trend->rules[0].label.find("worse"), std::string::npos);
  EXPECT_EQ(trend->description, "16 runs, 1 lasting change of level.");
  EXPECT_NE(trend->y.scale, AxisScale::from_zero);  // where a change of 3 % cannot be seen
  EXPECT_EQ(part.sections.back().title, "What changed from the first run to the last");
  const Table& runs = part.sections.front().tables.front();
  const auto labels = labels_of(runs);
  const auto column = std::find(labels.begin(), labels.end(), "throughput") - labels.begin();
  const std::string cell = cells_of(runs, 0).at(static_cast<std::size_t>(column));
  EXPECT_EQ(cell, "5.229 image/s");
  const std::string html = html_of(part);
  EXPECT_NE(html.find("Line at 8.5: worse"), std::string::npos);
  EXPECT_NE(html.find("<td class=\"n\">5.229 image/s</td>"), std::string::npos);
}

/// The page's own data, as its script reads them.
nlohmann::json page_data(const ReportPart& part) {
  return nlohmann::json::parse(report_data_text({"page", {part}})).at("charts");
}

/// 0.03 % of noise is no fall: it stays in the middle of the scale.
TEST(RunsPart, TheTrendDoesNotMagnifyNoise) {
  TemporaryFolder folder;
  for (int i = 0; i < 4; ++i) {
    store_run(folder.path(), {.number = i, .step_s = 12 * (1 + 0.0001 * (i % 3))});
  }
  const ReportPart part = runs_part(report_sources({folder.path()}));
  const ReportChart& trend = *find_chart(part, "trend-0");
  const ChartSeries& runs = trend.series.front();
  ASSERT_TRUE(trend.y.least);
  EXPECT_LE(trend.y.least->low, 0.951 * runs.y[0]);
  EXPECT_GE(trend.y.least->high, 1.049 * runs.y[0]);
  for (std::size_t i = 0; i < runs.y.size(); ++i) {
    EXPECT_LT(runs.low.at(i), runs.y[i]);
    EXPECT_GT(runs.high.at(i), runs.y[i]);
    EXPECT_LE(trend.y.least->low, runs.low[i]);
    EXPECT_GE(trend.y.least->high, runs.high[i]);
  }
  EXPECT_EQ(trend.x.places.at(1), "2026-01-01 00:01");
  EXPECT_EQ(cells_of(chart_table(trend), 1).at(1), "2026-01-01 00:01");
  for (const nlohmann::json& chart : page_data(part)) {
    if (chart.at("id") != "trend-0") continue;
    EXPECT_EQ(chart.at("x").at("places").at(1), "2026-01-01 00:01");
    EXPECT_EQ(chart.at("x").at("places").size(), 4u);
    const nlohmann::json& range = chart.at("y").at("least");
    const double low = range.at(0), high = range.at(1), value = chart.at("series")[0].at("y")[0];
    EXPECT_LE(low, 0.951 * value);
    EXPECT_GE(high, 1.049 * value);
    EXPECT_EQ(chart.at("series")[0].at("low").size(), 4u);
  }
}

/// Slow is bad and busy is good: neither has the other's colours.
TEST(RunPart, GridsOfBadAndOfGoodHaveColoursOfTheirOwn) {
  SampleRun slow = fixed_run();
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    RankStepsEvent steps;
    steps.rank = rank;
    steps.steps = 2;
    steps.steps_per_value = 1;
    steps.compute_ns = {1000, 1000 + 500 * rank};
    slow.insert_before_stop(steps);
  }
  const auto tone_of = [](const SampleRun& run, const std::string& id) -> std::string {
    for (const nlohmann::json& chart : page_data(run_part(report_run(run), ""))) {
      if (chart.at("id") == id) return chart.at("tone");
    }
    return "no chart";
  };
  EXPECT_EQ(tone_of(slow, "stragglers"), "bad");
  EXPECT_EQ(tone_of(search_run(), "groups"), "good");
}

/// Its first and its last run may be of one point: it goes there and back.
TEST(RunsPart, OfASweepDoesNotSayWhatChangedOverTime) {
  TemporaryFolder folder;
  SweepIndex index;
  index.points = {{}};
  for (int i = 0; i < 3; ++i) {
    const auto run = store_run(folder.path(), {.number = i});
    index.runs.push_back({run.filename().string(), 0, static_cast<std::size_t>(i),
                          static_cast<std::uint64_t>(i), SweepRunState::complete, 0, 1, ""});
  }
  index.repeats = index.runs.size();
  write_sweep(folder.path(), index);
  const ReportSources sources = report_sources({folder.path()});
  ASSERT_EQ(sources.records.runs.size(), 3u);
  for (const ReportSection& section : runs_part(sources).sections) {
    EXPECT_EQ(section.title.find("What changed"), std::string::npos);
  }
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

TEST(ReportSources, TakeNoNumberThatAJournalDoesNotGive) {
  TemporaryFolder folder;
  store_run(folder.path(), {.number = 1});
  const auto edited = store_run(folder.path(), {.number = 2});
  edit_file(edited / "record.json", "\"median\": 1", "\"median\": 2");
  const ReportSources sources = report_sources({folder.path()});
  EXPECT_EQ(sources.records.runs.size(), 1u);
  ASSERT_EQ(sources.records.skipped.size(), 1u);
  EXPECT_NE(sources.records.skipped.front().reason.find("its journal gives"), std::string::npos);
  EXPECT_EQ(sources.folders.size(), 2u) << "what it did is shown from its journal";
}

TEST(ReportRun, TellsAJournalThatContradictsItself) {
  TemporaryFolder folder;
  SampleRun run = sample_of({.number = 0});
  EXPECT_EQ(read_report_run(store_run(folder.path(), {})).contradiction, "");
  run.last<StepEvent>().ops_strict += run.last<StepEvent>().ops_strict;
  run.write_finished(RunFiles{folder.path() / "forged"});
  const ReportRun forged = read_report_run(folder.path() / "forged");
  EXPECT_NE(forged.contradiction.find("step_operations"), std::string::npos);
  const ReportSection headline = run_part(forged, "").sections.front();
  EXPECT_TRUE(
      std::any_of(headline.notices.begin(), headline.notices.end(), [](const ReportNotice& notice) {
        return notice.text.find("contradicts itself") != std::string::npos;
      }));
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
      EXPECT_NE(html.find("<table id=\"" + chart.id + "-table\""), std::string::npos) << chart.id;
      EXPECT_FALSE(chart.description.empty()) << chart.id;
      EXPECT_FALSE(chart_table(chart).rows.empty()) << chart.id;
    }
  }
  EXPECT_GT(charts, 5u);
}

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++count;
  return count;
}

ReportPart part_of_table(Table table) {
  ReportPart part{"part", "", {ReportSection()}};
  part.sections.front().tables = {std::move(table)};
  return part;
}

/// Paper gets its beginning alone: what is closed is not printed.
TEST(ReportHtml, ClosesVeryLongCells) {
  const std::string text = std::string(79, 'x') + "\xc3\xa9" + std::string(5000, 'y');
  Table table = report_table("t", {"name", "value"});
  table.add({"a", text});
  const std::string html = html_of(part_of_table(table));
  EXPECT_NE(html.find("<details class=\"long\"><summary>" + std::string(79, 'x') +
                      " … (5081 bytes)</summary>"),
            std::string::npos);
  EXPECT_NE(html.find(text), std::string::npos);
}

TEST(ReportHtml, PrintsTheNewestRowsOfALongTable) {
  Table table = report_table("t", {"name", "value"});
  for (int i = 0; i < 8; ++i) table.add({std::to_string(i), "v"});
  table.rows_on_paper = 3;
  const std::string html = html_of(part_of_table(table));
  EXPECT_EQ(count_of(html, "<tr class=\"screen\">"), 5u);
  EXPECT_NE(html.find("<tr><th scope=\"row\">5</th>"), std::string::npos);
  EXPECT_NE(html.find("On paper: the newest 3 of 8."), std::string::npos);
  table.rows_on_paper = 8;
  EXPECT_EQ(count_of(html_of(part_of_table(table)), "<p class=\"paper\">"), 0u);
}

TEST(ReportHtml, CellsOfStackedTablesNameTheirColumns) {
  Table table = report_table("t", {"rule", "what to do"});
  table.add({"r", "this"});
  table.stacks = true;
  EXPECT_NE(html_of(part_of_table(table)).find("<td data-column=\"what to do\">this</td>"),
            std::string::npos);
}

TEST(ReportHtml, NumbersAreThoseThatReadAsNumbers) {
  const std::vector<std::string> numbers{"1", "-1.5e+09", "+3.1 %", "23.1 Gop/s", "4 k token/s"};
  const std::vector<std::string> texts{"0.1.0", "2026-01-01", "2 × cpu", "e", "0123abcd", "1, 2"};
  Table table = report_table("t", {"name", "value"});
  for (const std::string& one : numbers) table.add({"x", one});
  for (const std::string& one : texts) table.add({"x", one});
  const std::string html = html_of(part_of_table(table));
  for (const std::string& one : numbers) {
    EXPECT_NE(html.find("<td class=\"n\">" + one + "</td>"), std::string::npos) << one;
  }
  for (const std::string& one : texts) {
    EXPECT_NE(html.find("<td>" + one + "</td>"), std::string::npos) << one;
  }
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
