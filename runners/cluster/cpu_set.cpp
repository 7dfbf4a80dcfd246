#include "runners/cluster/cpu_set.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <thread>

#include "metrics/base/error.hpp"
#include "runners/cluster/system_files.hpp"

namespace heteroperf {
namespace {

constexpr int max_cpu = 1 << 20;

[[noreturn]] void refuse_list(std::string_view text) {
  throw UserError("\"" + std::string(text) + "\" is not a list of CPUs", "",
                  "write numbers and ranges, such as 0-3,8");
}

/// Adds "3" or "0-7" to a set. Throws UserError naming the whole list.
void append_range(std::string_view part, std::string_view whole, CpuSet& cpus) {
  const std::size_t dash = part.find('-');
  const auto first = parse_integer(part.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_integer(part.substr(dash + 1));
  if (!first || !last || *first < 0 || *last < *first || *last >= max_cpu) refuse_list(whole);
  for (long long cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
}

/// Returns the lowest logical CPU of the core to which `cpu` belongs; `cpu` itself when the kernel
/// does not say.
int core_of(const SystemFiles& files, int cpu) {
  const auto siblings = files.text("sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                                   "/topology/thread_siblings_list");
  if (!siblings) return cpu;
  const CpuSet cpus = parse_cpu_list(*siblings);
  return cpus.empty() ? cpu : *std::ranges::min_element(cpus);
}

/// Orders every core's first CPU before every core's second one, and so on.
CpuSet cores_first(const SystemFiles& files, const CpuSet& cpus, int& physical) {
  std::map<int, int> seen;
  std::vector<std::pair<int, int>> order;  // (CPUs of the core that came before, cpu)
  for (const int cpu : cpus) order.emplace_back(seen[core_of(files, cpu)]++, cpu);
  physical = static_cast<int>(seen.size());
  std::ranges::sort(order);
  CpuSet sorted;
  for (const auto& [turn, cpu] : order) sorted.push_back(cpu);
  return sorted;
}

}  // namespace

std::string to_list(CpuSet cpus) {
  std::ranges::sort(cpus);
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[i]);
    if (last > i) text += '-' + std::to_string(cpus[last]);
    i = last + 1;
  }
  return text;
}

CpuSet parse_cpu_list(std::string_view text) {
  CpuSet cpus;
  for (const std::string& part : split_words(trimmed(text), ",")) append_range(part, text, cpus);
  return cpus;
}

int UsableCores::count() const {
  if (!quota) return std::max(1, physical);
  return std::clamp(static_cast<int>(*quota), 1, std::max(1, physical));
}

bool UsableCores::may_bind() const { return !quota || *quota >= static_cast<double>(cpus.size()); }

UsableCores usable_cores(const SystemFiles& files) {
  UsableCores cores;
  const auto mask = files.field("proc/self/status", "Cpus_allowed_list", ':');
  if (mask) {
    cores.source = mask.source;
    cores.cpus = cores_first(files, parse_cpu_list(*mask), cores.physical);
  } else {
    cores.source = "std::thread::hardware_concurrency";
    const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    for (int cpu = 0; cpu < all; ++cpu) cores.cpus.push_back(cpu);
    cores.physical = all;
  }
  cores.quota = read_cgroup_limits(files).cores;
  return cores;
}

void bind_this_thread(const CpuSet& cpus) {
  HETEROPERF_EXPECT(!cpus.empty());
  const int highest = *std::ranges::max_element(cpus);
  const std::size_t bytes = CPU_ALLOC_SIZE(highest + 1);
  std::vector<cpu_set_t> mask(bytes / sizeof(cpu_set_t) + 1);
  for (const int cpu : cpus) CPU_SET_S(cpu, bytes, mask.data());
  if (sched_setaffinity(0, bytes, mask.data()) != 0) {
    throw SystemError("cannot bind a thread to CPUs " + to_list(cpus), std::strerror(errno),
                      "they may be offline or outside the control group's set",
                      ErrorKind::environment);
  }
}

std::vector<CpuSet> place_ranks(const UsableCores& cores, int ranks, int threads_per_rank) {
  HETEROPERF_EXPECT(ranks > 0 && threads_per_rank > 0);
  const std::size_t threads = threads_per_rank;
  const std::size_t count = ranks;
  if (!cores.may_bind() || threads * count > cores.cpus.size()) return {};
  std::vector<CpuSet> placed(count);
  auto next = cores.cpus.begin();
  for (CpuSet& block : placed) {
    block.assign(next, next + static_cast<std::ptrdiff_t>(threads));
    next += static_cast<std::ptrdiff_t>(threads);
  }
  return placed;
}

}  // namespace heteroperf
