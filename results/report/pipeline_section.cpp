// This section draws one step as lanes: a lane per rank, on it a span per instruction (forward,
// backward, message, …). The predicted lane comes from simulating the plan and lies above the
// measured one, which comes from a trace, so that one sees where the schedule was not kept. A step
// of a large plan has far more instructions than can be drawn; then only some ranks are shown, and
// of each the longest instructions, and a note says so.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "results/report/report_run.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

/// Spans drawn at most; a step of thousands of instructions is a solid bar anyway.
constexpr std::size_t most_spans = 3000;

/// The series of a kind of instruction, made when the kind is first met. All spans of a series have
/// one colour.
std::size_t series_of(ReportChart& chart, const std::string& kind) {
  const auto place = std::ranges::find(chart.series, kind, &ChartSeries::name);
  const auto index = static_cast<std::size_t>(place - chart.series.begin());
  if (index == chart.series.size()) chart.series.push_back({kind});
  return index;
}

/// The spans of a step, and the time from the first start to the last end in seconds; `to` stays 0
/// where there are none.
struct Extent {
  double from = std::numeric_limits<double>::infinity(), to = 0;
  std::size_t spans = 0;
  double length() const { return to - from; }
};

Extent extent_of(const StepTimeline& timeline) {
  Extent extent;
  for (const StepLane& lane : timeline.lanes) {
    extent.spans += lane.spans.size();
    for (const StepSpan& span : lane.spans) {
      extent.from = std::min(extent.from, span.from_s);
      extent.to = std::max(extent.to, span.to_s);
    }
  }
  return extent;
}

/// At most `most` spans of a lane, the longest ones, in order.
std::vector<StepSpan> longest(const StepLane& lane, std::size_t most) {
  std::vector<StepSpan> spans = lane.spans;
  if (spans.size() <= most) return spans;
  const auto length = [](const StepSpan& span) { return span.to_s - span.from_s; };
  const auto place = spans.begin() + static_cast<std::ptrdiff_t>(most);
  std::ranges::nth_element(spans, place, std::ranges::greater(), length);
  spans.resize(most);
  std::ranges::sort(spans, {}, &StepSpan::from_s);
  return spans;
}

/// The drawing's share of all ranks: every `stride`-th, and so many spans of each lane.
struct LaneChoice {
  std::size_t stride = 1, most_spans_per_lane = most_spans;
};

/// Leaves out ranks first and spans of a lane second: whole lanes of a few ranks show a schedule,
/// fragments of all ranks do not.
LaneChoice choose_lanes(std::size_t lanes, std::size_t spans) {
  LaneChoice choice;
  choice.stride = std::clamp<std::size_t>((spans + most_spans - 1) / most_spans, 1, lanes);
  const std::size_t drawn = (lanes + choice.stride - 1) / choice.stride;
  choice.most_spans_per_lane = most_spans / std::max<std::size_t>(1, drawn);
  return choice;
}

/// `zero_s` is the start of the step on the lane's own clock, so that both kinds of lanes begin at
/// 0.
void add_lane(const StepLane& lane, const std::string& what, double zero_s, LaneChoice choice,
              ReportChart& chart) {
  const std::size_t index = chart.categories.size();
  chart.categories.push_back(lane.name + what);
  for (const StepSpan& span : longest(lane, choice.most_spans_per_lane)) {
    chart.spans.push_back(
        {index, series_of(chart, span.kind), span.from_s - zero_s, span.to_s - zero_s, span.label});
  }
}

/// Empty where all instructions are drawn.
std::string choice_note(const ReportChart& chart, LaneChoice choice, std::size_t ranks,
                        std::size_t all) {
  if (chart.spans.size() == all) return {};
  std::string note;
  if (choice.stride > 1) note = fmt::format("Of {} ranks one in {}. ", ranks, choice.stride);
  return note +
         fmt::format("{} of {} instructions, of each rank the longest.", chart.spans.size(), all);
}

