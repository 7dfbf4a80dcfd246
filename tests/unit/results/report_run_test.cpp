// What a report says of one run, as a value: charts, tables and notices of runs that were never
// run.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <limits>
#include <stdexcept>

#include "results/report/report_run.hpp"
#include "tests/unit/results/report_parts.hpp"

namespace heteroperf {
namespace {

Table table_of(const ReportPart& part, const std::string& caption) {
  for (const ReportSection& section : part.sections) {
    for (const Table& table : section.tables) {
      if (table.label == caption) return table;
    }
  }
  throw std::out_of_range(caption);
}

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

TEST(RunPart, AFailedRunFailed) {
  SampleRun sample = fixed_run();
  sample.last<StopEvent>() = {RunStatus::failed, "rank 3 was lost", 6};
  EXPECT_TRUE(has_notice(run_part(report_run(sample), ""), NoticeLevel::bad,
                         "The run failed: rank 3 was lost"));
}

/// The peak is this machine's, the operations are another's.
TEST(RunPart, EmulatedDevicesHaveNoShareOfThePeak) {
  EXPECT_TRUE(has_figure(run_part(report_run(fixed_run()), ""), "Of the measured peak"));
  EXPECT_FALSE(has_figure(run_part(report_run(planned_run()), ""), "Of the measured peak"));
}

TEST(RunPart, ListsOfTheEnvironmentSayHowLongTheyAre) {
  SampleRun sample = fixed_run();
  sample.last<SystemEvent>().system.text =
      R"({"process":{"libraries":{"source":"dl","value":[{"name":"a"},{"name":"b"}]}}})";
  const Table table = table_of(run_part(report_run(sample), ""), "System");
  EXPECT_EQ(cells_of(table, 0).at(1), R"(2 entries: [{"name":"a"},{"name":"b"}])");
}

TEST(RunPart, OfAnUnclosedRunSaysSo) {
  SampleRun sample = fixed_run();
  sample.lines.pop_back();
  ReportRun run = report_run(sample);
  run.stored = RecordState::absent;
  const ReportPart part = run_part(run, "");
  EXPECT_TRUE(has_notice(part, NoticeLevel::bad, "did not end"));
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

/// Bars of unlike numbers of ranks have no common share: the ranks together have.
TEST(RunPart, OneShareOfComputingInAllCharts) {
  SampleRun sample = planned_run();
  RankPlanEvent plan = sample.last<RankPlanEvent>();
  RankTimeEvent time = sample.last<RankTimeEvent>();
  plan.rank = time.rank = 2;
  sample.insert_before_stop(plan);
  sample.insert_before_stop(time);
  const ReportPart part = run_part(report_run(sample), "");
  // 75 % of one fast rank, 50 % of two slow ones.
  const std::string& ranks = find_chart(part, "split-rank")->description;
  EXPECT_NE(ranks.find("computing takes 58.3 %"), std::string::npos) << ranks;
  const std::string& classes = find_chart(part, "split-class")->description;
  EXPECT_NE(classes.find("fast: 75.0 %; slow: 50.0 %"), std::string::npos) << classes;
}

TEST(RunPart, OfASearchShowsTrialsAndGroups) {
  const ReportPart part = run_part(report_run(search_run()), "");
  const ReportChart* trials = find_chart(part, "trials");
  ASSERT_NE(trials, nullptr);
  EXPECT_EQ(trials->series[1].y.back(), 0.8);
  EXPECT_NE(find_chart(part, "groups"), nullptr);
  EXPECT_NE(html_of(part).find("loss is NaN"), std::string::npos);
}

/// The steps of one rank, in milliseconds.
RankStepsEvent rank_steps(std::int32_t rank, const std::vector<double>& compute_ms) {
  RankStepsEvent steps;
  steps.rank = rank;
  steps.first_step = 2;
  steps.steps = compute_ms.size();
  for (const double ms : compute_ms) {
    steps.compute_ns.push_back(static_cast<std::int64_t>(1e6 * ms));
  }
  return steps;
}

TEST(RunPart, NamesTheSlowestRank) {
  SampleRun sample = fixed_run();
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    RankStepsEvent steps = rank_steps(rank, std::vector<double>(3, rank == 1 ? 2 : 1));
    steps.steps = 5;
    steps.steps_per_value = 2;
    sample.insert_before_stop(steps);
  }
  const ReportPart part = run_part(report_run(sample), "");
  const ReportChart* chart = find_chart(part, "stragglers");
  ASSERT_NE(chart, nullptr);
  EXPECT_EQ(chart->edges, (std::vector<double>{2, 4, 6, 7}));
  EXPECT_EQ(chart->series[1].y[0], 2);
  EXPECT_NE(chart->description.find("rank 1: +100.0 %"), std::string::npos) << chart->description;
}

TEST(RunPart, AStepThatIsSlowForAllIsNobodysFault) {
  SampleRun sample = fixed_run();
  sample.insert_before_stop(rank_steps(0, {1, 9, 1, 1}));
  sample.insert_before_stop(rank_steps(1, {1, 9, 1, 4}));
  const ReportPart part = run_part(report_run(sample), "");
  const ReportChart& chart = *find_chart(part, "stragglers");
  EXPECT_EQ(chart.series[0].y, (std::vector<double>{1, 1, 1, 0.25}));
  EXPECT_EQ(chart.series[1].y, (std::vector<double>{1, 1, 1, 4}));
}

/// One stage each: nobody does what another does.
TEST(RunPart, RanksWithoutPeersAreNotCompared) {
  SampleRun sample = planned_run();
  sample.insert_before_stop(rank_steps(0, {1, 2}));
  sample.insert_before_stop(rank_steps(1, {3, 4}));
  const ReportPart part = run_part(report_run(sample), "");
  EXPECT_EQ(find_chart(part, "stragglers"), nullptr);
  const Table table = table_of(part, "Ranks from slow to fast");
  EXPECT_EQ(cells_of(table, 0).at(2), "no peers");
  EXPECT_EQ(cells_of(table, 1).at(2), "no peers");
}

TEST(RunPart, PeersAreOfOneDeviceClass) {
  SampleRun sample = planned_run();
  for (JournalLine& line : sample.lines) {
    if (auto* plan = std::get_if<RankPlanEvent>(&line.event)) plan->position = 0;
  }
  RankPlanEvent third = sample.last<RankPlanEvent>();
  third.rank = 2;
  sample.insert_before_stop(third);
  sample.insert_before_stop(rank_steps(0, {1, 1}));  // fast
  sample.insert_before_stop(rank_steps(1, {4, 4}));
  sample.insert_before_stop(rank_steps(2, {5, 5}));
  const ReportPart part = run_part(report_run(sample), "");
  const ReportChart& chart = *find_chart(part, "stragglers");
  ASSERT_EQ(chart.series.size(), 2u);
  EXPECT_EQ(chart.series[1].y[0], 1.25);
  EXPECT_NE(chart.note.find("Left out: 1"), std::string::npos) << chart.note;
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
  EXPECT_EQ(chart.series[7].y[0], 1);  // in every step what the others take
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

TEST(RunPart, RooflineSaysWhyTheMemorysRateIsNotTold) {
  SampleRun sample = planned_run();
  for (DeviceCount& device : sample.last<ScaleEvent>().devices) device.emulated = false;
  sample.last<PeakEvent>().memory_reason = "a: 4 threads share 2 CPUs";
  const ReportPart part = run_part(report_run(sample), "");
  const ReportChart* chart = find_chart(part, "roofline");
  ASSERT_NE(chart, nullptr);
  EXPECT_EQ(chart->series[0].x.size(), 2u);
  EXPECT_NE(chart->note.find("not told: a: 4 threads share 2 CPUs."), std::string::npos);
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

/// As `run --trace` writes it: a process per rank, a thread per lane.
TEST(StepTimeline, OfMeasuredStepsIsTheLastOne) {
  const auto slice = [](int process, int thread, const char* category, const char* name, int step,
                        double start_us) {
    return fmt::format(
        R"(,{{"ph":"X","pid":{},"tid":{},"cat":"{}","name":"{}","ts":{},"dur":1e6,"args":{{"step":{}}}}})",
        process, thread, category, name, start_us, step);
  };
  std::string trace = R"({"traceEvents":[
      {"ph":"M","name":"process_name","pid":1,"args":{"name":"rank 0"}},
      {"ph":"M","name":"process_name","pid":2,"args":{"name":"rank 1"}},
      {"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"compute"}})";
  for (const int step : {7, 8}) {
    for (const int process : {1, 2}) {
      const double start_us = 1e7 * step;
      trace += slice(process, 1, "step", "step", step, start_us);
      trace += slice(process, 2, "compute", "BW 0.1", step, start_us);
      trace += slice(process, 4, "sums", "sums", step, start_us + 1e6);
      trace += slice(process, 7, "waiting", "waiting", step, start_us + 2e6);
      trace += slice(process, 9, "overlapped sums", "overlapped sums", step, start_us);
    }
  }
  const StepTimeline timeline = step_timeline(trace + "]}", "t.json", 1);
  ASSERT_EQ(timeline.missing, "");
  ASSERT_EQ(timeline.lanes.size(), 2u);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const StepLane& lane = timeline.lanes[rank];
    EXPECT_EQ(lane.name, fmt::format("rank {}", rank));
    ASSERT_EQ(lane.spans.size(), 3u);
    EXPECT_EQ(lane.spans[0].kind, "backward");
    EXPECT_EQ(lane.spans[0].from_s, 80);
    EXPECT_EQ(lane.spans[1].kind, "gradient sum");
    EXPECT_EQ(lane.spans[2].kind, "waiting");
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

/// What the lanes show is no step's time: that is the record's.
TEST(RunPart, ThePipelineSaysTheRecordsStepTimes) {
  ReportRun run = report_run(planned_run());
  run.predicted.lanes = {{"rank 0", {{"forward", "F 0.0", 0, 1}}}};
  run.measured.lanes = {{"rank 0", {{"forward", "F 0.0", 7, 8.5}}}};
  const ReportPart part = run_part(run, "");
  const std::string& text = find_chart(part, "pipeline")->description;
  EXPECT_NE(text.find("predicted to take 6 s and took 6.12 s"), std::string::npos) << text;
  EXPECT_NE(text.find("lanes span 1 s, those of one traced step 1.5 s"), std::string::npos) << text;
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

}  // namespace
}  // namespace heteroperf
