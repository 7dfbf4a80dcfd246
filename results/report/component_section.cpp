// This section tells the components of a model apart, vision and text of a vision-language model:
// what a step has to compute for each of them, what was computed again and on padding, the part of
// the computing time that each took, and the bytes that crossed its border to the others. Bytes
// stand three times: as the plan foretold them, as few as any way to send needs, and as the ranks
// counted them.

#include <fmt/format.h>

#include <algorithm>

#include "results/report/report_run.hpp"

namespace heteroperf {
namespace {

/// The operations and the time of every component.
Table work_table(const std::vector<ComponentSummary>& components) {
  Table table =
      report_table("The components of the model, in a step",
                   {"component", "parameters", "strict [operation]", "computed again [operation]",
                    "on padding [operation]", "share of the computing time"});
  for (const ComponentSummary& component : components) {
    const auto& [counts, recompute, time_fraction, border] = component;
    table.add({counts.name, counts.parameters, counts.strict.train().to_string(),
               recompute ? recompute->to_string() : "", counts.padding.to_string(),
               time_fraction ? fmt::format("{:.1f} %", 100 * *time_fraction) : ""});
  }
  return table;
}

Table border_table(const std::vector<ComponentSummary>& components) {
  Table table =
      report_table("Sent from a component to others, in a step",
                   {"component", "planned [byte]", "least possible [byte]", "measured [byte]"});
  for (const ComponentSummary& component : components) {
    if (!component.border) continue;
    table.add({component.counts.name, component.border->planned, component.border->least,
               component.border->measured});
  }
  return table;
}

/// A bar of every component: its part of the operations, and of the time.
ReportChart shares_chart(const std::vector<ComponentSummary>& components, const std::string& id) {
  ReportChart chart{id + "components",
                    "The components' shares of operations and of computing time",
                    ChartKind::bars,
                    {"component"},
                    {"share", "%", AxisScale::from_zero},
                    "A component with a larger share of the time than of the operations computes "
                    "slower than the others."};
  chart.series = {{"operations"}, {"computing time"}};
  double all = 0;
  for (const ComponentSummary& component : components) {
    all += component.counts.strict.train().to_double();
  }
  for (const ComponentSummary& component : components) {
    const double own = component.counts.strict.train().to_double();
    chart.categories.push_back(component.counts.name);
    chart.series[0].y.push_back(all > 0 ? 100 * own / all : 0);
    chart.series[1].y.push_back(100 * component.time_fraction.value_or(0));
  }
  if (std::ranges::none_of(components, [](const auto& c) { return c.time_fraction.has_value(); })) {
    chart.series.pop_back();
  }
  return chart;
}

}  // namespace

ReportSection component_section(const ReportRun& run, const std::string& id) {
  const std::vector<ComponentSummary>& components = run.summary.components;
  ReportSection section{"Components"};
  section.charts.push_back(shares_chart(components, id));
  section.tables.push_back(work_table(components));
  const bool sent =
      std::ranges::any_of(components, [](const auto& c) { return c.border.has_value(); });
  if (sent) section.tables.push_back(border_table(components));
  return section;
}

}  // namespace heteroperf
