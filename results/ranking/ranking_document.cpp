// The forms of a ranking. One table holds the columns of entries for JSON, CSV and HTML. Other
// people's programs read them, so a key or an order never changes and a new column comes last.
// Columns that flatten a list into one cell are for spreadsheets; documents have the list itself.
// The CSV keeps entries, published scores of AIPerf and excluded records in one table, where the
// column `state` says which kind a row is. A terminal is narrow, so it gets a table of its own, in
// which plan, transport and commit stand only where the entries of a list differ in them. A rank
// that is shared is marked with "=".

#include <fmt/format.h>

#include <algorithm>

#include "results/comparison/run_digest.hpp"
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

/// The repetitions of an entry, by which a reader finds their records.
Table runs_table(const RankEntry& entry) {
  Table table;
  for (const RunDigest* run : entry.runs) {
    table.add_cells(
        {{"run_id", "run", Unit::none, run->run_id},
         {"record_sha256", "hash of the record", Unit::none, run->record_sha256},
         {"created_utc", "date", Unit::none, run->created_utc},
         {"seed", "seed", Unit::count, run->seed},
         {"ops_per_second", "OPS", Unit::operations_per_second, run->number("ops_per_second")}});
  }
  return table;
}

Table scale_table(const RankEntry& entry) {
  Table table;
  for (const DeviceShare& share : entry.run->devices) {
    table.add_cells({{"class", "class", Unit::none, share.device_class},
                     {"count", "devices", Unit::count, share.count}});
  }
  return table;
}

void add_entry(const RankList& list, const RankEntry& entry, Table& table) {
  using enum Unit;
  using enum Audience;
  constexpr std::size_t shown_digits = 12;  // of a hash
  const RunDigest& run = *entry.run;
  const Datum ops = Datum(entry.ops_per_second).as(ops_text(entry)),
              hash = Datum(run.record_sha256).as(run.record_sha256.substr(0, shown_digits)),
              validity = Datum(run.severity).judged(run.rankable ? Tone::good : Tone::doubtful);
  const auto end_of_ops = [&](double Interval::*end) {
    return entry.ops_ci95 ? Datum((*entry.ops_ci95).*end) : Datum();
  };
  const std::string threads = joined(
      run.devices, "+", [](const DeviceShare& share) { return std::to_string(share.threads); });
  const std::string ids =
      joined(entry.runs, " ", [](const RunDigest* repeat) { return repeat->run_id; });
  const auto& power = entry.power;
  table.add_cells(
      {{"workload", "workload", none, list.workload},
       {"rank", "rank", count, entry.rank},
       {"shared", "shared", none, entry.shared},
       {"name", "name", none, entry.name},
       {"ops_per_second", "OPS [95 % CI]", operations_per_second, ops},
       {"ci95", "95 % interval of OPS", operations_per_second, entry.ops_ci95, documents},
       {"ci95_low", "its low end", operations_per_second, end_of_ops(&Interval::low), spreadsheets},
       {"ci95_high", "its high end", operations_per_second, end_of_ops(&Interval::high),
        spreadsheets},
       {"convention", "convention", none, "strict"},
       {"ops_per_peak", "of peak", fraction, entry.ops_per_peak},
       {"regulated_score", "regulated score", operations_per_second, entry.regulated_score},
       {"quality", "quality", none, words(entry.quality)},
       {"validity", "validity", none, validity},
       {"ruleset", "ruleset", none, words(run.ruleset)},
       {"size", "size", none, words(run.size)},
       {"precision", "precision", none, words(run.precision)},
       {"ranks", "ranks", count, run.ranks},
       {"devices", "devices", none, words(devices_text(run, "x"))},
       {"kind", "kind", none, entry.heterogeneous ? "heterogeneous" : "homogeneous"},
       {"hsr", "HSR", ratio, entry.hsr},
       {"scaling_efficiency", "scaling", fraction, entry.scaling_efficiency},
       {"repeats", "runs", count, entry.runs.size()},
       {"reproducibility", "reproduced by", none, entry.replayed ? "replay" : "journal"},
       {"program_version", "program", none, words(run.program_version)},
       {"created_utc", "date", none, words(run.created_utc)},
       {"run_id", "run", none, words(run.run_id)},
       {"record_sha256", "hash of the record", none, hash},
       {"ops_per_watt", "OPS per watt", operations_per_joule, entry.ops_per_watt},
       {"power", "power", watts, power ? Datum(power->watts) : Datum()},
       {"power_level", "level of the power", none,
        power ? fmt::format("L{}", static_cast<int>(power->level)) : Datum()},
       {"nodes", "nodes", count, run.nodes > 0 ? Datum(run.nodes) : Datum()},
       {"availability", "availability", none,
        entry.availability ? to_string(*entry.availability) : Datum()},
       {"threads", "threads", none, threads},
       {"transport", "transport", none, words(run.leaf("/scale/transport"))},
       {"plan", "plan", none, words(run.leaf("/plan_summary"))},
       {"interval", "interval of", none, to_string(entry.basis)},
       {"run_ids", "all runs", none, ids, spreadsheets},
       {"state", "state", none, "ranked", spreadsheets},
       {"remark", "remark", none, {}, spreadsheets},
       {"error_basis", "error known by", none, words(run.error_basis)},
       {"runs", "repetitions", none, runs_table(entry), documents},
       {"scale", "devices by class", none, scale_table(entry), documents}});
}

