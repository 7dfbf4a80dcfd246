// Says on what machines a run ran, so that runs are put on one scaling curve or in one list of
// repetitions only when the hardware is the same. The description is made of the CPU and of the
// models of GPUs in their proportions: 2 and 4 GPUs of one model are the same kind of machine at
// two scales. The host's name is used only when the CPU is not known, as the hosts of one cluster
// have different names and equal hardware.

#include "results/comparison/run_digest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

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
