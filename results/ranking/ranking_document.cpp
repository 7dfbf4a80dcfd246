// The forms of a ranking. One table holds the columns of entries for JSON, CSV and HTML. Other
// people's programs read them, so a key or an order never changes and a new column comes last.
// Columns that flatten a list into one cell are for spreadsheets; documents have the list itself.
// The CSV keeps entries, published scores of AIPerf and excluded records in one table, where the
// column `state` says which kind a row is. A terminal is narrow, so it gets a table of its own, in
// which plan, transport and commit stand only where the entries of a list differ in them. A rank
// that is shared is marked with "=".

#include <fmt/format.h>

#include <algorithm>

#include "results/comparison/run_machines.hpp"
#include "results/ranking/ranking.hpp"
#include "results/text/number_text.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

constexpr const char* page_style =
    "body{font:15px sans-serif;margin:2em;color:#222;background:#fff}"
    "table{border-collapse:collapse}th,td{border:1px solid #bbb;padding:.3em .6em}"
    "td.n{text-align:right}div{overflow-x:auto}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#111}th,td{border-color:#555}}";

/// Nothing where there are no words, so that documents leave the key out.
Datum words(std::string text) { return text.empty() ? Datum() : Datum(std::move(text)); }

/// "image", or "image, errors known by 100 wrong answers".
std::string list_heading(const RankList& list) {
  return list.workload + (list.error_basis.empty() ? "" : ", errors known by " + list.error_basis);
}

/// "1.234 Top/s, regulated 1.5 Top/s (remark)".
std::string published_text(const PublishedScore& score) {
  std::string text = with_prefix(score.ops_per_second, operations_unit);
  if (score.regulated) text += ", regulated " + with_prefix(*score.regulated, operations_unit);
  return text + " (" + score.remark + ")";
}

std::string ops_text(const RankEntry& entry) {
  return with_interval(entry.ops_per_second, entry.ops_ci95, entry.runs.size(), operations_unit);
}

// ---------------------------------------------------------------- entries for programs and HTML

/// One repetition of an entry, by which a reader finds its record.
Table runs_table(const RankEntry& entry) {
  Table table{"",
              "",
              {{"run_id", "run", Unit::none},
               {"record_sha256", "hash of the record", Unit::none},
               {"created_utc", "date", Unit::none},
               {"seed", "seed", Unit::count},
               {"ops_per_second", "OPS", Unit::operations_per_second}}};
  for (const RunDigest* run : entry.runs) {
    table.add({run->run_id, run->record_sha256, run->created_utc, run->seed,
               run->number("ops_per_second")});
  }
  return table;
}

Table scale_table(const RankEntry& entry) {
  Table table{"", "", {{"class", "class", Unit::none}, {"count", "devices", Unit::count}}};
  for (const DeviceShare& share : entry.run->devices) table.add({share.device_class, share.count});
  return table;
}

