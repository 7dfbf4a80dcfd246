// Answers from the kernel's own files whether others used the CPUs of a run. The busy time of the
// watched CPUs, minus what the run's processes took, is the load of others. Steal counts as busy: a
// hypervisor that gives a CPU away disturbs a run as a neighbour does. Idle time and waiting for
// disks do not count, and guest time is part of user time already.
//
// Heat is counted per CPU; throttling by a quota belongs to the control group of this process
// (unified hierarchy, version 2). Any file may be missing in a container, so every number is
// optional, and a sum over CPUs exists only where all of them have it.
#include "suite/watch/host_load.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <sstream>
#include <string>

#include "metrics/base/quantity.hpp"
#include "runners/cluster/system_files.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
constexpr double microseconds_per_second = 1e6, milliseconds_per_second = 1e3;

/// Ticks of one line "cpu3 user nice system idle iowait irq softirq steal …".
std::optional<double> busy_ticks(std::istringstream& line) {
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  if (!(line >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal)) return {};
  return user + nice + system + irq + softirq + steal;
}

std::optional<double> busy_seconds(const CpuSet& cpus, const SystemFiles& files) {
  const long ticks_per_second = sysconf(_SC_CLK_TCK);
  if (ticks_per_second <= 0) return std::nullopt;
  std::set<std::string> wanted;
  for (const int cpu : cpus) wanted.insert(fmt::format("cpu{}", cpu));
  std::istringstream stat(files.text("proc/stat").value.value_or(""));
  double ticks = 0;
  for (std::string text; !wanted.empty() && std::getline(stat, text);) {
    std::istringstream line(text);
    std::string name;
    line >> name;
    if (wanted.erase(name) == 0) continue;
    const auto busy = busy_ticks(line);
    if (!busy) return std::nullopt;
    ticks += *busy;
  }
  // A CPU that is not listed is offline, or hidden from this container.
  if (cpus.empty() || !wanted.empty()) return std::nullopt;
  return ticks / static_cast<double>(ticks_per_second);
}

/// The sum over the CPUs of a file of each; nothing where any lacks it.
std::optional<std::uint64_t> sum_of(const CpuSet& cpus, const SystemFiles& files,
                                    const char* name) {
  std::uint64_t sum = 0;
  for (const int cpu : cpus) {
    const auto value =
        files.integer(fmt::format("sys/devices/system/cpu/cpu{}/thermal_throttle/{}", cpu, name));
    if (!value) return std::nullopt;
    sum += static_cast<std::uint64_t>(*value);
  }
  return cpus.empty() ? std::nullopt : std::optional(sum);
}

/// The first number of a text.
std::optional<double> number_in(const Observed<std::string>& text) {
  std::istringstream words(text.value.value_or(""));
  double value = 0;
  if (!(words >> value)) return std::nullopt;
  return value;
}

std::optional<double> quota_throttled_seconds(const SystemFiles& files) {
  // The line "0::/path" names the process's group in the unified hierarchy.
  const auto group = files.field("proc/self/cgroup", "0", ':');
  const std::string path = group ? group.value->substr(1) : "";
  const auto us =
      number_in(files.field(fmt::format("sys/fs/cgroup{}/cpu.stat", path), "throttled_usec", ' '));
  if (!us) return std::nullopt;
  return *us / microseconds_per_second;
}

/// After minus before; a counter that was reset counts as nothing.
template <class T>
std::optional<T> difference(const std::optional<T>& before, const std::optional<T>& after) {
  if (!before || !after) return std::nullopt;
  return *after > *before ? *after - *before : T{};
}

double time_of_s(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * nanosecond;
}

}  // namespace

HostCounters read_host_counters(const CpuSet& cpus, const fs::path& root) {
  const SystemFiles files(root);
  HostCounters counters;
  counters.busy_s = busy_seconds(cpus, files);
  counters.thermal_events = sum_of(cpus, files, "core_throttle_count");
  if (const auto ms = sum_of(cpus, files, "core_throttle_total_time_ms")) {
    counters.thermal_throttled_s = static_cast<double>(*ms) / milliseconds_per_second;
  }
  counters.quota_throttled_s = quota_throttled_seconds(files);
  counters.load = number_in(files.text("proc/loadavg"));  // of the last minute, runnable or waiting
  return counters;
}

double process_cpu_s() { return time_of_s(CLOCK_PROCESS_CPUTIME_ID); }
double thread_cpu_s() { return time_of_s(CLOCK_THREAD_CPUTIME_ID); }

std::optional<double> process_cpu_s(std::int64_t pid, const fs::path& root) {
  const long ticks_per_second = sysconf(_SC_CLK_TCK);
  const std::string text =
      SystemFiles(root).text(fmt::format("proc/{}/stat", pid)).value.value_or("");
  // The second field, the program's name in parentheses, may hold anything; eleven fields follow
  // before utime and stime.
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos || ticks_per_second <= 0) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 0; field < 11; ++field) fields >> skipped;
  double user = 0, system = 0;
  if (!(fields >> user >> system)) return std::nullopt;
  return (user + system) / static_cast<double>(ticks_per_second);
}

std::optional<HostLoadEvent> host_load_between(const HostCounters& before,
                                               const HostCounters& after, double seconds,
                                               std::size_t cpus, double own_cpu_s) {
  const auto busy_s = difference(before.busy_s, after.busy_s);
  // Without busy times there is nothing to tell; the other numbers only go with them.
  if (!busy_s || !(seconds > 0)) return std::nullopt;
  HostLoadEvent event;
  event.seconds = seconds;
  event.cpus = cpus;
  // Ticks of both sides are rounded, so the difference may fall a little below 0.
  event.other_cpus = std::max(0.0, *busy_s - own_cpu_s) / seconds;
  event.thermal_events = difference(before.thermal_events, after.thermal_events);
  event.thermal_throttled_s = difference(before.thermal_throttled_s, after.thermal_throttled_s);
  event.quota_throttled_s = difference(before.quota_throttled_s, after.quota_throttled_s);
  event.load_before = before.load;
  event.load_after = after.load;
  return event;
}

}  // namespace heteroperf
