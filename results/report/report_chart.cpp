// Turns a chart into a table with the same values, which stands in the page below the drawing.
// Readers without JavaScript, on paper, or who cannot see the drawing have every number from it.
// Each kind of chart has its own layout: lines with one common x become columns side by side, other
// lines a row per point with the name of the series, bars a row per category, spans a row per
// instruction, and a grid a row per column of cells.

#include "results/report/report_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace heteroperf {
namespace {

/// The value as a cell; empty where the series is shorter.
std::string at(const std::vector<double>& values, std::size_t i) {
  return i < values.size() ? number_cell(values[i]) : "";
}

/// Labels of points have no column in the table side by side, so a series with labels counts as
/// having its own x.
bool one_x_for_all(const ReportChart& chart) {
  return std::all_of(chart.series.begin(), chart.series.end(), [&](const ChartSeries& series) {
    return series.x == chart.series.front().x && series.labels.empty();
  });
}

/// A row for each head, beside it a column of each series, or three where that has an interval.
Table side_by_side(const ReportChart& chart, const std::vector<std::string>& heads) {
  std::vector<std::string> columns{chart.x.title()};
  for (const ChartSeries& series : chart.series) {
    const ChartAxis& axis = series.right && chart.right ? *chart.right : chart.y;
    const ChartAxis column{series.name.empty() ? axis.label : series.name, axis.unit};
    columns.push_back(column.title());
    if (series.low.empty()) continue;
    columns.push_back(column.label + ", low");
    columns.push_back(column.label + ", high");
  }
  Table table = report_table(chart.title, columns);
  for (std::size_t i = 0; i < heads.size(); ++i) {
    std::vector<Datum>& row = table.rows.emplace_back(1, heads[i]);
    for (const ChartSeries& series : chart.series) {
      row.push_back(at(series.y, i));
      if (series.low.empty()) continue;
      row.push_back(at(series.low, i));
      row.push_back(at(series.high, i));
    }
  }
  return table;
}

Table one_after_another(const ReportChart& chart) {
  std::string values = chart.y.title();
  if (chart.right) values += " or " + chart.right->title();
  Table table =
      report_table(chart.title, {"series", chart.x.title(), values, "low", "high", "point"});
  for (const ChartSeries& series : chart.series) {
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      table.add({series.name, chart.x.cell(series.x[i]), at(series.y, i), at(series.low, i),
                 at(series.high, i), i < series.labels.size() ? series.labels[i] : ""});
    }
  }
  return table;
}

Table lines_table(const ReportChart& chart) {
  if (!one_x_for_all(chart)) return one_after_another(chart);
  std::vector<std::string> heads;
  if (!chart.series.empty()) {
    for (const double x : chart.series.front().x) heads.push_back(chart.x.cell(x));
  }
  return side_by_side(chart, heads);
}

/// The lane, the kind, and the instruction with its times.
Table spans_table(const ReportChart& chart) {
  const std::string unit = " [" + chart.x.unit + "]";
  Table table =
      report_table(chart.title, {chart.y.title(), "kind", "what", "from" + unit, "to" + unit});
  for (const ChartSpan& span : chart.spans) {
    table.add({chart.categories.at(span.lane), chart.series.at(span.series).name, span.label,
               number_cell(span.from), number_cell(span.to)});
  }
  return table;
}

/// Lanes side by side, a row per column of the grid.
Table grid_table(const ReportChart& chart) {
  std::vector<std::string> columns{chart.x.label + " from", "to"};
  for (const ChartSeries& series : chart.series) columns.push_back(series.name);
  Table table = report_table(chart.title, columns);
  for (std::size_t i = 0; i + 1 < chart.edges.size(); ++i) {
    std::vector<Datum> row{number_cell(chart.edges[i]), number_cell(chart.edges[i + 1])};
    for (const ChartSeries& series : chart.series) row.push_back(at(series.y, i));
    table.add(std::move(row));
  }
  return table;
}

}  // namespace

std::string ChartAxis::cell(double value) const {
  const bool is_place =
      value >= 1 && value <= static_cast<double>(places.size()) && value == std::floor(value);
  return is_place ? places[static_cast<std::size_t>(value) - 1] : number_cell(value);
}

std::string number_cell(std::optional<double> value) {
  return value && std::isfinite(*value) ? fmt::format("{:.6g}", *value) : "";
}

void ChartSeries::add(double at, double value) {
  x.push_back(at);
  y.push_back(value);
}

Table report_table(std::string caption, const std::vector<std::string>& columns) {
  Table table{"", std::move(caption), {}};
  for (const std::string& label : columns) table.columns.push_back({"", label});
  return table;
}

Table chart_table(const ReportChart& chart) {
  switch (chart.kind) {
    case ChartKind::lines:
      return lines_table(chart);
    case ChartKind::spans:
      return spans_table(chart);
    case ChartKind::grid:
      return grid_table(chart);
    case ChartKind::bars:
    case ChartKind::stacked_bars:
      break;
  }
  return side_by_side(chart, chart.categories);
}

}  // namespace heteroperf
