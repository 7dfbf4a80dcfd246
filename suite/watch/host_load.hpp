#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "results/journal/events.hpp"
#include "runners/cluster/cpu_set.hpp"

namespace heteroperf {

/// Counts of the kernel on some logical CPUs since it started.
struct HostCounters {
  std::optional<double> busy_s;  ///< outside idle and waiting for disks, summed; steal counts
  std::optional<std::uint64_t> thermal_events;
  std::optional<double> thermal_throttled_s;  ///< summed
  std::optional<double> quota_throttled_s;    ///< throttling of this process's control group
  std::optional<double> load = {};            ///< mean over a minute, of the whole host
};

/// Reads /proc/stat and /proc/loadavg (proc(5)), thermal_throttle of each CPU and the control
/// group's cpu.stat below `root`. What is not there or not readable is absent.
HostCounters read_host_counters(const CpuSet& cpus, const std::filesystem::path& root = "/");

/// CPU time of this process, all threads, user and system.
double process_cpu_s();
/// The same of the thread that asks.
double thread_cpu_s();
/// CPU time of another process on this host (proc(5), /proc/PID/stat); nothing where it cannot be
/// seen.
std::optional<double> process_cpu_s(std::int64_t pid, const std::filesystem::path& root = "/");

/// The event of two readings `seconds` apart. `own_cpu_s`: what the run's own processes on this
/// host took of it. Nothing where the kernel does not tell how busy the CPUs are.
std::optional<HostLoadEvent> host_load_between(const HostCounters& before,
                                               const HostCounters& after, double seconds,
                                               std::size_t cpus, double own_cpu_s);

}  // namespace heteroperf