Table empty_entries() {
  using enum Audience;
  return {"entries",
          "",
          {{"workload", "workload", Unit::none},
           {"rank", "rank", Unit::count},
           {"shared", "shared", Unit::none},
           {"name", "name", Unit::none},
           {"ops_per_second", "OPS [95 % CI]", Unit::operations_per_second},
           {"ci95", "95 % interval of OPS", Unit::operations_per_second, documents},
           {"ci95_low", "its low end", Unit::operations_per_second, spreadsheets},
           {"ci95_high", "its high end", Unit::operations_per_second, spreadsheets},
           {"convention", "convention", Unit::none},
           {"ops_per_peak", "of peak", Unit::fraction},
           {"regulated_score", "regulated score", Unit::operations_per_second},
           {"quality", "quality", Unit::none},
           {"validity", "validity", Unit::none},
           {"ruleset", "ruleset", Unit::none},
           {"size", "size", Unit::none},
           {"precision", "precision", Unit::none},
           {"ranks", "ranks", Unit::count},
           {"devices", "devices", Unit::none},
           {"kind", "kind", Unit::none},
           {"hsr", "HSR", Unit::ratio},
           {"scaling_efficiency", "scaling", Unit::fraction},
           {"repeats", "runs", Unit::count},
           {"reproducibility", "reproduced by", Unit::none},
           {"program_version", "program", Unit::none},
           {"created_utc", "date", Unit::none},
           {"run_id", "run", Unit::none},
           {"record_sha256", "hash of the record", Unit::none},
           {"ops_per_watt", "OPS per watt", Unit::operations_per_joule},
           {"power", "power", Unit::watts},
           {"power_level", "level of the power", Unit::none},
           {"nodes", "nodes", Unit::count},
           {"availability", "availability", Unit::none},
           {"threads", "threads", Unit::none},
           {"transport", "transport", Unit::none},
           {"plan", "plan", Unit::none},
           {"interval", "interval of", Unit::none},
           {"run_ids", "all runs", Unit::none, spreadsheets},
           {"state", "state", Unit::none, spreadsheets},
           {"remark", "remark", Unit::none, spreadsheets},
           {"error_basis", "error known by", Unit::none},
           {"runs", "repetitions", Unit::none, documents},
           {"scale", "devices by class", Unit::none, documents}}};
}

void add_entry(const RankList& list, const RankEntry& entry, Table& table) {
  constexpr std::size_t shown_digits = 12;  // of a hash
  const RunDigest& run = *entry.run;
  const auto ends = [&](double Interval::*end) {
    return entry.ops_ci95 ? Datum((*entry.ops_ci95).*end) : Datum();
  };
  std::vector<std::string> ids;
  for (const RunDigest* repeat : entry.runs) ids.push_back(repeat->run_id);
  table.add({list.workload,
             entry.rank,
             entry.shared,
             entry.name,
             Datum(entry.ops_per_second).as(ops_text(entry)),
             entry.ops_ci95,
             ends(&Interval::low),
             ends(&Interval::high),
             "strict",
             entry.ops_per_peak,
             entry.regulated_score,
             words(entry.quality),
             Datum(run.severity).judged(run.rankable ? Tone::good : Tone::doubtful),
             words(run.ruleset),
             words(run.size),
             words(run.precision),
             run.ranks,
             words(devices_text(run, "x")),
             entry.heterogeneous ? "heterogeneous" : "homogeneous",
             entry.hsr,
             entry.scaling_efficiency,
             entry.runs.size(),
             entry.replayed ? "replay" : "journal",
             words(run.program_version),
             words(run.created_utc),
             words(run.run_id),
             Datum(run.record_sha256).as(run.record_sha256.substr(0, shown_digits)),
             entry.ops_per_watt,
             entry.power ? Datum(entry.power->watts) : Datum(),
             entry.power ? fmt::format("L{}", static_cast<int>(entry.power->level)) : Datum(),
             run.nodes > 0 ? Datum(run.nodes) : Datum(),
             entry.availability ? to_string(*entry.availability) : Datum(),
             joined(run.devices, "+",
                    [](const DeviceShare& share) { return std::to_string(share.threads); }),
             words(run.leaf("/scale/transport")),
             words(run.leaf("/plan_summary")),
             to_string(entry.basis),
             fmt::format("{}", fmt::join(ids, " ")),
             "ranked",
             {},
             words(run.error_basis),
             runs_table(entry),
             scale_table(entry)});
}

/// Adds a row of another kind, which has few of the columns.
void add_cells(Table& table, const std::vector<Member>& cells) {
  std::vector<Datum> row(table.columns.size());
  for (const Member& cell : cells) {
    const auto column =
        std::find_if(table.columns.begin(), table.columns.end(),
                     [&](const TableColumn& shown) { return shown.key == cell.key; });
    row[column - table.columns.begin()] = cell.value;
  }
  table.add(std::move(row));
}

// ---------------------------------------------------------------- console

std::string rank_text(const RankEntry& entry) {
  return fmt::format("{}{}", entry.rank, entry.shared ? "=" : "");
}

