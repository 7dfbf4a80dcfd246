// This section shows a run over time: the rate of training, and the losses and evaluations, or for
// a search the quality of its trials. The parts of the time axis outside the *steady window*, the
// warm-up and what came after it, are shaded, as no score counts them. The rate is a mean over
// equal spans of time and not per step, because in a search several groups train at once and their
// steps overlap.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "metrics/base/quantity.hpp"
#include "metrics/rate.hpp"
#include "results/report/report_page.hpp"
#include "results/report/report_run.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

/// Shades the time before the window and, where steps follow it, the time after.
void shade_warmup(const ReportRun& run, ReportChart& chart) {
  const auto& window = run.summary.window;
  const auto steps = all_steps(run.journal);
  if (!window || !steps) return;
  const double begin = since_start_s(run.journal, steps->start_ns);
  chart.bands.push_back({begin, since_start_s(run.journal, window->start_ns), "warm-up"});
  const double end = since_start_s(run.journal, window->end_ns);
  const double last = since_start_s(run.journal, steps->end_ns);
  if (last > end) chart.bands.push_back({end, last, "after the window"});
}

/// A step that lies in two spans gives to each the share of its operations by time. Points stand in
/// the middle of their spans.
ChartSeries rate_series(const ReportRun& run, const std::vector<const StepEvent*>& steps,
                        TimeWindow window, std::size_t count) {
  std::vector<StepWork> work;
  for (const StepEvent* step : steps) {
    if (step->t_end_ns <= step->t_start_ns) continue;
    work.push_back({step->t_start_ns, step->t_end_ns, step->ops_strict.to_double()});
  }
  ChartSeries series{"operations per second", SeriesMark::steps};
  const double each_s = window.seconds() / static_cast<double>(count);
  const std::vector<double> amounts = sub_window_amounts(work, window, count);
  const double begin = since_start_s(run.journal, window.start_ns);
  for (std::size_t i = 0; i < amounts.size(); ++i) {
    series.add(begin + each_s * (static_cast<double>(i) + 0.5), amounts[i] / each_s);
  }
  return series;
}

std::optional<ReportChart> ops_chart(const ReportRun& run, const std::string& id) {
  const auto steps = run.journal.all<StepEvent>();
  const auto window = all_steps(run.journal);
  if (!window) return std::nullopt;
  // Enough spans that each holds a step or two, and few enough to draw.
  const std::size_t count = std::clamp<std::size_t>(steps.size(), 10, 400);
  ReportChart chart{id + "ops",
                    "Operations per second over time",
                    ChartKind::lines,
                    {"time since the start", "s"},
                    {"strict operations", "op/s", AxisScale::from_zero}};
  chart.series.push_back(rate_series(run, steps, *window, count));
  chart.note = fmt::format(
      "Means over {} equal spans of time of {}; a step's operations are shared by time.", count,
      seconds_text(window->seconds() / static_cast<double>(count)));
  shade_warmup(run, chart);
  const auto& ops = run.summary.ops_per_second;
  chart.description = fmt::format("Rate of training from second {:.3g} to {:.3g}.",
                                  chart.series[0].x.front(), chart.series[0].x.back());
  if (ops && run.validity.severity != Severity::invalid) {
    chart.rules.push_back({ops->value, "OPS of the steady window", false});
  }
  return chart;
}

/// A loss that is not finite cannot be drawn; the note counts such steps.
void add_training_loss(const ReportRun& run, ReportChart& chart) {
  std::vector<double> x, y;
  std::size_t left_out = 0;
  for (const StepEvent* step : run.journal.all<StepEvent>()) {
    if (!std::isfinite(step->loss)) {
      ++left_out;
      continue;
    }
    x.push_back(since_start_s(run.journal, step->t_end_ns));
    y.push_back(step->loss);
  }
  if (!x.empty()) chart.series.push_back(thinned_line("training loss", x, y, chart.note));
  if (left_out > 0) {
    chart.note += fmt::format(" {} steps without a finite loss are left out.", left_out);
  }
}