/// The entries of these lists. A table without any has its columns all the same.
Table entries_table(std::span<const RankList> lists) {
  const RunDigest nobody;
  RankEntry none;
  none.run = &nobody;
  Table table{"entries", "", {}, {}, Audience::programs};
  add_entry({}, none, table);
  table.rows.clear();
  for (const RankList& list : lists) {
    for (const RankEntry& entry : list.entries) add_entry(list, entry, table);
  }
  return table;
}

/// Adds a row of another kind, which has few of the columns.
void add_other(Table& table, const std::vector<Member>& cells) {
  std::vector<Datum> row(table.columns.size());
  for (const Member& cell : cells) {
    const auto column = std::ranges::find(table.columns, cell.key, &TableColumn::key);
    row[column - table.columns.begin()] = cell.value;
  }
  table.add(std::move(row));
}

// ---------------------------------------------------------------- console

/// The value that entries are ordered by, where no other column shows it.
std::string by_text(const RankEntry& entry, RankKey key) {
  if (key == RankKey::hsr) return fmt::format("{:.3f}", entry.by);
  return with_prefix(entry.by, operations_unit) + (key == RankKey::ops_per_watt ? "/W" : "");
}

std::string hsr_text(const RankEntry& entry) {
  if (!entry.heterogeneous) return "homogeneous";
  return entry.hsr ? fmt::format("mixed, HSR {:.3f}", *entry.hsr) : "mixed";
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
  const auto same = [&](const RankEntry& others) { return others.run->leaf(path) == text; };
  return std::ranges::all_of(list.entries, same) ? std::string() : text;
}

/// The cells before the kind are plan, transport and commit.
Table console_table(const RankList& list, RankKey key) {
  using enum Unit;
  constexpr std::size_t shown_commit = 12;
  const bool in_a_column = key == RankKey::ops || key == RankKey::ops_per_peak;
  Table table{
      "", fmt::format("{}, by {}", list_heading(list), to_string(key)), {}, {}, Audience::people};
  for (const RankEntry& entry : list.entries) {
    // An entry without an interval shares its rank with a neighbour, and this says why.
    const char* const doubt = entry.basis == IntervalBasis::none ? ", no interval" : "";
    table.add_cells(
        {{"", "rank", none,
          Datum(entry.rank).as(std::to_string(entry.rank) + (entry.shared ? "=" : ""))},
         {"", "name", none, entry.name},
         {"", to_string(key), none, in_a_column ? "" : Datum(entry.by).as(by_text(entry, key))},
         {"", "OPS [95 % CI]", none, Datum(entry.ops_per_second).as(ops_text(entry))},
         {"", "of peak", fraction, entry.ops_per_peak},
         {"", "scaling", fraction, entry.scaling_efficiency},
         {"", "devices", none, scale_text(entry)},
         {"", "", none, distinction(list, entry, "/plan_summary")},
         {"", "", none, distinction(list, entry, "/scale/transport")},
         {"", "", none, distinction(list, entry, "/program/git_commit").substr(0, shown_commit)},
         {"", "kind", none, hsr_text(entry)},
         {"", "runs", none, fmt::format("{}{}", entry.runs.size(), doubt)}});
  }
  return table;
}

/// The published scores and the excluded records, for documents.
void add_others(Document& document, const RankingReport& ranking) {
  using enum Unit;
  Table published{"published", "", {}, {}, Audience::programs};
  for (const PublishedScore& score : ranking.published) {
    document.line("    -  " + score.source + ": " + published_text(score));
    published.add_cells(
        {{"source", "source", none, score.source},
         {"ops_per_second", "OPS", operations_per_second, score.ops_per_second},
         {"convention", "convention", none, "aiperf"},
         {"comparable", "comparable", none, false},
         {"remark", "remark", none, score.remark},
         {"regulated_score", "regulated score", operations_per_second, score.regulated}});
  }
  document.table(std::move(published));
  if (ranking.lists.empty()) document.line("no record can be ranked");
  document.data("filtered", "runs of another kind", Unit::count, ranking.filtered);
  if (ranking.filtered > 0) {
    document.line(fmt::format("{} runs are of another kind", ranking.filtered));
  }
  Table excluded{"excluded", "", {}, {}, Audience::programs};
  for (const ExcludedRecord& record : ranking.excluded) {
    document.line("excluded " + record.record);
    for (const std::string& reason : record.reasons) document.line("  " + reason);
    excluded.add_cells(
        {{"record", "excluded", none, record.record},
         {"reasons", "reasons", none, record.reasons.empty() ? Datum() : record.reasons}});
  }
  document.table(std::move(excluded));
}

std::string csv_of(const RankingReport& ranking) {
  Table table = entries_table(ranking.lists);
  for (const PublishedScore& score : ranking.published) {
    add_other(table, {{"name", score.source},
                      {"ops_per_second", score.ops_per_second},
                      {"convention", "aiperf"},
                      {"regulated_score", score.regulated},
                      {"state", "published"},
                      {"remark", score.remark}});
  }
  for (const ExcludedRecord& record : ranking.excluded) {
    add_other(table, {{"workload", record.workload},
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
    text += fmt::format("<h2>{}</h2>\n<div>{}</div>\n", html_text(list_heading(list)),
                        html_table(entries_table({&list, 1})));
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
  for (const RankList& list : ranking.lists) document.table(console_table(list, ranking.key));
  document.table(entries_table(ranking.lists));
  add_others(document, ranking);
  return document;
}

std::string ranking_text(const RankingReport& ranking, DocumentForm form, const TextStyle& style) {
  if (form == DocumentForm::csv) return csv_of(ranking);
  if (form == DocumentForm::html) return html_of(ranking);
  return document_text(ranking_document(ranking), form, style);
}

}  // namespace heteroperf
