#include <fmt/format.h>

#include "results/number_text.hpp"
#include "results/ranking/ranking_columns.hpp"
#include "results/text_escapes.hpp"

namespace heteroperf {
namespace {

std::string rank_text(const RankEntry& entry) {
  return fmt::format("{}{}", entry.rank, entry.shared ? "=" : "");
}

std::string ops_text(const RankEntry& entry) {
  const Scaled scaled = scale_of(entry.ops_per_second);
  std::string text = fmt::format("{:.4g}", entry.ops_per_second / scaled.factor);
  if (entry.ops_ci95) {
    text +=
        fmt::format(" ± {:.2g}", (entry.ops_ci95->high - entry.ops_ci95->low) / 2 / scaled.factor);
  }
  return text + ' ' + prefixed(scaled, operations_unit);
}

std::string fraction_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.1f} %", 100 * *value) : "-";
}

std::string hsr_text(const RankEntry& entry) {
  if (!entry.heterogeneous) return "homogeneous";
  return entry.run->hsr ? fmt::format("mixed, HSR {:.3f}", *entry.run->hsr) : "mixed";
}

std::string published_text(const PublishedScore& one) {
  return fmt::format("{} ({})", with_prefix(one.ops_per_second, operations_unit), one.remark);
}

std::string scale_text(const RankEntry& entry) {
  std::string text;
  for (const DeviceShare& share : entry.run->devices) {
    text += fmt::format("{}{} x {}", text.empty() ? "" : " + ", share.count, share.device_class);
  }
  return text;
}

constexpr const char* style =
    "body{font:15px sans-serif;margin:2em;color:#222;background:#fff}"
    "table{border-collapse:collapse}th,td{border:1px solid #bbb;padding:.3em .6em}"
    "td.n{text-align:right}div{overflow-x:auto}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#111}th,td{border-color:#555}}";

std::string html_list(const RankList& list) {
  std::string text =
      fmt::format("<h2>{}</h2>\n<div><table>\n<thead><tr>", html_text(list.workload));
  for (const RankColumn& column : rank_columns()) {
    const std::string unit = column.unit;
    text += fmt::format("<th scope=\"col\">{}{}</th>", column.name,
                        unit.empty() ? "" : " [" + unit + "]");
  }
  text += "</tr></thead>\n<tbody>\n";
  for (const RankEntry& entry : list.entries) {
    text += "<tr>";
    for (const RankColumn& column : rank_columns()) {
      text += fmt::format("<td{}>{}</td>", column.number ? " class=\"n\"" : "",
                          html_text(column.value(list, entry)));
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

}  // namespace

std::string ranking_console_text(const RankingReport& ranking) {
  std::string text;
  for (const RankList& list : ranking.lists) {
    text += fmt::format("{}, by {}\n", list.workload, to_string(ranking.key));
    text += fmt::format("{:>5}  {:<20} {:>24} {:>8} {:>8}  {:<22} {:<18} {}\n", "rank", "name",
                        "OPS", "of peak", "scaling", "devices", "kind", "repeats");
    for (const RankEntry& entry : list.entries) {
      text +=
          fmt::format("{:>5}  {:<20} {:>24} {:>8} {:>8}  {:<22} {:<18} {}\n", rank_text(entry),
                      utf8_text(entry.name), ops_text(entry), fraction_text(entry.run->utilization),
                      fraction_text(entry.scaling_efficiency), scale_text(entry), hsr_text(entry),
                      entry.repeats);
    }
  }
  for (const PublishedScore& one : ranking.published) {
    text += fmt::format("{:>5}  {}: {}\n", "-", utf8_text(one.source), published_text(one));
  }
  if (ranking.lists.empty()) text += "no record can be ranked\n";
  if (ranking.filtered > 0) text += fmt::format("{} runs are of another kind\n", ranking.filtered);
  for (const ExcludedRecord& one : ranking.excluded) {
    text += fmt::format("excluded {}\n", utf8_text(one.record));
    for (const std::string& reason : one.reasons) text += "  " + utf8_text(reason) + '\n';
  }
  return text;
}

std::string ranking_csv_text(const RankingReport& ranking) {
  std::string text;
  for (const RankColumn& column : rank_columns()) {
    text += (text.empty() ? "" : ",") + std::string(column.name);
  }
  text += '\n';
  for (const RankList& list : ranking.lists) {
    for (const RankEntry& entry : list.entries) {
      std::string line;
      for (const RankColumn& column : rank_columns()) {
        if (&column != rank_columns().data()) line += ',';
        line += csv_cell(column.value(list, entry));
      }
      text += line + '\n';
    }
  }
  return text;
}

std::string ranking_html_text(const RankingReport& ranking) {
  std::string text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\"><title>HeteroPerf ranking</title>"
      "<style>{}</style></head><body>\n<h1>HeteroPerf ranking</h1>\n<p>By {}. Entries that share a "
      "rank do not differ significantly.</p>\n",
      style, to_string(ranking.key));
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