/// Held-out losses, and for classifiers their accuracy on an axis of its own.
void add_evaluations(const ReportRun& run, ReportChart& chart) {
  ChartSeries loss{"loss on held-out samples", SeriesMark::points};
  ChartSeries accuracy{"accuracy on held-out samples", SeriesMark::points};
  accuracy.right = true;
  const auto* workload = run.journal.first<WorkloadEvent>();
  const bool classifier = workload != nullptr && workload->family == WorkloadFamily::classifier;
  for (const EvalEvent* eval : run.journal.all<EvalEvent>()) {
    const double t_s = since_start_s(run.journal, eval->t_end_ns);
    loss.add(t_s, eval->loss);
    accuracy.add(t_s, eval->accuracy);
  }
  if (loss.x.empty()) return;
  chart.series.push_back(std::move(loss));
  if (!classifier) return;
  chart.right = ChartAxis{"accuracy", ""};
  chart.series.push_back(std::move(accuracy));
}

/// The loss of one fixed model, step by step, and its evaluations.
std::optional<ReportChart> quality_chart(const ReportRun& run, const std::string& id) {
  ReportChart chart{id + "quality",
                    "Loss and quality over time",
                    ChartKind::lines,
                    {"time since the start", "s"},
                    {"loss", "nat"}};
  add_training_loss(run, chart);
  add_evaluations(run, chart);
  if (chart.series.empty()) return std::nullopt;
  shade_warmup(run, chart);
  const auto& quality = run.summary.quality;
  chart.description = "Training loss, and what evaluations found.";
  if (quality) {
    chart.description +=
        fmt::format(" Best {}: {:.4g}.", to_string(quality->measure), quality->value);
  }
  if (quality && quality->target && quality->measure == QualityMeasure::loss) {
    chart.rules.push_back({*quality->target, "target", false});
  }
  return chart;
}

/// The trials of a search: the quality that each reached, and the best so far.
std::optional<ReportChart> trials_chart(const ReportRun& run, const std::string& id) {
  const auto* workload = run.journal.first<WorkloadEvent>();
  const bool higher = workload == nullptr || workload->quality == QualityMeasure::accuracy;
  ChartSeries each{"trial", SeriesMark::points}, best{"best so far", SeriesMark::steps};
  for (const JournalLine& line : run.journal.lines) {
    const auto* trial = std::get_if<TrialEvent>(&line.event);
    if (trial == nullptr || !trial->quality || !std::isfinite(*trial->quality)) continue;
    const double value = *trial->quality;
    const bool better = best.y.empty() || (higher ? value > best.y.back() : value < best.y.back());
    each.add(since_start_s(run.journal, line.t_ns), value);
    each.labels.push_back(fmt::format("trial {}, {} steps", trial->id, trial->steps));
    best.add(each.x.back(), better ? value : best.y.back());
  }
  if (each.x.empty()) return std::nullopt;
  ReportChart chart{id + "trials",
                    "Quality of trials over time",
                    ChartKind::lines,
                    {"time since the start", "s"},
                    {workload == nullptr ? "quality" : to_string(workload->quality)}};
  chart.description =
      fmt::format("{} results of trials; the best is {:.4g}.", each.x.size(), best.y.back());
  chart.series = {std::move(each), std::move(best)};
  shade_warmup(run, chart);
  return chart;
}

}  // namespace

double since_start_s(const Journal& journal, std::int64_t t_ns) {
  return static_cast<double>(t_ns - journal.lines.front().t_ns) * nanosecond;
}

std::optional<TimeWindow> all_steps(const Journal& journal) {
  const auto steps = journal.all<StepEvent>();
  if (steps.empty()) return std::nullopt;
  TimeWindow window{steps.front()->t_start_ns, steps.front()->t_end_ns};
  for (const StepEvent* step : steps) {
    window.start_ns = std::min(window.start_ns, step->t_start_ns);
    window.end_ns = std::max(window.end_ns, step->t_end_ns);
  }
  return window.end_ns > window.start_ns ? std::optional(window) : std::nullopt;
}

ReportSection progress_section(const ReportRun& run, const std::string& id) {
  ReportSection section{"Over time"};
  const auto add = [&](std::optional<ReportChart> chart) {
    if (chart) section.charts.push_back(std::move(*chart));
  };
  add(ops_chart(run, id));
  run.summary.search ? add(trials_chart(run, id)) : add(quality_chart(run, id));
  if (section.charts.empty()) section.paragraphs = {"The run ended before its first step."};
  return section;
}

}  // namespace heteroperf
