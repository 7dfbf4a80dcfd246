#include <fmt/format.h>

#include <cmath>

#include "results/number_text.hpp"
#include "results/report/report_assets.hpp"
#include "results/report/report_page.hpp"
#include "results/text_escapes.hpp"

namespace heteroperf {
namespace {

constexpr const char* notice_classes[] = {"good", "note", "bad"};
constexpr const char* notice_words[] = {"Good", "Note", "Problem"};

/// A browser that obeys this loads nothing but what the file holds.
constexpr const char* content_policy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: "
    "blob:";

/// Cells of more bytes than that get room.
constexpr std::size_t long_text = 40;

bool is_number(const std::string& cell) {
  return !cell.empty() && cell.find_first_not_of("0123456789+-.e %") == std::string::npos;
}

std::string table_head(const ReportTable& table) {
  std::string text = "<thead><tr>";
  for (const std::string& column : table.columns) {
    text += "<th scope=\"col\">" + html_text(column) + "</th>";
  }
  return text + "</tr></thead>\n<tbody>";
}

std::string table_row(const std::vector<std::string>& row) {
  std::string text = "<tr>";
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (i == 0) {
      text += "<th scope=\"row\">" + html_text(row[i]) + "</th>";
    } else {
      text += is_number(row[i])           ? "<td class=\"n\">"
              : row[i].size() > long_text ? "<td class=\"t\">"
                                          : "<td>";
      text += html_text(row[i]) + "</td>";
    }
  }
  return text + "</tr>\n";
}

std::string table_html(const ReportTable& table, const std::string& id = "") {
  std::string text = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table{}>\n<caption>"
      "{}</caption>\n",
      html_text(table.caption), id.empty() ? "" : " id=\"" + id + "\"", html_text(table.caption));
  text += table_head(table);
  for (const auto& row : table.rows) text += table_row(row);
  return text + "</tbody></table></div>\n";
}

std::string with_unit(double value, const ChartAxis& axis) {
  constexpr double large = 1e4;
  if (axis.unit.empty() || std::abs(value) < large) return number_cell(value) + ' ' + axis.unit;
  return with_prefix(value, axis.unit);
}

/// What colours and lines of the chart mean beyond its series.
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
  for (const ReportTable& table : section.tables) text += table_html(table);
  return text + "</section>\n";
}

std::string part_html(const ReportPart& part) {
  std::string text = "<article>\n<h2>" + html_text(part.title) + "</h2>\n";
  if (!part.subtitle.empty()) text += "<p class=\"sub\">" + html_text(part.subtitle) + "</p>\n";
  for (const ReportSection& section : part.sections) text += section_html(section);
  return text + "</article>\n";
}

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

}  // namespace

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
  for (const ReportPart& part : page.parts) text += part_html(part);
  text += "</main>\n<p id=\"spoken\" class=\"unseen\" aria-live=\"polite\"></p>\n";
  text += "<script type=\"application/json\" id=\"report-data\">" + report_data_text(page) +
          "</script>\n";
  text += "<script>\n/*\n" + chart_library_license() + "*/\n" + chart_library() + "\n</script>\n";
  return text + "<script>\n" + report_charts_script() + report_script() +
         "</script>\n</body>\n</html>\n";
}

}  // namespace heteroperf
