// Turns a chart into a table with the same values, which stands in the page below the drawing.
// Readers without JavaScript, on paper, or who cannot see the drawing have every number from it.
// Each kind of chart has its own layout: lines with one common x become columns side by side, other
// lines a row per point with the name of the series, bars a row per category, spans a row per
// instruction, and a grid a row per column of cells.

#include "results/report/report_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace heteroperf {
namespace {

bool has_interval(const ChartSeries& series) { return !series.low.empty(); }

/// The value as a cell; empty where the series is shorter.
std::string at(const std::vector<double>& values, std::size_t i) {
  return i < values.size() ? number_cell(values[i]) : "";
}

/// One column, or three where the series has an interval.
void add_value_columns(const ReportChart& chart, const ChartSeries& series, ReportTable& table) {
  const ChartAxis& axis = series.right && chart.right ? *chart.right : chart.y;
  const std::string name = series.name.empty() ? axis.label : series.name;
  table.columns.push_back(axis.unit.empty() ? name : name + " [" + axis.unit + "]");
  if (has_interval(series)) {
    table.columns.push_back(name + ", low");
    table.columns.push_back(name + ", high");
  }
}

void add_value_cells(const ChartSeries& series, std::size_t i, std::vector<std::string>& row) {
  row.push_back(at(series.y, i));
  if (has_interval(series)) {
    row.push_back(at(series.low, i));
    row.push_back(at(series.high, i));
  }
}

/// Labels of points have no column in the table side by side, so a series with labels counts as
/// having its own x.
bool one_x_for_all(const ReportChart& chart) {
  return std::all_of(chart.series.begin(), chart.series.end(), [&](const ChartSeries& one) {
    return one.x == chart.series.front().x && one.labels.empty();
  });
}

/// Columns side by side where every series has the same x.
void fill_side_by_side(const ReportChart& chart, ReportTable& table) {
  table.columns.push_back(chart.x.title());
  for (const ChartSeries& series : chart.series) add_value_columns(chart, series, table);
  const std::size_t points = chart.series.empty() ? 0 : chart.series.front().x.size();
  for (std::size_t i = 0; i < points; ++i) {
    std::vector<std::string> row{chart.x.cell(chart.series.front().x[i])};
    for (const ChartSeries& series : chart.series) add_value_cells(series, i, row);
    table.rows.push_back(std::move(row));
  }
}

void fill_one_after_another(const ReportChart& chart, ReportTable& table) {
  std::string values = chart.y.title();
  if (chart.right) values += " or " + chart.right->title();
  table.columns = {"series", chart.x.title(), values, "low", "high", "point"};
  for (const ChartSeries& series : chart.series) {
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      table.rows.push_back({series.name, chart.x.cell(series.x[i]), at(series.y, i),
                            at(series.low, i), at(series.high, i),
                            i < series.labels.size() ? series.labels[i] : ""});
    }
  }
}

void fill_lines(const ReportChart& chart, ReportTable& table) {
  one_x_for_all(chart) ? fill_side_by_side(chart, table) : fill_one_after_another(chart, table);
}

void fill_bars(const ReportChart& chart, ReportTable& table) {
  table.columns.push_back(chart.x.title());
  for (const ChartSeries& series : chart.series) add_value_columns(chart, series, table);
  for (std::size_t i = 0; i < chart.categories.size(); ++i) {
    std::vector<std::string> row{chart.categories[i]};
    for (const ChartSeries& series : chart.series) add_value_cells(series, i, row);
    table.rows.push_back(std::move(row));
  }
}

/// The lane, the kind, and the instruction with its times.
void fill_spans(const ReportChart& chart, ReportTable& table) {
  table.columns = {chart.y.title(), "kind", "what", "from [" + chart.x.unit + "]",
                   "to [" + chart.x.unit + "]"};
  for (const ChartSpan& span : chart.spans) {
    table.rows.push_back({chart.categories.at(span.lane), chart.series.at(span.series).name,
                          span.label, number_cell(span.from), number_cell(span.to)});
  }
}

/// Lanes side by side, a row per column of the grid.
void fill_grid(const ReportChart& chart, ReportTable& table) {
  table.columns = {chart.x.label + " from", "to"};
  for (const ChartSeries& series : chart.series) table.columns.push_back(series.name);
  for (std::size_t i = 0; i + 1 < chart.edges.size(); ++i) {
    std::vector<std::string> row{number_cell(chart.edges[i]), number_cell(chart.edges[i + 1])};
    for (const ChartSeries& series : chart.series) row.push_back(at(series.y, i));
    table.rows.push_back(std::move(row));
  }
}

}  // namespace

std::string ChartAxis::cell(double value) const {
  const bool is_place =
      value >= 1 && value <= static_cast<double>(places.size()) && value == std::floor(value);
  return is_place ? places[static_cast<std::size_t>(value) - 1] : number_cell(value);
}

std::string number_cell(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "";
}

ReportTable chart_table(const ReportChart& chart) {
  ReportTable table;
  table.caption = chart.title;
  switch (chart.kind) {
    case ChartKind::lines:
      fill_lines(chart, table);
      break;
    case ChartKind::bars:
    case ChartKind::stacked_bars:
      fill_bars(chart, table);
      break;
    case ChartKind::spans:
      fill_spans(chart, table);
      break;
    case ChartKind::grid:
      fill_grid(chart, table);
      break;
  }
  return table;
}

}  // namespace heteroperf