/// The value that entries are ordered by, where no other column shows it.
std::string by_text(const RankEntry& entry, RankKey key) {
  if (key == RankKey::hsr) return fmt::format("{:.3f}", entry.by);
  return with_prefix(entry.by, operations_unit) + (key == RankKey::ops_per_watt ? "/W" : "");
}

std::string hsr_text(const RankEntry& entry) {
  if (!entry.heterogeneous) return "homogeneous";
  return entry.hsr ? fmt::format("mixed, HSR {:.3f}", *entry.hsr) : "mixed";
}

/// The number of runs. An entry without an interval shares its rank with a neighbour, and this says
/// why.
std::string runs_text(const RankEntry& entry) {
  const char* doubt = entry.basis == IntervalBasis::none ? ", no interval" : "";
  return fmt::format("{}{}", entry.runs.size(), doubt);
}

std::string scale_text(const RankEntry& entry) {
  const std::string text = joined(entry.run->devices, " + ", [](const DeviceShare& share) {
    return fmt::format("{} x {} of {}", share.count, share.device_class,
                       plural(share.threads, "thread"));
  });
  return text + gpus_beside_classes(*entry.run);
}

/// A leaf of the record, if the entries of the list differ in it; else an empty text.
std::string distinction(const RankList& list, const RankEntry& entry, const char* path) {
  const std::string text = entry.run->leaf(path);
  const bool differs =
      std::any_of(list.entries.begin(), list.entries.end(),
                  [&](const RankEntry& rank_entry) { return rank_entry.run->leaf(path) != text; });
  return differs ? text : std::string();
}

Table console_table(const RankList& list, RankKey key) {
  constexpr std::size_t shown_commit = 12;
  const bool in_a_column = key == RankKey::ops || key == RankKey::ops_per_peak;
  Table table{"",
              fmt::format("{}, by {}", list_heading(list), to_string(key)),
              {{"", "rank", Unit::none},
               {"", "name", Unit::none},
               {"", to_string(key), Unit::none},
               {"", "OPS [95 % CI]", Unit::operations_per_second},
               {"", "of peak", Unit::fraction},
               {"", "scaling", Unit::fraction},
               {"", "devices", Unit::none},
               {"", "", Unit::none},  // plan, transport, commit
               {"", "", Unit::none},
               {"", "", Unit::none},
               {"", "kind", Unit::none},
               {"", "runs", Unit::none}},
              {},
              Audience::people};
  for (const RankEntry& entry : list.entries) {
    table.add({Datum(entry.rank).as(rank_text(entry)), entry.name,
               in_a_column ? Datum("") : Datum(entry.by).as(by_text(entry, key)),
               Datum(entry.ops_per_second).as(ops_text(entry)), entry.ops_per_peak,
               entry.scaling_efficiency, scale_text(entry),
               distinction(list, entry, "/plan_summary"),
               distinction(list, entry, "/scale/transport"),
               distinction(list, entry, "/program/git_commit").substr(0, shown_commit),
               hsr_text(entry), runs_text(entry)});
  }
  return table;
}

/// The published scores and the excluded records, for documents.
void add_others(Document& document, const RankingReport& ranking) {
  Table published{"published",
                  "",
                  {{"source", "source", Unit::none},
                   {"ops_per_second", "OPS", Unit::operations_per_second},
                   {"convention", "convention", Unit::none},
                   {"comparable", "comparable", Unit::none},
                   {"remark", "remark", Unit::none},
                   {"regulated_score", "regulated score", Unit::operations_per_second}},
                  {},
                  Audience::programs};
  for (const PublishedScore& score : ranking.published) {
    document.line("    -  " + score.source + ": " + published_text(score));
    published.add(
        {score.source, score.ops_per_second, "aiperf", false, score.remark, score.regulated});
  }
  document.table(std::move(published));
  if (ranking.lists.empty()) document.line("no record can be ranked");
  document.data("filtered", "runs of another kind", Unit::count, ranking.filtered);
  if (ranking.filtered > 0) {
    document.line(fmt::format("{} runs are of another kind", ranking.filtered));
  }
  Table excluded{"excluded",
                 "",
                 {{"record", "excluded", Unit::none}, {"reasons", "reasons", Unit::none}},
                 {},
                 Audience::programs};
  for (const ExcludedRecord& record : ranking.excluded) {
    document.line("excluded " + record.record);
    for (const std::string& reason : record.reasons) document.line("  " + reason);
    excluded.add({record.record, record.reasons.empty() ? Datum() : record.reasons});
  }
  document.table(std::move(excluded));
}

