// Makes one entry of a ranking out of the repetitions of a run, which have one set-up and different
// seeds. Rates are averaged geometrically, since they are ratios and one lucky run then weighs
// less; the interval is that of Student's t on the logarithms, from run to run. A single run has
// only the interval of its own throughput over time, which is narrower than runs differ, and the
// entry says so in `basis`. A number that one repetition lacks is absent from the entry: a mean
// over a part of the runs would favour those who leave out bad ones.

#include "results/ranking/ranking.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/log_ratio.hpp"
#include "metrics/statistics.hpp"
#include "results/comparison/journal_memory.hpp"

namespace heteroperf {
namespace {

using Repeats = std::vector<const RunDigest*>;

/// The mean power of repetitions that were all measured, with the worst of their levels.
std::optional<MeasuredPower> power_of(const Repeats& repeats, const PowerTable& table) {
  MeasuredPower power{0, PowerLevel::l3};
  for (const RunDigest* run : repeats) {
    const auto place = table.find(run->run_id);
    if (place == table.end()) return std::nullopt;
    power.watts += place->second.watts / static_cast<double>(repeats.size());
    power.level = std::min(power.level, place->second.level);
  }
  return power;
}

/// The least available of all repetitions; nothing where the table lacks one of them.
std::optional<SystemAvailability> availability_of(const Repeats& repeats,
                                                  const AvailabilityTable& table) {
  SystemAvailability least = SystemAvailability::available;
  for (const RunDigest* run : repeats) {
    const auto place = table.find(run->run_id);
    if (place == table.end()) return std::nullopt;
    least = std::max(least, place->second);
  }
  return least;
}

/// A metric of all repetitions, or an empty list where one lacks it.
std::vector<double> numbers_of(const Repeats& repeats, const char* metric) {
  std::vector<double> numbers;
  for (const RunDigest* run : repeats) {
    const auto value = run->number(metric);
    if (!value) return {};
    numbers.push_back(*value);
  }
  return numbers;
}

bool all_positive(const std::vector<double>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](double number) { return number > 0; });
}

std::vector<double> logs_of(const std::vector<double>& numbers) {
  std::vector<double> logs;
  for (const double number : numbers) logs.push_back(std::log(number));
  return logs;
}

/// The geometric mean where all numbers are above 0, as OPS are; else the arithmetic one.
std::optional<double> mean_of(const Repeats& repeats, const char* metric) {
  const std::vector<double> numbers = numbers_of(repeats, metric);
  if (numbers.empty()) return std::nullopt;
  if (numbers.size() == 1) return numbers.front();
  return all_positive(numbers) ? std::exp(mean(logs_of(numbers))) : mean(numbers);
}

/// Half width of the 95 % interval of the geometric mean, as a difference of logarithms; nothing of
/// a single run, which has no spread.
std::optional<double> run_to_run(const Repeats& repeats, const char* metric) {
  const std::vector<double> numbers = numbers_of(repeats, metric);
  if (numbers.size() < 2 || !all_positive(numbers)) return std::nullopt;
  return paired_log_ratio(logs_of(numbers)).half_width(interval_coverage);
}

/// The interval of OPS: run to run where there are repetitions, else the one that the run has
/// itself.
void give_interval(const Repeats& repeats, RankEntry& entry) {
  if (const auto half = run_to_run(repeats, "ops_per_second")) {
    entry.basis = IntervalBasis::runs;
    entry.ops_ci95 =
        Interval{entry.ops_per_second * std::exp(-*half), entry.ops_per_second * std::exp(*half)};
    return;
  }
  const auto within = entry.run->ci95("ops_per_second");
  if (!within || !(within->low > 0)) return;
  entry.basis = IntervalBasis::within_runs;
  entry.ops_ci95 = within;
}

/// Gives the value that the entry is ordered by and half of its interval. A single run has no
/// interval but that of OPS, which serves for the other keys as well: each of them is OPS times a
/// factor.
void give_order(const Repeats& repeats, RankKey key, RankEntry& entry) {
  const auto devices = static_cast<double>(std::max<std::uint64_t>(1, entry.run->device_count()));
  if (key == RankKey::ops_per_watt) {
    entry.by = entry.ops_per_watt.value_or(0);
  } else {
    entry.by = mean_of(repeats, metric_of(key)).value_or(0);
    if (key == RankKey::ops_per_device) entry.by /= devices;
  }
  if (entry.basis == IntervalBasis::runs)
    entry.log_half_width = run_to_run(repeats, metric_of(key));
  if (entry.basis == IntervalBasis::within_runs)
    entry.log_half_width = std::log(entry.ops_ci95->high / entry.ops_ci95->low) / 2;
}

}  // namespace

RankEntry make_entry(const Repeats& repeats, RankKey key, const RankTables& tables) {
  RankEntry entry;
  entry.runs = repeats;
  entry.run = repeats.back();
  entry.name = entry.run->host.empty() ? entry.run->run_id : entry.run->host;
  entry.heterogeneous = entry.run->devices.size() > 1;
  entry.ops_per_second = *mean_of(repeats, "ops_per_second");
  entry.ops_per_peak = mean_of(repeats, "utilization");
  entry.regulated_score = mean_of(repeats, "regulated_score");
  entry.hsr = mean_of(repeats, "hsr");
  if (const auto quality = mean_of(repeats, "quality")) {
    entry.quality = fmt::format("{} {:.4g}", entry.run->quality_name, *quality);
  }
  give_interval(repeats, entry);
  entry.power = power_of(repeats, tables.power);
  entry.availability = availability_of(repeats, tables.availability);
  if (entry.power) entry.ops_per_watt = entry.ops_per_second / entry.power->watts;
  give_order(repeats, key, entry);
  entry.replayed = std::all_of(repeats.begin(), repeats.end(), [](const RunDigest* run) {
    return known_finding(JournalFinding::replay, run->journal_sha256).has_value();
  });
  return entry;
}

}  // namespace heteroperf
