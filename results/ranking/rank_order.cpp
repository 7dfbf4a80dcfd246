// Sorts entries and gives ranks that promise no more than the measurements hold. An entry is behind
// another only when the difference is significant: larger than both half widths of their 95 %
// intervals added in quadrature and, where a single run is among the two, larger than what single
// runs differ by without a cause. An entry that is not behind the *leader*, the first one of the
// current rank, shares that rank.
//
// The second half of the file computes the scaling efficiency: OPS per device against the smallest
// entry of the same system.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "results/comparison/run_digest.hpp"
#include "results/ranking/ranking.hpp"

namespace heteroperf {
namespace {

/// Equal values are ordered by OPS per watt, by OPS per peak, then by date: who measured first goes
/// first.
bool goes_before(const RankEntry& a, const RankEntry& b) {
  if (a.by != b.by) return a.by > b.by;
  if (a.ops_per_watt && b.ops_per_watt && *a.ops_per_watt != *b.ops_per_watt) {
    return *a.ops_per_watt > *b.ops_per_watt;
  }
  const double peak_a = a.ops_per_peak.value_or(0), peak_b = b.ops_per_peak.value_or(0);
  if (peak_a != peak_b) return peak_a > peak_b;
  return a.run->by_date() < b.run->by_date();
}

/// True when `later` is significantly behind. A single run's own interval is narrower than runs
/// differ, so it gets an allowance on top. Without an interval nothing can be told apart.
bool is_behind(const RankEntry& leader, const RankEntry& later) {
  if (!leader.log_half_width || !later.log_half_width) return false;
  const bool repeated = leader.basis == IntervalBasis::runs && later.basis == IntervalBasis::runs;
  const double allowance = repeated ? 0 : std::log1p(single_run_noise);
  const double apart = std::log(leader.by / later.by);
  return apart - std::hypot(*leader.log_half_width, *later.log_half_width) > allowance;
}

// ---------------------------------------------------------------- scaling

/// The classes in their proportions with the threads of a rank, as "1 gpu of 1, 2 cpu of 4": equal
/// for the same mixture at any scale. The parts are sorted, as records list classes in any order.
std::string mixture_of(const RunDigest& run) {
  std::uint64_t common = 0;
  for (const DeviceShare& share : run.devices) common = std::gcd(common, share.count);
  std::vector<std::string> parts;
  for (const DeviceShare& share : run.devices) {
    parts.push_back(fmt::format("{} {} of {}", common > 0 ? share.count / common : 0,
                                share.device_class, share.threads));
  }
  std::sort(parts.begin(), parts.end());
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// Entries with one such text are one system at different scales.
std::string system_of(const RunDigest& run) {
  return fmt::format("{}\n{}\n{}\n{}", run.size, run.precision, mixture_of(run),
                     machines_text(run));
}

double per_device(const RankEntry& entry) {
  return entry.ops_per_second / static_cast<double>(entry.run->device_count());
}

/// True when both runs have as many samples per step (strong scaling), or per device and step (weak
/// scaling), or when neither has a fixed number.
bool same_work(const RunDigest& a, const RunDigest& b) {
  if (!a.samples_per_step || !b.samples_per_step) return a.samples_per_step == b.samples_per_step;
  const auto samples_a = *a.samples_per_step, samples_b = *b.samples_per_step;
  return samples_a == samples_b || samples_a * b.device_count() == samples_b * a.device_count();
}

/// The base of an efficiency is the entry with the fewest devices and, among several, the one with
/// the most OPS per device, so that a badly chosen small run makes no large one look good.
bool is_better_base(const RankEntry& rank_entry, const RankEntry& entry) {
  const auto devices = rank_entry.run->device_count(), others = entry.run->device_count();
  return devices != others ? devices < others : per_device(rank_entry) > per_device(entry);
}

}  // namespace

void give_ranks(std::vector<RankEntry>& entries) {
  std::stable_sort(entries.begin(), entries.end(), goes_before);
  std::size_t first = 0;   // of the entries that share the rank
  std::size_t leader = 0;  // the first of them with an interval, else the first
  // A leader without an interval can be behind nobody and ahead of nobody, so the next entry takes
  // over as leader and the rank goes on.
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (is_behind(entries[leader], entries[i])) {
      first = leader = i;
    } else {
      entries[first].shared = entries[i].shared = true;
      if (!entries[leader].log_half_width) leader = i;
    }
    entries[i].rank = first + 1;
  }
}

void give_efficiency(std::vector<RankEntry>& entries) {
  std::map<std::string, std::vector<const RankEntry*>> systems;
  for (const RankEntry& entry : entries) {
    if (entry.run->device_count() > 0) systems[system_of(*entry.run)].push_back(&entry);
  }
  for (RankEntry& entry : entries) {
    const RankEntry* base = nullptr;
    for (const RankEntry* rank_entry : systems[system_of(*entry.run)]) {
      const bool smaller = rank_entry->run->device_count() < entry.run->device_count();
      if (!smaller || !same_work(*rank_entry->run, *entry.run)) continue;
      if (base == nullptr || is_better_base(*rank_entry, *base)) base = rank_entry;
    }
    if (base != nullptr) entry.scaling_efficiency = per_device(entry) / per_device(*base);
  }
}

}  // namespace heteroperf
