#include "results/ranking/ranking.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "metrics/log_ratio.hpp"
#include "metrics/name_table.hpp"
#include "metrics/statistics.hpp"

namespace heteroperf {
namespace {

constexpr double coverage = 0.95;

constexpr Named<RankKey> key_names[] = {{RankKey::ops, "ops"},
                                        {RankKey::ops_per_device, "ops_per_device"},
                                        {RankKey::ops_per_peak, "ops_per_peak"},
                                        {RankKey::ops_per_watt, "ops_per_watt"},
                                        {RankKey::regulated, "regulated"},
                                        {RankKey::hsr, "hsr"}};

std::string classes_of(const RunDigest& run) {
  std::set<std::string> names;
  for (const DeviceShare& share : run.devices) names.insert(share.device_class);
  return fmt::format("{}", fmt::join(names, "+"));
}

std::vector<std::string> why_excluded(const RunDigest& run,
                                      const std::optional<std::string>& edited) {
  std::vector<std::string> reasons;
  if (!has_journal(run)) {
    reasons.push_back("no journal beside it: its numbers cannot be computed again");
  } else if (edited) {
    reasons.push_back("not what was measured: " + *edited);
  }
  if (run.status != "complete") reasons.push_back("status " + run.status);
  if (run.severity != "closed") reasons.push_back("class " + run.severity);
  if (!run.rankable && run.severity == "closed") reasons.push_back("not rankable");
  reasons.insert(reasons.end(), run.reasons.begin(), run.reasons.end());
  if (!run.ops_per_second || !(*run.ops_per_second > 0)) reasons.push_back("no score");
  return reasons;
}

/// What makes two runs repetitions of one.
std::string repetition_key(const RunDigest& run) {
  return run.key_text() + run.host + '\n' + run.program_version + '\n' + run.git_commit;
}

std::optional<double> value_by(RankKey key, const RunDigest& run, double ops) {
  switch (key) {
    case RankKey::ops:
      return ops;
    case RankKey::ops_per_device:
      return ops / static_cast<double>(std::max<std::uint64_t>(1, run.device_count()));
    case RankKey::ops_per_peak:
      return run.utilization;
    case RankKey::ops_per_watt:
      return std::nullopt;  // no record has it: entries get it from their table
    case RankKey::regulated:
      return run.regulated_score;
    case RankKey::hsr:
      return run.hsr;
  }
  return std::nullopt;
}

/// Of repetitions that were all measured.
std::optional<MeasuredPower> power_of(const std::vector<const RunDigest*>& repeats,
                                      const PowerTable& table) {
  MeasuredPower power{0, PowerLevel::l3};
  for (const RunDigest* run : repeats) {
    const auto found = table.find(run->run_id);
    if (found == table.end()) return std::nullopt;
    power.watts += found->second.watts / static_cast<double>(repeats.size());
    power.level = std::min(power.level, found->second.level);
  }
  return power;
}

std::optional<SystemAvailability> availability_of(const std::vector<const RunDigest*>& repeats,
                                                  const AvailabilityTable& table) {
  SystemAvailability least = SystemAvailability::available;
  for (const RunDigest* run : repeats) {
    const auto found = table.find(run->run_id);
    if (found == table.end()) return std::nullopt;
    least = std::max(least, found->second);
  }
  return least;
}

RankEntry entry_of(const std::vector<const RunDigest*>& repeats, RankKey key,
                   const RankTables& tables) {
  RankEntry entry;
  entry.run = repeats.back();
  entry.name = entry.run->host.empty() ? entry.run->run_id : entry.run->host;
  entry.repeats = repeats.size();
  entry.heterogeneous = entry.run->devices.size() > 1;
  std::vector<double> logs;
  for (const RunDigest* run : repeats) logs.push_back(std::log(*run->ops_per_second));
  entry.ops_per_second = std::exp(mean(logs));
  entry.ops_ci95 = entry.run->ops_ci95;
  if (logs.size() >= 2) {
    const Interval interval = paired_log_ratio(logs).interval(coverage);
    entry.ops_ci95 = Interval{std::exp(interval.low), std::exp(interval.high)};
  }
  entry.power = power_of(repeats, tables.power);
  entry.availability = availability_of(repeats, tables.availability);
  if (entry.power) entry.ops_per_watt = entry.ops_per_second / entry.power->watts;
  const auto by_record = value_by(key, *entry.run, entry.ops_per_second);
  entry.by = (key == RankKey::ops_per_watt ? entry.ops_per_watt : by_record).value_or(0);
  return entry;
}

/// Half width of what it is ordered by; all but HSR are OPS times something without an error.
double half_width(const RankEntry& entry) {
  if (!entry.ops_ci95 || !(entry.ops_per_second > 0)) return 0;
  const double relative = (entry.ops_ci95->high - entry.ops_ci95->low) / 2 / entry.ops_per_second;
  return relative * entry.by;
}

bool goes_before(const RankEntry& a, const RankEntry& b) {
  if (a.by != b.by) return a.by > b.by;
  if (a.ops_per_watt && b.ops_per_watt && *a.ops_per_watt != *b.ops_per_watt) {
    return *a.ops_per_watt > *b.ops_per_watt;
  }
  const double peak_a = a.run->utilization.value_or(0), peak_b = b.run->utilization.value_or(0);
  if (peak_a != peak_b) return peak_a > peak_b;
  return std::tie(a.run->created_utc, a.run->run_id) < std::tie(b.run->created_utc, b.run->run_id);
}

void give_ranks(std::vector<RankEntry>& entries) {
  std::stable_sort(entries.begin(), entries.end(), goes_before);
  std::size_t leader = 0;
  for (std::size_t i = 1; i < entries.size(); ++i) {
    const double apart = entries[leader].by - entries[i].by;
    if (apart > std::hypot(half_width(entries[leader]), half_width(entries[i]))) {
      leader = i;
    } else {
      entries[leader].shared = entries[i].shared = true;
    }
    entries[i].rank = leader + 1;
  }
}

void give_efficiency(std::vector<RankEntry>& entries) {
  struct Smallest {
    std::uint64_t devices;
    double per_device;
  };
  std::map<std::string, Smallest> smallest;
  const auto key_of = [](const RankEntry& entry) {
    return entry.run->size + '\n' + entry.run->precision + '\n' + classes_of(*entry.run);
  };
  const auto per_device = [](const RankEntry& entry) {
    return entry.ops_per_second / static_cast<double>(entry.run->device_count());
  };
  for (const RankEntry& entry : entries) {
    const std::uint64_t devices = entry.run->device_count();
    if (devices == 0) continue;
    const auto found = smallest.try_emplace(key_of(entry), Smallest{devices, 0}).first;
    if (devices > found->second.devices) continue;
    const bool smaller = devices < found->second.devices;
    const double best = smaller ? 0 : found->second.per_device;
    found->second = {devices, std::max(best, per_device(entry))};
  }
  for (RankEntry& entry : entries) {
    if (entry.run->device_count() == 0) continue;
    entry.scaling_efficiency = per_device(entry) / smallest.at(key_of(entry)).per_device;
  }
}

/// Sorts records into repetitions and those that may not be ranked.
class Sieve {
 public:
  Sieve(RankingReport& ranking, const RankTables& tables) : ranking_(ranking), tables_(tables) {}