/// A step takes more than its lanes show: those of a prediction end before the sums of
/// gradients and the optimizer, those of a trace are one step of many.
std::string step_sentence(const ReportRun& run) {
  if (!run.summary.plan.prediction) return {};
  const PredictionSummary& prediction = *run.summary.plan.prediction;
  std::string text = fmt::format("A step was predicted to take {}",
                                 seconds_text(prediction.predicted.step_time_s));
  if (prediction.step_time_s)
    text += fmt::format(" and took {}", seconds_text(*prediction.step_time_s));
  return text + " (median), sums of gradients and the optimizer included. ";
}

std::string extent_sentence(const Extent& predicted, const Extent& measured) {
  if (measured.to <= 0) {
    return fmt::format("The predicted lanes span {}.", seconds_text(predicted.length()));
  }
  if (predicted.to <= 0) {
    return fmt::format("The lanes of one traced step span {}.", seconds_text(measured.length()));
  }
  return fmt::format("The predicted lanes span {}, those of one traced step {}.",
                     seconds_text(predicted.length()), seconds_text(measured.length()));
}

/// Per rank the predicted lane above the measured one.
void add_lanes(const ReportRun& run, ReportChart& chart) {
  const Extent predicted = extent_of(run.predicted), measured = extent_of(run.measured);
  const bool both = !run.predicted.lanes.empty() && !run.measured.lanes.empty();
  const std::size_t ranks = std::max(run.predicted.lanes.size(), run.measured.lanes.size());
  const std::size_t all = predicted.spans + measured.spans;
  LaneChoice choice = choose_lanes(ranks, all);
  // Each rank has two lanes then, which share its spans.
  if (both) choice.most_spans_per_lane /= 2;
  for (std::size_t i = 0; i < ranks; i += choice.stride) {
    if (i < run.predicted.lanes.size()) {
      add_lane(run.predicted.lanes[i], both ? ", predicted" : "", predicted.from, choice, chart);
    }
    if (i < run.measured.lanes.size()) {
      add_lane(run.measured.lanes[i], both ? ", measured" : "", measured.from, choice, chart);
    }
  }
  chart.note = choice_note(chart, choice, ranks, all);
  chart.description = step_sentence(run) + extent_sentence(predicted, measured);
}

Table prediction_table(const ReportRun& run) {
  Table table = report_table("Prediction and measurement", {"", "predicted", "measured"});
  const PredictionSummary& prediction = *run.summary.plan.prediction;
  table.add({"step time [s]", number_cell(prediction.predicted.step_time_s),
             number_cell(prediction.step_time_s)});
  table.add({"samples per second", number_cell(prediction.predicted.samples_per_s),
             number_cell(run.summary.plan.samples_per_s)});
  table.add({"share of time not computing", number_cell(prediction.predicted.bubble_rate),
             number_cell(run.summary.plan.bubble_rate)});
  if (prediction.error_fraction) {
    table.rows.push_back(
        {"error of the step time", "", fmt::format("{:+.2f} %", 100 * *prediction.error_fraction)});
  }
  return table;
}

}  // namespace

ReportSection pipeline_section(const ReportRun& run, const std::string& id) {
  ReportSection section{"One step, instruction by instruction"};
  if (run.summary.search) {
    section.paragraphs = {"A search has no plan of its own: every group trains its trials."};
    return section;
  }
  if (!run.measured.lanes.empty() || !run.predicted.lanes.empty()) {
    ReportChart chart{id + "pipeline",
                      "Pipeline, predicted and measured",
                      ChartKind::spans,
                      {"time in the step", "s"},
                      {"rank"}};
    add_lanes(run, chart);
    section.charts.push_back(std::move(chart));
  }
  for (const auto& [name, timeline] :
       {std::pair("Predicted", &run.predicted), {"Measured", &run.measured}}) {
    section.paragraphs.push_back(timeline->lanes.empty()
                                     ? fmt::format("{}: none. {}", name, timeline->missing)
                                     : fmt::format("{}: {}.", name, timeline->source));
  }
  if (run.summary.plan.prediction) section.tables.push_back(prediction_table(run));
  return section;
}

}  // namespace heteroperf
