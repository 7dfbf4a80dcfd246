// Writes a report as one HTML file that asks for nothing else: style, scripts, the chart library
// and the data are inside, and the content policy in its head forbids every request. So it can be
// mailed, kept for years and opened without a network, and a hostile text in a record cannot load
// anything. Every text of a record passes html_text(), since names of hosts, runs and settings may
// hold any bytes.
//
// Drawings come from the script; all tables stand in the HTML, so the page loses no number without
// it. A wide table scrolls in a box of its own and long cells are folded, so the page itself never
// grows wider than its window.
//
// The charts are one block of JSON, from which charts.js makes its settings. Names of kinds and
// marks are what the script compares, so they are spelled out here and in the script alike. A gap
// in a line is null. The block stands inside <script>, so no text in it may end that element.

#include <fmt/format.h>

#include <cmath>

#include "metrics/base/strict_json.hpp"
#include "results/report/report_page.hpp"
#include "results/text/canonical_text_json.hpp"
#include "results/text/number_text.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

constexpr const char* notice_classes[] = {"good", "note", "bad"};
constexpr const char* notice_words[] = {"Good", "Note", "Problem"};

/// A browser that obeys this loads nothing but what the file holds.
constexpr const char* content_policy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: "
    "blob:";

/// The box around a table can be focused, so that a keyboard can scroll it.
std::string table_html(const Table& table, const std::string& id = {}) {
  const std::string text = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">{}</div>\n",
      html_text(table.label), html_table(table, id));
  if (table.rows_on_paper == 0 || table.rows.size() <= table.rows_on_paper) return text;
  return text + fmt::format("<p class=\"paper\">On paper: the newest {} of {}.</p>\n",
                            table.rows_on_paper, table.rows.size());
}

/// A large value gets a decimal prefix; a small one reads better as it is.
std::string with_unit(double value, const ChartAxis& axis) {
  constexpr double large = 1e4;
  if (axis.unit.empty()) return number_cell(value);
  if (std::abs(value) < large) return number_cell(value) + ' ' + axis.unit;
  return with_prefix(value, axis.unit);
}

/// The meaning of colours and lines of the chart beyond its series.
std::string remarks(const ReportChart& chart) {
  std::string text;
  for (const ChartBand& band : chart.bands) {
    text += fmt::format(" Shaded: {}, {:.4g} to {:.4g} {}.", band.label, band.from, band.to,
                        chart.x.unit);
  }
  for (const ChartRule& rule : chart.rules) {
    const ChartAxis& axis = rule.vertical ? chart.x : chart.y;
    text += fmt::format(" Line at {}: {}.", with_unit(rule.at, axis), rule.label);
  }
  return text;
}

/// The canvas comes from the script; without one the table is open.
std::string chart_html(const ReportChart& chart) {
  std::string text = fmt::format("<figure class=\"chart\" data-chart=\"{}\">\n<h4>{}</h4>\n",
                                 chart.id, html_text(chart.title));
  text += fmt::format("<p class=\"describe\" id=\"{}-what\">{}</p>\n", chart.id,
                      html_text(chart.description + remarks(chart)));
  if (!chart.note.empty()) {
    text += "<figcaption>" + html_text(chart.note) + "</figcaption>\n";
  }
  text += fmt::format("<details class=\"values\"><summary>Values of “{}” as a table</summary>\n",
                      html_text(chart.title));
  return text + table_html(chart_table(chart), chart.id + "-table") + "</details>\n</figure>\n";
}

/// A section in a fixed order: notices, figures, paragraphs, charts, tables.
std::string section_html(const ReportSection& section) {
  std::string text = "<section>\n<h3>" + html_text(section.title) + "</h3>\n";
  for (const ReportNotice& notice : section.notices) {
    const auto level = static_cast<std::size_t>(notice.level);
    text += fmt::format("<p class=\"notice {}\"><strong>{}:</strong> {}</p>\n",
                        notice_classes[level], notice_words[level], html_text(notice.text));
  }
  if (!section.figures.empty()) {
    text += "<dl class=\"figures\">\n";
    for (const ReportFigure& figure : section.figures) {
      text +=
          fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n",
                      html_text(figure.name), html_text(figure.value), html_text(figure.detail));
    }
    text += "</dl>\n";
  }
  for (const std::string& paragraph : section.paragraphs) {
    text += "<p>" + html_text(paragraph) + "</p>\n";
  }
  for (const ReportChart& chart : section.charts) text += chart_html(chart);
  for (const Table& table : section.tables) text += table_html(table);
  return text + "</section>\n";
}

/// The icon is empty data, as browsers would ask the server for one otherwise.
std::string head_html(const ReportPage& page) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n"
      "<title>{}</title>\n<style>\n{}</style>\n</head>\n",
      content_policy, html_text(page.title), report_style());
}

// ---------------------------------------------------------------- data

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

std::string report_html(const ReportPage& page) {
  std::string text = head_html(page);
  text += fmt::format(
      "<body>\n<header>\n<h1>{}</h1>\n<div class=\"tools\" hidden>\n"
      "<button type=\"button\" id=\"theme\" aria-pressed=\"false\">Dark</button>\n"
      "<button type=\"button\" id=\"print\">Print</button>\n</div>\n</header>\n<main>\n",
      html_text(page.title));
  text +=
      "<noscript><p class=\"notice note\">Without JavaScript there are no drawings; every "
      "table is here.</p></noscript>\n";
  for (const ReportPart& part : page.parts) {
    text += "<article>\n<h2>" + html_text(part.title) + "</h2>\n";
    if (!part.subtitle.empty()) text += "<p class=\"sub\">" + html_text(part.subtitle) + "</p>\n";
    for (const ReportSection& section : part.sections) text += section_html(section);
    text += "</article>\n";
  }
  text += "</main>\n<p id=\"spoken\" class=\"unseen\" aria-live=\"polite\"></p>\n";
  text += "<script type=\"application/json\" id=\"report-data\">" + report_data_text(page) +
          "</script>\n";
  // The library comes before the scripts that use it; its licence must go with it.
  text += "<script>\n/*\n" + chart_library_license() + "*/\n" + chart_library() + "\n</script>\n";
  return text + "<script>\n" + report_charts_script() + report_script() +
         "</script>\n</body>\n</html>\n";
}

}  // namespace heteroperf
