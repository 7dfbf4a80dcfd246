// Writes the charts of a page as one block of JSON, from which charts.js makes its settings. Names
// of kinds and marks are what the script compares, so they are spelled out here and in the script
// alike. A gap in a line is null. The block stands inside <script>, so no text in it may end that
// element.

#include <cmath>
#include <nlohmann/json.hpp>

#include "results/report/report_page.hpp"
#include "results/text/canonical_text_json.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* chart_kind_names[] = {"lines", "bars", "stacked_bars", "spans", "grid"};
constexpr const char* mark_names[] = {"line", "steps", "points", "dashed"};
constexpr const char* tone_names[] = {"bad", "good"};

/// Numbers have as many digits as a screen can show, which keeps the page small.
Json numbers(const std::vector<double>& values) {
  return json_list(values, [](double value) {
    return std::isfinite(value) ? Json(std::stod(number_cell(value))) : Json();
  });
}

Json texts(const std::vector<std::string>& values) { return json_list(values, utf8_text); }

Json axis_json(const ChartAxis& axis) {
  Json json{{"title", utf8_text(axis.title())},
            {"log", axis.scale == AxisScale::logarithmic},
            {"zero", axis.scale == AxisScale::from_zero}};
  if (axis.least) json["least"] = numbers({axis.least->low, axis.least->high});
  if (!axis.places.empty()) json["places"] = texts(axis.places);
  return json;
}

Json series_json(const ChartSeries& series) {
  Json json{{"name", utf8_text(series.name)},
            {"mark", mark_names[static_cast<std::size_t>(series.mark)]},
            {"right", series.right},
            {"y", numbers(series.y)}};
  if (!series.x.empty()) json["x"] = numbers(series.x);
  if (!series.low.empty()) json["low"] = numbers(series.low);
  if (!series.high.empty()) json["high"] = numbers(series.high);
  if (!series.labels.empty()) json["labels"] = texts(series.labels);
  return json;
}

Json chart_json(const ReportChart& chart) {
  Json json{{"id", chart.id},
            {"title", utf8_text(chart.title)},
            {"kind", chart_kind_names[static_cast<std::size_t>(chart.kind)]},
            {"x", axis_json(chart.x)},
            {"y", axis_json(chart.y)}};
  if (chart.right) json["right"] = axis_json(*chart.right);
  json["categories"] = texts(chart.categories);
  json["edges"] = numbers(chart.edges);
  json["colours"] = numbers(chart.colours);
  if (chart.kind == ChartKind::grid)
    json["tone"] = tone_names[static_cast<std::size_t>(chart.tone)];
  json["series"] = json_list(chart.series, series_json);
  json["spans"] = json_list(chart.spans, [](const ChartSpan& span) {
    return Json{span.lane, span.series, numbers({span.from, span.to}), utf8_text(span.label)};
  });
  json["bands"] = json_list(chart.bands, [](const ChartBand& band) {
    return Json{numbers({band.from, band.to}), utf8_text(band.label)};
  });
  json["rules"] = json_list(chart.rules, [](const ChartRule& rule) {
    return Json{numbers({rule.at}), utf8_text(rule.label), rule.vertical};
  });
  return json;
}

/// JSON in which nothing can end the element around it; "<" stands in strings only.
std::string inside_script(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) c == '<' ? text += "\\u003c" : text += c;
  return text;
}

}  // namespace

std::string report_data_text(const ReportPage& page) {
  Json charts = Json::array();
  for (const ReportPart& part : page.parts) {
    for (const ReportSection& section : part.sections) {
      for (const ReportChart& chart : section.charts) charts.push_back(chart_json(chart));
    }
  }
  // Characters beyond ASCII as escapes: line separators among them end no line of a script.
  return inside_script(Json{{"charts", std::move(charts)}}.dump(-1, ' ', true));
}

}  // namespace heteroperf
