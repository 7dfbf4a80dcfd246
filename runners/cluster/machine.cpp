#include "runners/cluster/machine.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <elf.h>
#include <link.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "runners/cluster/system_files.hpp"

// Every fact of a record's `system` is read here, as an Observed value: with its source, or with
// the reason why there is none. The table lists the details that are only kept; the rest is read by
// a function each.

namespace heteroperf {
namespace {

using FactValue = std::variant<std::int64_t, double, std::string>;

enum class FactKind { text, integer, first_number, kernel_flags };

/// The source of a detail. With a key, the value is a "key : value" line of the file.
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

/// Reads the first word of a text as a number.
Observed<FactValue> as_number(const Observed<std::string>& text) {
  if (!text) return Observed<FactValue>::none(text);
  double number = 0;
  const std::string word = split_words(*text).front();
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error == std::errc()) return Observed<FactValue>::of(number, text.source);
  return Observed<FactValue>::none(text.source, "\"" + word + "\" is not a number");
}

/// Keeps only flags that change speed: the rest of a command line is the site's own business.
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

/// Reads one row of the table.
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

/// Reads the name, the release and the processor of the running kernel.
Observed<std::string> read_kernel() {
  utsname names{};
  if (uname(&names) != 0) return Observed<std::string>::none("uname", std::strerror(errno));
  return Observed<std::string>::of(
      std::string(names.sysname) + ' ' + names.release + ' ' + names.machine, "uname");
}

/// Recognises a container by the marks that its engine leaves.
Observed<std::string> read_container(const SystemFiles& files) {
  constexpr std::pair<const char*, const char*> marks[] = {
      {".dockerenv", "docker"}, {"run/.containerenv", "podman"}, {".singularity.d", "apptainer"}};
  for (const auto& [path, name] : marks) {
    if (files.exists(path)) return Observed<std::string>::of(name, std::string("/") + path);
  }
  const auto systemd = files.text("run/systemd/container");
  if (systemd) return systemd;
  return Observed<std::string>::none("/.dockerenv, /run/.containerenv, /.singularity.d",
                                     "no sign of a container");
}

/// Reads the processor's model: x86 says "model name", others "CPU part" or the device tree's
/// model.
Observed<std::string> read_cpu_model(const SystemFiles& files) {
  const auto model = files.field("proc/cpuinfo", "model name", ':');
  if (model) return model;
  const auto board = files.text("proc/device-tree/model");
  if (board) return board;
  const auto part = files.field("proc/cpuinfo", "CPU part", ':');
  return part ? part : model;
}

}  // namespace

std::string host_name() {
  const auto name = read_host();
  return name ? *name : "unknown";
}

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

namespace {

constexpr std::array<std::string_view, 13> allowed_prefixes = {
    "NCCL_", "OMPI_", "UCX_",  "CUDA_",   "OMP_",   "TORCH_",     "MKL_",
    "LD_",   "ATEN_", "DNNL_", "ONEDNN_", "SLURM_", "HETEROPERF_"};
constexpr std::array<std::string_view, 4> secret_words = {"TOKEN", "SECRET", "PASS", "KEY"};

/// Tells if a variable steers a run, by its prefix.
bool is_allowed(std::string_view name) {
  return std::ranges::any_of(allowed_prefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

/// Tells if a variable's name sounds like a secret, in either case.
bool is_secret(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return std::ranges::any_of(
      secret_words, [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

/// Rounds up to the alignment of notes, 4 bytes.
std::size_t padded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

/// Writes bytes in lower-case hexadecimal digits.
std::string hex(const unsigned char* bytes, std::size_t count) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += digits[bytes[i] >> 4];
    text += digits[bytes[i] & 0xf];
  }
  return text;
}

/// Walks the notes of one PT_NOTE segment (elf(5)) and returns the build id, if it is there.
std::string build_id_in(const unsigned char* notes, std::size_t bytes) {
  while (bytes >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes, sizeof header);
    const std::size_t name = sizeof header, content = name + padded(header.n_namesz);
    const std::size_t size = content + padded(header.n_descsz);
    if (size > bytes) return {};
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == sizeof ELF_NOTE_GNU &&
        std::memcmp(notes + name, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0) {
      return hex(notes + content, header.n_descsz);
    }
    notes += size;
    bytes -= size;
  }
  return {};
}

/// Takes note of one shared object (the callback of dl_iterate_phdr(3)).
int collect(dl_phdr_info* info, std::size_t, void* out) {
  auto& libraries = *static_cast<std::vector<LoadedLibrary>*>(out);
  const std::string_view path = info->dlpi_name;
  if (path.find('/') == std::string_view::npos) return 0;
  LoadedLibrary library{std::string(path), {}};
  for (int i = 0; i < info->dlpi_phnum && library.build_id.empty(); ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    library.build_id = build_id_in(
        reinterpret_cast<const unsigned char*>(info->dlpi_addr + segment.p_vaddr), segment.p_memsz);
  }
  libraries.push_back(std::move(library));
  return 0;
}

}  // namespace

std::vector<LoadedLibrary> loaded_libraries() {
  std::vector<LoadedLibrary> libraries;
  dl_iterate_phdr(&collect, &libraries);
  std::ranges::sort(libraries, {}, &LoadedLibrary::path);
  return libraries;
}

std::map<std::string, std::string> steering_variables(const char* const* environment) {
  std::map<std::string, std::string> variables;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    std::string name(entry.substr(0, equals));
    if (!is_allowed(name)) continue;
    std::string value(is_secret(name) ? "redacted" : entry.substr(equals + 1));
    variables.emplace(std::move(name), std::move(value));
  }
  return variables;
}

std::map<std::string, std::string> steering_variables() { return steering_variables(environ); }

}  // namespace heteroperf
