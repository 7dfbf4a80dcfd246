// This section holds a run on several classes of devices against each class alone (its *baselines*,
// which --with-baselines runs). The ideal is the sum of the classes; the mix reaches a share of it,
// the HSR. Measured and planned numbers have a chart each. The bars are stacked although most of
// them have one part: so the ideal sum shows which class contributes how much.

#include <fmt/format.h>

#include "results/report/report_run.hpp"

namespace heteroperf {
namespace {

using BaselineThroughput = std::optional<double> BaselineEvent::*;

/// A bar per class alone, one for their sum, one for the mix; the sum is stacked of the classes.
ReportChart mix_chart(const std::string& id, const std::string& what,
                      const std::vector<const BaselineEvent*>& baselines, BaselineThroughput value,
                      const HeteroFigures& figures) {
  ReportChart chart{id + "mix-" + what,
                    "Mixed against each class alone, " + what,
                    ChartKind::stacked_bars,
                    {"devices"},
                    {"throughput", "sample/s"}};
  const std::size_t sum = baselines.size();
  const auto add = [&](const std::string& name) -> std::vector<double>& {
    ChartSeries& series = chart.series.emplace_back(ChartSeries{name});
    series.y.assign(sum + 2, 0);
    return series.y;
  };
  for (std::size_t i = 0; i < sum; ++i) {
    const BaselineEvent& alone = *baselines[i];
    chart.categories.push_back(fmt::format("{} × {} alone", alone.count, alone.device_class));
    std::vector<double>& bars = add(alone.device_class);
    bars[i] = bars[sum] = (alone.*value).value_or(0);
  }
  chart.categories.insert(chart.categories.end(), {"ideal sum", "mixed"});
  add("mix").back() = figures.mix;
  chart.rules.push_back({figures.ideal_sum, "ideal sum", false});
  chart.description = fmt::format(
      "The mix does {:.4g} samples per second, {:.1f} % of the {:.4g} of its classes together, and "
      "{:.2f} times the best class alone ({}).",
      figures.mix, 100 * figures.hsr(), figures.ideal_sum, figures.gain(), figures.best_class);
  return chart;
}

}  // namespace

ReportSection mix_section(const ReportRun& run, const std::string& id) {
  ReportSection section{"Mixed against homogeneous"};
  const auto baselines = run.journal.all<BaselineEvent>();
  if (baselines.empty()) {
    section.paragraphs = {
        "The run has no mix of device classes, or --with-baselines was not "
        "given."};
    return section;
  }
  if (const auto& hetero = run.summary.plan.hetero) {
    const auto add = [&](const std::optional<HeteroFigures>& figures, BaselineThroughput value,
                         const char* what) {
      if (figures) section.charts.push_back(mix_chart(id, what, baselines, value, *figures));
    };
    if (run.validity.severity != Severity::invalid) {
      add(hetero->measured, &BaselineEvent::samples_per_s, "measured");
    }
    add(hetero->planned, &BaselineEvent::planned_samples_per_s, "planned");
  }
  if (section.charts.empty()) {
    section.paragraphs = {"A class alone has no number, so there is no ideal sum."};
  }
  Table table = report_table(
      "Classes alone", {"class", "devices", "plan", "planned [sample/s]", "measured [sample/s]",
                        "losses apart from the mix's", "why a number is missing", "folder"});
  for (const BaselineEvent* alone : baselines) {
    table.add({alone->device_class, fmt::format("{}", alone->count), alone->plan,
               number_cell(alone->planned_samples_per_s), number_cell(alone->samples_per_s),
               number_cell(alone->loss_difference), alone->reason, alone->folder});
  }
  section.tables.push_back(std::move(table));
  return section;
}

}  // namespace heteroperf
