// This section shows everything that a record holds as tables of paths and values. It is the last
// one of a run's part: nobody reads all of it, but whoever asks which compiler or which setting it
// was finds it without the run's folder. The tables go through the record's JSON itself, so a new
// key inside one of its parts appears without a line here. Answers of the machine (a value with its
// source, or the reason why there is none) are one row each.

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/strict_json.hpp"
#include "results/report/report_run.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

/// True for a list of plain values.
bool is_plain_list(const Json& json) {
  return json.is_array() && std::none_of(json.begin(), json.end(),
                                         [](const Json& item) { return item.is_structured(); });
}

/// A list of plain values stands on one line, "1, 2, 3"; one of things shows their number too.
std::string leaf_text(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (is_plain_list(json)) return joined(json, ", ", leaf_text);
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!json.is_array()) return text;
  return fmt::format("{} {}: {}", json.size(), json.size() == 1 ? "entry" : "entries", text);
}

/// An answer of the machine: a value, or why there is none.
bool is_answer(const Json& json) {
  return json.is_object() && json.contains("source") &&
         (json.contains("value") || json.contains("status"));
}

/// Rows by paths that join keys, or places in a list, by dots. In the table of the system, which
/// has a column for sources, an answer is one row, and so is a list; in others a row is a leaf.
void add_leaves(const Json& json, const std::string& path, Table& table) {
  const bool system = table.columns.size() > 2;
  if (system && is_answer(json)) {
    std::string text = leaf_text(json.contains("value") ? json["value"] : json["status"]);
    const bool reason = !json.contains("value") && json.contains("reason");
    if (reason) text += ": " + leaf_text(json["reason"]);
    return table.add({path, text, leaf_text(json["source"])});
  }
  if (system ? !json.is_object() : !json.is_structured() || is_plain_list(json)) {
    std::vector<Datum> row{path, leaf_text(json)};
    row.resize(table.columns.size(), "");
    return table.add(std::move(row));
  }
  for (const auto& item : json.items()) {
    add_leaves(item.value(), path.empty() ? item.key() : path + "." + item.key(), table);
  }
}

}  // namespace

ReportSection environment_section(const ReportRun& run) {
  ReportSection section{"Environment and all numbers"};
  const auto* start = run.journal.first<StartEvent>();
  if (!start->reproduce.empty()) section.paragraphs.push_back("Reproduce: " + start->reproduce);
  const Json record = Json::parse(run.record);
  // Captions, and keys of record.json.
  const std::pair<const char*, std::vector<const char*>> tables[] = {
      {"Numbers of the record",
       {"metrics", "operations", "prediction", "pacing", "search", "checkpoints", "seeds"}},
      {"Program and files",
       {"run_id", "parent", "status", "status_reason", "program", "plan_summary", "workload",
        "scale", "hashes", "journal", "warnings"}},
      {"Configuration", {"config"}}};
  for (const auto& [caption, keys] : tables) {
    Table table = report_table(caption, {"name", "value"});
    for (const char* key : keys) {
      if (record.contains(key)) add_leaves(record[key], key, table);
    }
    section.tables.push_back(std::move(table));
  }
  if (record.contains("system")) {
    Table table = report_table("System", {"name", "value", "source"});
    add_leaves(record["system"], "", table);
    section.tables.push_back(std::move(table));
  } else {
    section.paragraphs.push_back("The journal does not describe the system.");
  }
  return section;
}

}  // namespace heteroperf
