#include "runners/cluster/machine.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "runners/cluster/cgroup.hpp"

namespace heteroperf {
namespace {

using FactValue = std::variant<std::int64_t, double, std::string>;

enum class FactKind { text, integer, first_number, kernel_flags };

/// One row per detail. With a key, the value is a "key : value" line of the file.
struct FactSource {
  const char* name;
  FactKind kind;
  const char* path;
  const char* key = "";
};

constexpr std::array fact_sources = {
    FactSource{"system_vendor", FactKind::text, "sys/class/dmi/id/sys_vendor"},
    FactSource{"system_model", FactKind::text, "sys/class/dmi/id/product_name"},
    FactSource{"firmware_version", FactKind::text, "sys/class/dmi/id/bios_version"},
    FactSource{"microcode", FactKind::text, "proc/cpuinfo", "microcode"},
    FactSource{"cpu_flags", FactKind::text, "proc/cpuinfo", "flags"},
    FactSource{"smt", FactKind::text, "sys/devices/system/cpu/smt/control"},
    FactSource{"frequency_driver", FactKind::text,
               "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"},
    FactSource{"frequency_min_khz", FactKind::integer,
               "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_min_freq"},
    FactSource{"frequency_max_khz", FactKind::integer,
               "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"},
    FactSource{"intel_no_turbo", FactKind::integer, "sys/devices/system/cpu/intel_pstate/no_turbo"},
    FactSource{"boost", FactKind::integer, "sys/devices/system/cpu/cpufreq/boost"},
    FactSource{"isolated_cpus", FactKind::text, "sys/devices/system/cpu/isolated"},
    FactSource{"transparent_huge_pages", FactKind::text,
               "sys/kernel/mm/transparent_hugepage/enabled"},
    FactSource{"address_randomisation", FactKind::integer, "proc/sys/kernel/randomize_va_space"},
    FactSource{"numa_balancing", FactKind::integer, "proc/sys/kernel/numa_balancing"},
    FactSource{"clock_source", FactKind::text,
               "sys/devices/system/clocksource/clocksource0/current_clocksource"},
    FactSource{"kernel_flags", FactKind::kernel_flags, "proc/cmdline"},
    FactSource{"load_average_1min", FactKind::first_number, "proc/loadavg"},
    FactSource{"uptime_s", FactKind::first_number, "proc/uptime"},
};

Observed<FactValue> as_number(const Observed<std::string>& text) {
  if (!text) return Observed<FactValue>::none(text);
  double number = 0;
  const std::string word = split_words(*text).front();
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error == std::errc()) return Observed<FactValue>::of(number, text.source);
  return Observed<FactValue>::none(text.source, "\"" + word + "\" is not a number");
}

/// Only flags that change speed: the rest of a command line is the site's own business.
Observed<FactValue> speed_flags(const Observed<std::string>& text) {
  constexpr std::array<std::string_view, 9> names = {
      "isolcpus",  "mitigations", "nohz_full", "rcu_nocbs",   "transparent_hugepage",
      "hugepages", "idle",        "nosmt",     "intel_pstate"};
  if (!text) return Observed<FactValue>::none(text);
  std::string kept;
  for (const std::string& word : split_words(*text)) {
    const std::string name = word.substr(0, word.find('='));
    if (std::ranges::find(names, name) != names.end()) kept += (kept.empty() ? "" : " ") + word;
  }
  if (kept.empty()) return Observed<FactValue>::none(text.source, "no flag that changes speed");
  return Observed<FactValue>::of(kept, text.source);
}

Observed<FactValue> read_fact(const SystemFiles& files, const FactSource& row) {
  if (row.kind == FactKind::integer) {
    const auto number = files.integer(row.path);
    if (!number) return Observed<FactValue>::none(number);
    return Observed<FactValue>::of(static_cast<std::int64_t>(*number), number.source);
  }
  const auto text = *row.key != 0 ? files.field(row.path, row.key, ':') : files.text(row.path);
  if (row.kind == FactKind::first_number) return as_number(text);
  if (row.kind == FactKind::kernel_flags) return speed_flags(text);
  if (!text) return Observed<FactValue>::none(text);
  return Observed<FactValue>::of(*text, text.source);
}

Observed<std::string> read_host() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0 && name[0] != 0) {
    return Observed<std::string>::of(name.data(), "gethostname");
  }
  return Observed<std::string>::none("gethostname", std::strerror(errno));
}

Observed<std::string> read_kernel() {
  utsname names{};
  if (uname(&names) != 0) return Observed<std::string>::none("uname", std::strerror(errno));
  return Observed<std::string>::of(
      std::string(names.sysname) + ' ' + names.release + ' ' + names.machine, "uname");
}

Observed<std::string> read_container(const SystemFiles& files) {
  struct Mark {
    const char* path;
    const char* name;
  };
  constexpr std::array marks = {Mark{".dockerenv", "docker"}, Mark{"run/.containerenv", "podman"},
                                Mark{".singularity.d", "apptainer"}};
  for (const Mark& mark : marks) {
    if (files.exists(mark.path)) {
      return Observed<std::string>::of(mark.name, std::string("/") + mark.path);
    }
  }
  const auto systemd = files.text("run/systemd/container");
  if (systemd) return systemd;
  return Observed<std::string>::none("/.dockerenv, /run/.containerenv, /.singularity.d",
                                     "no sign of a container");
}

/// x86 says "model name"; other processors only "CPU part" or the device tree's model.
Observed<std::string> read_cpu_model(const SystemFiles& files) {
  const auto model = files.field("proc/cpuinfo", "model name", ':');
  if (model) return model;
  const auto board = files.text("proc/device-tree/model");
  if (board) return board;
  const auto part = files.field("proc/cpuinfo", "CPU part", ':');
  return part ? part : model;
}

}  // namespace

Bytes Machine::usable_memory() const {
  const Bytes total = memory_total ? *memory_total : Bytes(0);
  if (!memory_limit) return total;
  return memory_total ? std::min(total, *memory_limit) : *memory_limit;
}

Machine probe_machine(const SystemFiles& files) {
  Machine machine{.host = read_host(),
                  .os = files.field("etc/os-release", "PRETTY_NAME", '='),
                  .kernel = read_kernel(),
                  .cpu_model = read_cpu_model(files),
                  .governor = files.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
                  .container = read_container(files),
                  .topology = probe_topology(),
                  .cores = usable_cores(files),
                  .memory_total = files.memory("proc/meminfo", "MemTotal"),
                  .memory_available = files.memory("proc/meminfo", "MemAvailable"),
                  .memory_limit = read_cgroup_limits(files).memory,
                  .facts = {}};
  for (const FactSource& row : fact_sources) {
    machine.facts.push_back({row.name, read_fact(files, row)});
  }
  return machine;
}

ProcessContext probe_process() { return {loaded_libraries(), steering_variables()}; }

}  // namespace heteroperf
