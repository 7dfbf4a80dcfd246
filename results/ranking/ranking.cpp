// Decides which records may be ranked and puts them into lists. A list is for one workload, since
// operations of unlike work do not compare. Only a record that its own journal gives again counts:
// anybody can edit record.json, but the journal's lines are chained by hashes. All others are
// excluded, each with every reason, so that its owner can mend all of them at once. Runs with the
// same key, host, machines, program and set-up are repetitions and make one entry; two with one
// seed are no independent repetitions, so the later one is excluded.

#include "results/ranking/ranking.hpp"

#include <fmt/format.h>

#include <map>

#include "metrics/base/name_table.hpp"
#include "results/comparison/record_doubt.hpp"
#include "results/comparison/run_digest.hpp"

namespace heteroperf {
namespace {

struct KeyRow {
  RankKey value;
  const char *name, *metric;
};
constexpr KeyRow rank_keys[] = {{RankKey::ops, "ops", "ops_per_second"},
                                {RankKey::ops_per_device, "ops_per_device", "ops_per_second"},
                                {RankKey::ops_per_peak, "ops_per_peak", "utilization"},
                                {RankKey::ops_per_watt, "ops_per_watt", "ops_per_second"},
                                {RankKey::regulated, "regulated", "regulated_score"},
                                {RankKey::hsr, "hsr", "hsr"}};

/// Every reason against a run; empty where it may be ranked.
std::vector<std::string> why_excluded(const RunDigest& run,
                                      const std::optional<RecordDoubt>& doubt) {
  std::vector<std::string> reasons;
  if (!has_journal(run)) {
    reasons.push_back("no journal beside it: its numbers cannot be computed again");
  } else if (doubt) {
    reasons.push_back(doubt->text());
  }
  if (run.status != "complete") reasons.push_back("status " + run.status);
  if (!run.rankable) reasons.push_back("class " + run.severity);
  reasons.insert(reasons.end(), run.reasons.begin(), run.reasons.end());
  if (!(run.number("ops_per_second").value_or(0) > 0)) reasons.push_back("no score");
  return reasons;
}

/// The text that is equal for repetitions of one run: key, machine, program and set-up.
std::string repetition_key(const RunDigest& run) {
  std::string text = run.key_text();
  for (const std::string& part :
       {run.host, machines_text(run), run.program_version, run.git_commit}) {
    text += part + '\n';
  }
  for (const auto& [path, value] : setup_of(run)) text += path + '=' + value + '\n';
  return text;
}

/// Sorts records into repetitions and those that may not be ranked: take() for each record by date,
/// then make_lists() once. The records must stay where they are, as entries point at them.
class Sieve {
 public:
  Sieve(RankingReport& ranking, const RankTables& tables) : ranking_(ranking), tables_(tables) {}

  void take(const RunDigest& run, const std::optional<RecordDoubt>& doubt) {
    std::vector<std::string> reasons = why_excluded(run, doubt);
    if (reasons.empty() && !has_value(run)) {
      reasons.push_back(fmt::format("has no {}", to_string(ranking_.key)));
    }
    // Scores whose errors are known unlike well go to lists of their own.
    const bool by_error = ranking_.key == RankKey::regulated;
    auto& repeats = repetitions_[{run.workload, by_error ? run.error_basis : std::string()}]
                                [repetition_key(run)];
    for (const RunDigest* digest : repeats) {
      if (!reasons.empty() || digest->seed != run.seed) continue;
      reasons.push_back(fmt::format("repeats {} with the same seed {}: no independent repetition",
                                    digest->run_id, run.seed));
    }
    if (reasons.empty()) {
      repeats.push_back(&run);
    } else {
      ranking_.excluded.push_back(
          {run.record.string(), run.workload, run.run_id, std::move(reasons)});
    }
  }

  void make_lists() {
    for (const auto& [name, entries] : repetitions_) {
      RankList list{name.first, name.second, {}};
      for (const auto& [key, repeats] : entries) {
        if (!repeats.empty()) list.entries.push_back(make_entry(repeats, ranking_.key, tables_));
      }
      give_ranks(list.entries);
      give_efficiency(list.entries);
      if (!list.entries.empty()) ranking_.lists.push_back(std::move(list));
    }
  }

 private:
  /// OPS per watt are in no record: there the power table decides.
  bool has_value(const RunDigest& run) const {
    if (ranking_.key == RankKey::ops_per_watt) return tables_.power.contains(run.run_id);
    return run.number(metric_of(ranking_.key)).value_or(0) > 0;
  }

  RankingReport& ranking_;
  const RankTables& tables_;
  using ListName = std::pair<std::string, std::string>;  // workload and basis of its errors
  std::map<ListName, std::map<std::string, std::vector<const RunDigest*>>> repetitions_;
};

}  // namespace

RankKey parse_rank_key(const std::string& name) { return parse_name(rank_keys, "order", name); }
const char* metric_of(RankKey key) { return row_of(rank_keys, key).metric; }
const char* to_string(RankKey key) { return name_of(rank_keys, key); }

bool RankFilter::takes(const RunDigest& run, const AvailabilityTable& table) const {
  const bool mixed = run.devices.size() > 1;
  const std::uint64_t devices = run.device_count();
  const auto said = table.find(run.run_id);
  const bool by_nodes = fewest_nodes > 0 || most_nodes < UINT64_MAX;
  const bool known_nodes = run.nodes > 0 && run.nodes >= fewest_nodes && run.nodes <= most_nodes;
  return (!by_nodes || known_nodes) &&
         (!availability || (said != table.end() && said->second == *availability)) &&
         (kind.empty() || mixed == (kind == "heterogeneous")) &&
         (precision.empty() || run.precision == precision) &&
         (workload.empty() || run.workload == workload) && devices >= fewest_devices &&
         devices <= most_devices;
}

RankingReport rank_runs(RunSet runs, RankKey key, const RankFilter& filter,
                        const RankTables& tables) {
  RankingReport ranking;
  ranking.key = key;
  ranking.runs = std::move(runs);
  Sieve sieve(ranking, tables);
  // A record's own words are filtered only when its journal has said so too.
  const auto doubts = hold_to_journals(ranking.runs.runs);
  for (std::size_t i = 0; i < doubts.size(); ++i) {
    const RunDigest& run = ranking.runs.runs[i];
    if (filter.takes(run, tables.availability)) {
      sieve.take(run, doubts[i]);
    } else {
      ++ranking.filtered;
    }
  }
  for (const auto* left_out : {&ranking.runs.skipped, &ranking.runs.suites}) {
    for (const SkippedEntry& skipped_entry : *left_out) {
      ranking.excluded.push_back({skipped_entry.path.string(), "", "", {skipped_entry.reason}});
    }
  }
  sieve.make_lists();
  return ranking;
}

}  // namespace heteroperf
