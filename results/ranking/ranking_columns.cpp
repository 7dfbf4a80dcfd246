// One table holds the columns of a ranking for CSV, JSON and HTML. Other people's programs read
// them, so a name or an order never changes and a new column comes last. Every value is a raw text
// in the unit of its column, without a prefix; a value that an entry lacks is an empty text. The
// columns `state` and `remark` tell rows of entries from those of excluded records and published
// scores in the CSV.

#include "results/ranking/ranking_columns.hpp"

#include <fmt/format.h>

#include "results/comparison/devices_text.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

std::string number(const std::optional<double>& value) {
  return value ? json_number(*value) : std::string();
}

constexpr const char* ranked_state = "ranked";

using List = RankList;
using Entry = RankEntry;

constexpr RankColumn columns[] = {
    {"workload", "", [](const List& list, const Entry&) { return list.workload; }, false},
    {"rank", "", [](const List&, const Entry& e) { return std::to_string(e.rank); }, true},
    {"shared", "",
     [](const List&, const Entry& e) { return std::string(e.shared ? "true" : "false"); }, false},
    {"name", "", [](const List&, const Entry& e) { return e.name; }, false},
    {"ops_per_second", "op/s", [](const List&, const Entry& e) { return number(e.ops_per_second); },
     true},
    {"ci95_low", "op/s",
     [](const List&, const Entry& e) {
       return e.ops_ci95 ? number(e.ops_ci95->low) : std::string();
     },
     true},
    {"ci95_high", "op/s",
     [](const List&, const Entry& e) {
       return e.ops_ci95 ? number(e.ops_ci95->high) : std::string();
     },
     true},
    {"convention", "", [](const List&, const Entry&) { return std::string("strict"); }, false},
    {"ops_per_peak", "1", [](const List&, const Entry& e) { return number(e.ops_per_peak); }, true},
    {"regulated_score", "op/s",
     [](const List&, const Entry& e) { return number(e.regulated_score); }, true},
    {"quality", "", [](const List&, const Entry& e) { return e.quality; }, false},
    {"validity", "", [](const List&, const Entry& e) { return e.run->severity; }, false},
    {"ruleset", "", [](const List&, const Entry& e) { return e.run->ruleset; }, false},
    {"size", "", [](const List&, const Entry& e) { return e.run->size; }, false},
    {"precision", "", [](const List&, const Entry& e) { return e.run->precision; }, false},
    {"ranks", "", [](const List&, const Entry& e) { return std::to_string(e.run->ranks); }, true},
    {"devices", "", [](const List&, const Entry& e) { return devices_text(*e.run, "x"); }, false},
    {"kind", "",
     [](const List&, const Entry& e) {
       return std::string(e.heterogeneous ? "heterogeneous" : "homogeneous");
     },
     false},
    {"hsr", "1", [](const List&, const Entry& e) { return number(e.hsr); }, true},
    {"scaling_efficiency", "1",
     [](const List&, const Entry& e) { return number(e.scaling_efficiency); }, true},
    {"repeats", "", [](const List&, const Entry& e) { return std::to_string(e.runs.size()); },
     true},
    {"reproducibility", "",
     [](const List&, const Entry& e) { return std::string(e.replayed ? "replay" : "journal"); },
     false},
    {"program_version", "", [](const List&, const Entry& e) { return e.run->program_version; },
     false},
    {"created_utc", "", [](const List&, const Entry& e) { return e.run->created_utc; }, false},
    {"run_id", "", [](const List&, const Entry& e) { return e.run->run_id; }, false},
    {"record_sha256", "", [](const List&, const Entry& e) { return e.run->record_sha256; }, false},
    {"ops_per_watt", "op/s/W", [](const List&, const Entry& e) { return number(e.ops_per_watt); },
     true},
    {"power", "W",
     [](const List&, const Entry& e) { return e.power ? number(e.power->watts) : std::string(); },
     true},
    {"power_level", "",
     [](const List&, const Entry& e) {
       return e.power ? fmt::format("L{}", static_cast<int>(e.power->level)) : std::string();
     },
     false},
    {"nodes", "",
     [](const List&, const Entry& e) {
       return e.run->nodes > 0 ? std::to_string(e.run->nodes) : std::string();
     },
     true},
    {"availability", "",
     [](const List&, const Entry& e) {
       return e.availability ? std::string(to_string(*e.availability)) : std::string();
     },
     false},
    {"threads", "",
     [](const List&, const Entry& e) {
       return fmt::format("{}", fmt::join(e.run->device_threads, "+"));
     },
     false},
    {"transport", "",
     [](const List&, const Entry& e) { return environment_leaf(*e.run, "/scale/transport"); },
     false},
    {"plan", "",
     [](const List&, const Entry& e) { return environment_leaf(*e.run, "/plan_summary"); }, false},
    {"interval", "", [](const List&, const Entry& e) { return std::string(to_string(e.basis)); },
     false},
    {"run_ids", "",
     [](const List&, const Entry& e) {
       std::vector<std::string> ids;
       for (const RunDigest* run : e.runs) ids.push_back(run->run_id);
       return fmt::format("{}", fmt::join(ids, " "));
     },
     false},
    {"state", "", [](const List&, const Entry&) { return std::string(ranked_state); }, false},
    {"remark", "", [](const List&, const Entry&) { return std::string(); }, false},
    {"error_basis", "", [](const List&, const Entry& e) { return e.run->error_basis; }, false},
};

}  // namespace

std::string list_heading(const RankList& list) {
  return list.workload + (list.error_basis.empty() ? "" : ", errors known by " + list.error_basis);
}

std::string published_text(const PublishedScore& one) {
  std::string text = with_prefix(one.ops_per_second, operations_unit);
  if (one.regulated) text += ", regulated " + with_prefix(*one.regulated, operations_unit);
  return text + " (" + one.remark + ")";
}

std::string environment_leaf(const RunDigest& run, const std::string& path) {
  const auto found = run.environment.find(path);
  return found == run.environment.end() ? std::string() : found->second;
}

std::span<const RankColumn> rank_columns() { return columns; }

}  // namespace heteroperf
