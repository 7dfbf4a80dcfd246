// A scaling curve holds runs of one kind at several numbers of devices against the smallest of
// them. The efficiency of a scale is its rate per device over that of the base. Only scales whose
// ranks have equally many threads belong to one curve: a rank with twice the threads is another
// device. Where no two scales have equally many, the machine was divided among more and more ranks;
// then a speed-up makes sense and an efficiency per device does not, and the curve is *divided*.
//
// Repetitions are paired by their seed: in a sweep they run next to each other in time, so a slow
// drift of the machine cancels out in the ratio.

#include "results/scaling/scale_curve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "metrics/log_ratio.hpp"
#include "metrics/statistics.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

/// The number of different device counts among some members.
std::size_t scales_of(const std::vector<std::size_t>& part, const std::vector<ScaleMember>& all) {
  std::set<std::uint64_t> devices;
  for (const std::size_t member : part) devices.insert(all[member].devices);
  return devices.size();
}

/// The runs' values by their seed and, among several runs with that seed, by their place: the
/// second run of a seed is paired with the second one of the other side.
std::map<std::pair<std::uint64_t, std::size_t>, double> by_seed(const Repetitions& runs,
                                                                const std::vector<double>& logs) {
  std::map<std::pair<std::uint64_t, std::size_t>, double> values;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::size_t which = 0;
    while (values.contains({runs[i]->seed, which})) ++which;
    values[{runs[i]->seed, which}] = logs[i];
  }
  return values;
}

/// The logarithm of the rate per device for each run.
std::vector<double> logs_per_device(const Repetitions& runs, RunRate rate) {
  std::vector<double> logs;
  for (const RunDigest* run : runs) {
    const auto devices = std::max<std::uint64_t>(1, run->device_count());
    logs.push_back(std::log(rate(*run) / static_cast<double>(devices)));
  }
  return logs;
}

}  // namespace

RepeatedRate repeated_rate(const std::vector<double>& values, const std::optional<Interval>& ci95) {
  std::vector<double> logs;
  for (const double value : values) logs.push_back(std::log(value));
  if (logs.size() < 2) return {values.front(), ci95};
  return {std::exp(mean(logs)), exponential(paired_log_ratio(logs).interval(interval_coverage))};
}

RepeatedRate efficiency_against(const Repetitions& base, const Repetitions& runs, RunRate rate) {
  const std::vector<double> base_logs = logs_per_device(base, rate),
                            logs = logs_per_device(runs, rate);
  const auto of_base = by_seed(base, base_logs);
  std::vector<double> differences;
  for (const auto& [seed, log] : by_seed(runs, logs)) {
    const auto same_seed = of_base.find(seed);
    if (same_seed != of_base.end()) differences.push_back(log - same_seed->second);
  }
  // A single pair, or none, gives the ratio of the means and no interval.
  if (differences.size() < 2) return {std::exp(mean(logs) - mean(base_logs)), std::nullopt};
  const LogRatio ratio = paired_log_ratio(differences);
  return {std::exp(ratio.mean), exponential(ratio.interval(interval_coverage))};
}

std::vector<ScaleCurve> scale_curves(const std::vector<ScaleMember>& members) {
  std::map<std::string, std::vector<std::size_t>> parts;
  ScaleCurve all{{}, true};
  for (std::size_t i = 0; i < members.size(); ++i) {
    parts[members[i].threads].push_back(i);
    all.members.push_back(i);
  }
  if (scales_of(all.members, members) < 2) return {};
  std::vector<ScaleCurve> curves;
  for (const auto& [threads, part] : parts) {
    if (scales_of(part, members) > 1) curves.push_back({part, false});
  }
  // No two scales have equally many threads, so all of them form the one divided curve.
  if (curves.empty()) curves.push_back(std::move(all));
  for (ScaleCurve& curve : curves) {
    std::ranges::stable_sort(curve.members, {},
                             [&](std::size_t member) { return members[member].devices; });
  }
  return curves;
}

std::string threads_text(const RunDigest& run) {
  const auto text_of = [](const DeviceShare& share) { return std::to_string(share.threads); };
  const auto unlike = [&](const DeviceShare& share) {
    return share.threads != run.devices.front().threads;
  };
  if (std::any_of(run.devices.begin(), run.devices.end(), unlike)) {
    return joined(run.devices, "+", text_of);
  }
  return run.devices.empty() ? "1" : text_of(run.devices.front());
}

/// Ranks that share CPUs wait for each other, which looks like bad scaling; the text is the hint.
/// Emulated devices take modelled time and cannot crowd.
std::string crowding_text(const RunDigest& run) {
  if (run.emulated || run.cores == 0) return "";
  std::uint64_t threads = 0;
  for (const DeviceShare& share : run.devices) threads += share.count * share.threads;
  if (threads <= run.cores) return "";
  return fmt::format("{} threads on {}", threads, plural(run.cores, "CPU"));
}

}  // namespace heteroperf
