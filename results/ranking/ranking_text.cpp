// This file writes a ranking for the console: one table per list, then published scores, then what
// was excluded and why. A terminal is narrow, so a column without a name and without text is not
// printed; plan, transport and commit are shown only where the entries of a list differ in them. A
// rank that is shared is marked with "=".

#include <fmt/format.h>

#include <algorithm>

#include "results/comparison/run_machines.hpp"
#include "results/ranking/ranking_columns.hpp"
#include "results/text/number_text.hpp"
#include "results/text/text_escapes.hpp"
#include "results/text/text_table.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t shown_commit = 12;

std::string rank_text(const RankEntry& entry) {
  return fmt::format("{}{}", entry.rank, entry.shared ? "=" : "");
}

std::string ops_text(const RankEntry& entry) {
  return with_interval(entry.ops_per_second, entry.ops_ci95, entry.runs.size(), operations_unit);
}

/// The value that entries are ordered by, where no other column shows it.
std::string by_text(const RankEntry& entry, RankKey key) {
  if (key == RankKey::hsr) return fmt::format("{:.3f}", entry.by);
  return with_prefix(entry.by, operations_unit) + (key == RankKey::ops_per_watt ? "/W" : "");
}

std::string fraction_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.1f} %", 100 * *value) : "-";
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
  std::string text;
  for (std::size_t i = 0; i < entry.run->devices.size(); ++i) {
    const DeviceShare& share = entry.run->devices[i];
    const std::uint64_t threads = entry.run->device_threads[i];
    text += fmt::format("{}{} x {} of {} thread{}", text.empty() ? "" : " + ", share.count,
                        share.device_class, threads, threads == 1 ? "" : "s");
  }
  return text + gpus_beside_classes(*entry.run);
}

/// A leaf of the record, if the entries of the list differ in it; else an empty text.
std::string distinction(const RankList& list, const RankEntry& entry, const char* path) {
  const std::string text = environment_leaf(*entry.run, path);
  const bool differs = std::any_of(
      list.entries.begin(), list.entries.end(),
      [&](const RankEntry& other) { return environment_leaf(*other.run, path) != text; });
  return differs ? text : std::string();
}

std::string console_list(const RankList& list, RankKey key) {
  const bool in_a_column = key == RankKey::ops || key == RankKey::ops_per_peak;
  TextTable table({{"rank"},
                   {"name", CellSide::left},
                   {in_a_column ? "" : to_string(key)},
                   {"OPS [95 % CI]"},
                   {"of peak"},
                   {"scaling"},
                   {"devices", CellSide::left},
                   {"", CellSide::left},  // plan, transport, commit
                   {"", CellSide::left},
                   {"", CellSide::left},
                   {"kind", CellSide::left},
                   {"runs", CellSide::left}});
  for (const RankEntry& entry : list.entries) {
    table.add({rank_text(entry), entry.name, in_a_column ? "" : by_text(entry, key),
               ops_text(entry), fraction_text(entry.ops_per_peak),
               fraction_text(entry.scaling_efficiency), scale_text(entry),
               distinction(list, entry, "/plan_summary"),
               distinction(list, entry, "/scale/transport"),
               distinction(list, entry, "/program/git_commit").substr(0, shown_commit),
               hsr_text(entry), runs_text(entry)});
  }
  return fmt::format("{}, by {}\n{}", line_text(list_heading(list)), to_string(key), table.text());
}

}  // namespace

std::string ranking_console_text(const RankingReport& ranking) {
  std::string text;
  for (const RankList& list : ranking.lists) text += console_list(list, ranking.key);
  for (const PublishedScore& one : ranking.published) {
    text += fmt::format("{:>5}  {}: {}\n", "-", line_text(one.source), published_text(one));
  }
  if (ranking.lists.empty()) text += "no record can be ranked\n";
  if (ranking.filtered > 0) text += fmt::format("{} runs are of another kind\n", ranking.filtered);
  for (const ExcludedRecord& one : ranking.excluded) {
    text += fmt::format("excluded {}\n", line_text(one.record));
    for (const std::string& reason : one.reasons) text += "  " + line_text(reason) + '\n';
  }
  return text;
}

}  // namespace heteroperf
