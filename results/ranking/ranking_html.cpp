// This file writes a ranking as a single HTML page without scripts, which can be put on a web
// server or sent by mail. Numbers are shown with decimal prefixes and few digits, as a reader
// compares them by eye, and each cell has the raw value as its title. All texts of records are
// escaped: a host may be named like a tag.

#include <fmt/format.h>

#include <string_view>

#include "results/ranking/ranking_columns.hpp"
#include "results/text/number_text.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

constexpr const char* style =
    "body{font:15px sans-serif;margin:2em;color:#222;background:#fff}"
    "table{border-collapse:collapse}th,td{border:1px solid #bbb;padding:.3em .6em}"
    "td.n{text-align:right}div{overflow-x:auto}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#111}th,td{border-color:#555}}";

constexpr std::size_t shown_digits = 12;  // of a hash

/// True for operations per second and what is derived from them: such cells carry their unit with a
/// decimal prefix, and the head of the column names none.
bool has_prefix(const RankColumn& column) {
  return std::string_view(column.unit).starts_with(operations_unit);
}

/// The part of a column's raw value that a reader needs.
std::string shown_text(const RankColumn& column, const RankEntry& entry, const std::string& raw) {
  const std::string_view name = column.name;
  if (raw.empty()) return raw;
  if (name == "record_sha256") return raw.substr(0, shown_digits);
  if (name.starts_with("ci95") && !is_useful(*entry.ops_ci95)) {
    return useless_interval(entry.runs.size());
  }
  if (column.unit[0] == '\0') return raw;
  const double value = std::stod(raw);
  if (!has_prefix(column)) return fmt::format("{:.4g}", value);
  return with_prefix(value, operations_unit) +
         (column.unit + std::string_view(operations_unit).size());
}

/// The raw value in full is the cell's title.
std::string cell_of(const RankColumn& column, const RankEntry& entry, const std::string& raw) {
  const std::string shown = shown_text(column, entry, raw);
  return fmt::format("<td{}{}>{}</td>", column.number ? " class=\"n\"" : "",
                     shown == raw ? "" : " title=\"" + html_text(raw) + "\"", html_text(shown));
}

std::string html_list(const RankList& list) {
  std::string text =
      fmt::format("<h2>{}</h2>\n<div><table>\n<thead><tr>", html_text(list_heading(list)));
  for (const RankColumn& column : rank_columns()) {
    const std::string unit = has_prefix(column) ? "" : column.unit;
    text += fmt::format("<th scope=\"col\">{}{}</th>", column.name,
                        unit.empty() ? "" : " [" + unit + "]");
  }
  text += "</tr></thead>\n<tbody>\n";
  for (const RankEntry& entry : list.entries) {
    text += "<tr>";
    for (const RankColumn& column : rank_columns()) {
      text += cell_of(column, entry, column.value(list, entry));
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

}  // namespace

std::string ranking_html_text(const RankingReport& ranking) {
  std::string text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\"><title>HeteroPerf ranking</title>"
      "<style>{}</style></head><body>\n<h1>HeteroPerf ranking</h1>\n<p>By {}. Entries that share a "
      "rank do not differ significantly; of single runs only differences beyond {:.0f} % count, as "
      "runs differ by more than one of them shows.</p>\n",
      style, to_string(ranking.key), 100 * single_run_noise);
  for (const RankList& list : ranking.lists) text += html_list(list);
  if (ranking.lists.empty()) text += "<p>No record can be ranked.</p>\n";
  if (!ranking.published.empty()) text += "<h2>Published by AIPerf, not comparable</h2>\n<ul>\n";
  for (const PublishedScore& one : ranking.published) {
    text += fmt::format("<li>{}: {}</li>\n", html_text(one.source), html_text(published_text(one)));
  }
  if (!ranking.published.empty()) text += "</ul>\n";
  if (!ranking.excluded.empty()) text += "<h2>Excluded</h2>\n<ul>\n";
  for (const ExcludedRecord& one : ranking.excluded) {
    text += fmt::format("<li>{}: {}</li>\n", html_text(one.record),
                        html_text(fmt::format("{}", fmt::join(one.reasons, "; "))));
  }
  if (!ranking.excluded.empty()) text += "</ul>\n";
  return text + "</body></html>\n";
}

}  // namespace heteroperf
