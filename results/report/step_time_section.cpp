// This section shows the durations of steps: a histogram and quantiles of the steady window, and
// the times one after the other. A mean alone hides two things that matter: a second hump, when
// some steps do more than others, and a tail of rare long steps. A few very long steps would
// squeeze all others into one bar, so the axis ends early when the longest step is beyond four
// medians, and the last bar holds the rest. The chart by step is left out for a search, whose
// groups train different models side by side.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/quantity.hpp"
#include "metrics/statistics.hpp"
#include "results/report/report_page.hpp"
#include "results/report/report_run.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

/// The duration in seconds; the journal has nanoseconds.
double step_seconds(const StepEvent& step) {
  return static_cast<double>(step.t_end_ns - step.t_start_ns) * nanosecond;
}

/// Durations of the steady window's steps; of all where there is no window.
std::vector<double> durations(const ReportRun& run) {
  std::vector<double> seconds;
  for (const StepEvent* step : run.journal.all<StepEvent>()) {
    if (run.summary.window && !run.summary.window->contains(step->t_end_ns)) continue;
    seconds.push_back(step_seconds(*step));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

/// Width by Freedman and Diaconis (1981), 2 IQR / n^(1/3), within bounds that can be drawn.
std::size_t bin_count(const std::vector<double>& sorted, double low, double high) {
  constexpr double fewest = 5, most = 60;
  const double iqr = quantile(sorted, 0.75) - quantile(sorted, 0.25);
  const double width = 2 * iqr / std::cbrt(static_cast<double>(sorted.size()));
  if (!(width > 0)) return static_cast<std::size_t>(fewest);
  return static_cast<std::size_t>(std::clamp(std::ceil((high - low) / width), fewest, most));
}

/// The number of decimals at which the two edges of a bin differ.
int decimals(double width) {
  constexpr int most = 9;
  return width > 0 ? std::clamp(1 - static_cast<int>(std::floor(std::log10(width))), 0, most)
                   : most;
}

/// The largest value lies on the last edge, so its index is clamped into the last bin. The last
/// edge is the longest step, or the 99.5 % quantile where that is beyond four medians.
ReportChart distribution_chart(const std::vector<double>& sorted, const std::string& id) {
  constexpr double tail = 0.995, far = 4;
  ReportChart chart{
      id + "steps", "Distribution of step times", ChartKind::bars, {"step time", "s"}, {"steps"}};
  chart.description =
      fmt::format("{} steps; half of them take {} or less, 95 % {} or less.", sorted.size(),
                  seconds_text(median(sorted)), seconds_text(quantile(sorted, 0.95)));
  const bool outliers = sorted.back() > far * median(sorted);
  const double low = sorted.front(), high = outliers ? quantile(sorted, tail) : sorted.back();
  // Equal values have no width, and one bin takes them all.
  const std::size_t bins = high > low ? bin_count(sorted, low, high) : 1;
  const double width = (high - low) / static_cast<double>(bins);
  std::vector<double>& counts = chart.series.emplace_back(ChartSeries{"steps"}).y;
  counts.assign(bins, 0);
  for (const double value : sorted) {
    const auto bin = width > 0 ? static_cast<std::size_t>((value - low) / width) : 0;
    counts[std::min(bin, bins - 1)] += 1;
  }
  const int digits = decimals(width);
  for (std::size_t i = 0; i < bins; ++i) {
    const double from = low + width * static_cast<double>(i);
    chart.categories.push_back(fmt::format("{:.{}f}–{:.{}f}", from, digits, from + width, digits));
  }
  chart.note = plural(bins, "bin") + ", width by Freedman and Diaconis.";
  if (const auto beyond = sorted.end() - std::ranges::upper_bound(sorted, high); beyond > 0) {
    chart.note += fmt::format(" The last one also holds {} longer steps, up to {}.", beyond,
                              seconds_text(sorted.back()));
  }
  return chart;
}

Table quantile_table(const std::vector<double>& sorted) {
  Table table = report_table("Quantiles of step times", {"quantile", "step time [s]"});
  for (const double p : {0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0}) {
    table.add({fmt::format("{:.0f} %", 100 * p), number_cell(quantile(sorted, p))});
  }
  table.add({"mean", number_cell(mean(sorted))});
  table.add({"standard deviation", number_cell(standard_deviation(sorted))});
  return table;
}

/// Nothing for fewer than two steps, which make no line.
std::optional<ReportChart> by_step_chart(const ReportRun& run, const std::string& id) {
  std::vector<double> x, y;
  for (const StepEvent* step : run.journal.all<StepEvent>()) {
    x.push_back(since_start_s(run.journal, step->t_end_ns));
    y.push_back(step_seconds(*step));
  }
  if (x.size() < 2) return std::nullopt;
  ReportChart chart{id + "durations",
                    "Step time, step by step",
                    ChartKind::lines,
                    {"time since the start", "s"},
                    {"step time", "s", AxisScale::from_zero}};
  chart.description = "How long each step took, warm-up included.";
  chart.series.push_back(thinned_line("step time", x, y, chart.note));
  if (run.summary.window) {
    chart.bands.push_back({chart.series[0].x.front(),
                           since_start_s(run.journal, run.summary.window->start_ns), "warm-up"});
  }
  return chart;
}

}  // namespace

ReportSection step_time_section(const ReportRun& run, const std::string& id) {
  ReportSection section{"Step times"};
  const std::vector<double> sorted = durations(run);
  if (sorted.empty()) {
    section.paragraphs = {"No step ended."};
    return section;
  }
  section.charts.push_back(distribution_chart(sorted, id));
  if (!run.summary.search) {  // whose groups train different models side by side
    if (auto chart = by_step_chart(run, id)) section.charts.push_back(std::move(*chart));
  }
  section.tables.push_back(quantile_table(sorted));
  return section;
}

}  // namespace heteroperf