  void take(const RunDigest& run, const std::optional<std::string>& edited) {
    std::vector<std::string> reasons = why_excluded(run, edited);
    if (reasons.empty() && !has_value(run)) {
      reasons.push_back(fmt::format("has no {}", to_string(ranking_.key)));
    }
    auto& repeats = repetitions_[run.workload][repetition_key(run)];
    for (const RunDigest* other : repeats) {
      if (!reasons.empty() || other->seed != run.seed) continue;
      reasons.push_back(fmt::format("repeats {} with the same seed {}: no independent repetition",
                                    other->run_id, run.seed));
    }
    if (reasons.empty()) {
      repeats.push_back(&run);
    } else {
      ranking_.excluded.push_back({run.record.string(), std::move(reasons)});
    }
  }

  void make_lists() {
    for (const auto& [workload, entries] : repetitions_) {
      RankList list{workload, {}};
      for (const auto& [key, repeats] : entries) {
        if (!repeats.empty()) list.entries.push_back(entry_of(repeats, ranking_.key, tables_));
      }
      give_ranks(list.entries);
      give_efficiency(list.entries);
      if (!list.entries.empty()) ranking_.lists.push_back(std::move(list));
    }
  }

 private:
  bool has_value(const RunDigest& run) const {
    if (ranking_.key == RankKey::ops_per_watt) return tables_.power.contains(run.run_id);
    return value_by(ranking_.key, run, 1).has_value();
  }

  RankingReport& ranking_;
  const RankTables& tables_;
  std::map<std::string, std::map<std::string, std::vector<const RunDigest*>>> repetitions_;
};

}  // namespace

RankKey parse_rank_key(const std::string& name) { return parse_name(key_names, "order", name); }
const char* to_string(RankKey key) { return name_of(key_names, key); }

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
  ranking.filtered = std::erase_if(
      runs.runs, [&](const RunDigest& run) { return !filter.takes(run, tables.availability); });
  ranking.runs = std::move(runs);
  Sieve sieve(ranking, tables);
  const auto edited = contradictions(ranking.runs.runs);
  for (std::size_t i = 0; i < edited.size(); ++i) sieve.take(ranking.runs.runs[i], edited[i]);
  for (const SkippedEntry& one : ranking.runs.skipped) {
    ranking.excluded.push_back({one.path.string(), {one.reason}});
  }
  sieve.make_lists();
  return ranking;
}

}  // namespace heteroperf
