// Tells what a digest's fields say together. The leaves of a record are its single values by their
// paths, such as /config/batch/micro_batch. The *set-up* of a run is what was chosen before it
// started: its configuration, the plan that came out of it, and the devices. Two runs with one
// set-up are repetitions of one measurement. Settings that change no measurement, such as the seed,
// the folder and the logs, are left out, because repetitions have to differ in the seed and in the
// folder.
//
// The machines of a run are told so that runs are put on one scaling curve or in one list of
// repetitions only when the hardware is the same. The description is made of the CPU and of the
// models of GPUs in their proportions: 2 and 4 GPUs of one model are the same kind of machine at
// two scales. The host's name is used only when the CPU is not known, as the hosts of one cluster
// have different names and equal hardware.

#include "results/comparison/run_digest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

constexpr std::array without_effect{"/config/_format", "/config/_version",  "/config/seed",
                                    "/config/out",     "/config/rank_logs", "/config/trace"};

RecordLeaves leaves_below(const RunDigest& run, const std::string& section) {
  RecordLeaves leaves;
  for (auto leaf = run.environment.lower_bound(section); leaf != run.environment.end(); ++leaf) {
    const std::string& path = leaf->first;
    if (!path.starts_with(section)) break;
    if (!is_without_effect(path)) leaves.insert(*leaf);
  }
  return leaves;
}

/// Empty where the machine did not tell.
std::string leaf(const RunDigest& run, const char* path) {
  const std::string text = run.leaf(path);
  return text == "unavailable" ? std::string() : text;
}

/// All three parts must be known, else the text would be equal for unlike machines.
std::string host_text(const RunDigest& run) {
  const std::string model = leaf(run, "/system/cpu/model"),
                    sockets = leaf(run, "/system/cpu/sockets"),
                    cpus = leaf(run, "/system/cpu/logical_cpus");
  if (model.empty() || sockets.empty() || cpus.empty()) return run.host;
  return fmt::format("{} x {}, {} CPUs", sockets, model, cpus);
}

/// "NVIDIA H200"; of several models "1 NVIDIA A100 to 3 NVIDIA H200".
std::string gpu_proportions(const RunDigest& run) {
  if (run.gpus.size() == 1) return run.gpus.begin()->first;
  std::uint64_t common = 0;
  for (const auto& [model, ranks] : run.gpus) common = std::gcd(common, ranks);
  return joined(run.gpus, " to ", [&](const auto& gpu) {
    return fmt::format("{} {}", gpu.second / common, gpu.first);
  });
}

}  // namespace

const std::optional<MetricValue>& RunDigest::metric(std::string_view name) const {
  static const std::optional<MetricValue> absent;
  if (!is_operator_metric(name)) return metrics[metric_place(name)];
  const auto place = operator_metrics.find(name);
  return place == operator_metrics.end() ? absent : place->second;
}

std::optional<double> RunDigest::number(std::string_view name) const {
  const auto& value = metric(name);
  return value ? value->number : std::nullopt;
}

std::optional<Interval> RunDigest::ci95(std::string_view name) const {
  const auto& value = metric(name);
  return value ? value->ci95 : std::nullopt;
}

std::string RunDigest::key_text() const {
  std::string text;
  for (const KeyField& field : key) text += field.name + '=' + field.value + '\n';
  return text;
}

std::string RunDigest::unit_of(const RecordMetric& metric) const {
  const bool by_workload = metric.unit == Unit::work_per_second && !unit.empty();
  return by_workload ? unit : short_name(metric.unit);
}

std::uint64_t RunDigest::device_count() const {
  std::uint64_t count = 0;
  for (const DeviceShare& share : devices) count += share.count;
  return count;
}

std::map<std::string, std::uint64_t> RunDigest::class_counts() const {
  std::map<std::string, std::uint64_t> counts;
  for (const DeviceShare& share : devices) counts[share.device_class] += share.count;
  return counts;
}

std::string leaf_at(const RecordLeaves& leaves, const std::string& path) {
  const auto place = leaves.find(path);
  return place == leaves.end() ? std::string() : place->second;
}

std::string RunDigest::gpus_text() const {
  return joined(gpus, " + ",
                [](const auto& gpu) { return fmt::format("{} x {}", gpu.second, gpu.first); });
}

// ---------------------------------------------------------------- leaves

bool is_without_effect(const std::string& path) {
  return std::ranges::find(without_effect, path) != without_effect.end();
}

RecordLeaves configuration_of(const RunDigest& run) { return leaves_below(run, "/config/"); }

RecordLeaves setup_of(const RunDigest& run) {
  RecordLeaves setup = configuration_of(run);
  setup.merge(leaves_below(run, "/plan_summary"));
  setup.merge(leaves_below(run, "/scale/"));
  return setup;
}

std::set<std::string> differing_paths(const std::vector<const RecordLeaves*>& all) {
  std::set<std::string> paths;
  for (const RecordLeaves* leaves : all) {
    for (const auto& [path, value] : *leaves) {
      const auto differs = [&, &path = path, &value = value](const RecordLeaves* others) {
        return leaf_at(*others, path) != value;
      };
      if (std::ranges::any_of(all, differs)) paths.insert(path);
    }
  }
  return paths;
}

std::vector<EnvironmentDifference> leaf_differences(const RecordLeaves& a, const RecordLeaves& b) {
  std::vector<EnvironmentDifference> differences;
  for (const std::string& path : differing_paths({&a, &b})) {
    differences.push_back({path, leaf_at(a, path), leaf_at(b, path)});
  }
  return differences;
}

std::vector<EnvironmentDifference> environment_differences(const RunDigest& a, const RunDigest& b) {
  return leaf_differences(a.environment, b.environment);
}

// ---------------------------------------------------------------- machines

std::string machines_text(const RunDigest& run) {
  const std::string host = host_text(run), gpus = gpu_proportions(run);
  return host + (host.empty() || gpus.empty() ? "" : ", ") + gpus;
}

std::string scaled_machines(const RunDigest& run) { return run.emulated ? "" : machines_text(run); }

std::string gpus_beside_classes(const RunDigest& run) {
  const auto is_class = [&](const auto& gpu) {
    const auto& classes = run.devices;
    return std::ranges::find(classes, gpu.first, &DeviceShare::device_class) != classes.end();
  };
  if (std::ranges::all_of(run.gpus, is_class)) return {};
  return fmt::format(" ({})", run.gpus_text());
}

/// The class of a device is a name that somebody chose in a cluster description, and it need not
/// say which hardware it was.
std::string devices_text(const RunDigest& run, const std::string& times) {
  const std::string classes = joined(run.devices, " + ", [&](const DeviceShare& share) {
    return fmt::format("{} {} {}", share.count, times, share.device_class);
  });
  return classes + gpus_beside_classes(run);
}

}  // namespace heteroperf