std::string csv_of(const RankingReport& ranking) {
  Table table = empty_entries();
  for (const RankList& list : ranking.lists) {
    for (const RankEntry& entry : list.entries) add_entry(list, entry, table);
  }
  for (const PublishedScore& score : ranking.published) {
    add_cells(table, {{"name", score.source},
                      {"ops_per_second", score.ops_per_second},
                      {"convention", "aiperf"},
                      {"regulated_score", score.regulated},
                      {"state", "published"},
                      {"remark", score.remark}});
  }
  for (const ExcludedRecord& record : ranking.excluded) {
    add_cells(table, {{"workload", record.workload},
                      {"name", record.record},
                      {"run_id", record.run_id},
                      {"state", "excluded"},
                      {"remark", fmt::format("{}", fmt::join(record.reasons, "; "))}});
  }
  return csv_text(table);
}

std::string html_of(const RankingReport& ranking) {
  std::string text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\"><title>HeteroPerf ranking</title>"
      "<style>{}</style></head><body>\n<h1>HeteroPerf ranking</h1>\n<p>By {}. Entries that share a "
      "rank do not differ significantly; of single runs only differences beyond {:.0f} % count, as "
      "runs differ by more than one of them shows.</p>\n",
      page_style, to_string(ranking.key), 100 * single_run_noise);
  for (const RankList& list : ranking.lists) {
    Table table = empty_entries();
    for (const RankEntry& entry : list.entries) add_entry(list, entry, table);
    text += fmt::format("<h2>{}</h2>\n<div>{}</div>\n", html_text(list_heading(list)),
                        html_table(table));
  }
  if (ranking.lists.empty()) text += "<p>No record can be ranked.</p>\n";
  if (!ranking.published.empty()) text += "<h2>Published by AIPerf, not comparable</h2>\n<ul>\n";
  for (const PublishedScore& score : ranking.published) {
    text +=
        fmt::format("<li>{}: {}</li>\n", html_text(score.source), html_text(published_text(score)));
  }
  if (!ranking.published.empty()) text += "</ul>\n";
  if (!ranking.excluded.empty()) text += "<h2>Excluded</h2>\n<ul>\n";
  for (const ExcludedRecord& record : ranking.excluded) {
    text += fmt::format("<li>{}: {}</li>\n", html_text(record.record),
                        html_text(fmt::format("{}", fmt::join(record.reasons, "; "))));
  }
  if (!ranking.excluded.empty()) text += "</ul>\n";
  return text + "</body></html>\n";
}

}  // namespace

Document ranking_document(const RankingReport& ranking) {
  Document document{"heteroperf-ranking"};
  document.data("by", "order", Unit::none, to_string(ranking.key));
  Table entries = empty_entries();
  entries.audience = Audience::programs;
  for (const RankList& list : ranking.lists) {
    document.table(console_table(list, ranking.key));
    for (const RankEntry& entry : list.entries) add_entry(list, entry, entries);
  }
  document.table(std::move(entries));
  add_others(document, ranking);
  return document;
}

std::string ranking_text(const RankingReport& ranking, DocumentForm form, const TextStyle& style) {
  if (form == DocumentForm::csv) return csv_of(ranking);
  if (form == DocumentForm::html) return html_of(ranking);
  return document_text(ranking_document(ranking), form, style);
}

}  // namespace heteroperf
