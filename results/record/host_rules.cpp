// Rules on the hosts and GPUs of a run. Other programs on its CPUs, or processors that are slowed
// down by heat or a limit, make numbers that nobody can repeat. Every host tells its load by its
// first rank (`host_load` lines), every GPU its slowdown by the ranks on it (`gpu_slowdown`). A
// rule looks at all of them, since a single slow host holds up a step of all ranks, and its finding
// names the first few. Nothing is held against a host that cannot tell: kernels and drivers differ
// in what they count.
#include "results/record/line_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace heteroperf {
namespace {

constexpr double largest_throttled_share = 0.01;  // a share of their time
constexpr std::size_t most_named = 5;

/// Appends what `word_of` says of each that it says something of, after the name of its host.
template <class Told, class WordOf>
void add_words(std::vector<std::string>& words, const std::vector<const Told*>& all,
               WordOf word_of) {
  for (const Told* told : all) {
    std::string word = word_of(*told);
    if (word.empty()) continue;
    words.push_back(told->host.empty() ? word : told->host + ": " + word);
  }
}

/// Names the first few and the number of the rest, so that a finding stays short on any machine.
std::string joined(std::vector<std::string> words) {
  if (words.size() > most_named) {
    const std::size_t more = words.size() - most_named;
    words.resize(most_named);
    words.push_back(fmt::format("and {} more", more));
  }
  return fmt::format("{}", fmt::join(words, "; "));
}

/// Says how much of a host's CPUs others had, or nothing where that is little.
std::string too_much_other_load(const HostLoadEvent& load) {
  if (load.cpus == 0) return {};
  const double share = load.other_cpus / static_cast<double>(load.cpus);
  if (share <= largest_other_load) return {};
  return fmt::format("{:.1f} % of {} CPUs", 100 * share, load.cpus);
}

/// Says for how long a host's CPUs were slowed down, or nothing where that is little. Some kernels
/// count events but no time; then a single event is too much.
std::string too_much_throttling(const HostLoadEvent& load) {
  const double seconds = load.seconds * static_cast<double>(load.cpus);
  const double quota_s = load.quota_throttled_s.value_or(0);
  const double thermal_s = load.thermal_throttled_s.value_or(0);
  const bool uncounted = !load.thermal_throttled_s && load.thermal_events.value_or(0) > 0;
  if (!uncounted && std::max(quota_s, thermal_s) <= largest_throttled_share * seconds) return {};
  return fmt::format(
      "of {:.4g} s {:.4g} s by heat, {} times, {:.4g} s by the control group's limit", seconds,
      thermal_s, load.thermal_events.value_or(0), quota_s);
}

/// Says for how long a GPU was slowed down by heat. A power limit is how a GPU is sold, so it
/// counts as no slowdown.
std::string too_hot(const GpuSlowdownEvent& gpu) {
  if (gpu.thermal_s.value_or(0) <= largest_throttled_share * gpu.seconds) return {};
  return fmt::format("GPU {} {:.4g} of {:.4g} s by heat", gpu.gpu, *gpu.thermal_s, gpu.seconds);
}

}  // namespace

std::vector<const HostLoadEvent*> host_loads(const Journal& journal) {
  std::map<std::string, const HostLoadEvent*> last;
  for (const HostLoadEvent* load : journal.all<HostLoadEvent>()) last[load->host] = load;
  std::vector<const HostLoadEvent*> loads;
  for (const auto& [host, load] : last) loads.push_back(load);
  std::stable_sort(loads.begin(), loads.end(), [](const auto* a, const auto* b) {
    return a->first_rank.value_or(0) < b->first_rank.value_or(0);
  });
  return loads;
}

std::vector<const GpuSlowdownEvent*> gpu_slowdowns(const Journal& journal) {
  std::map<std::pair<std::string, std::string>, const GpuSlowdownEvent*> last;
  for (const GpuSlowdownEvent* gpu : journal.all<GpuSlowdownEvent>()) {
    last[{gpu->host, gpu->gpu}] = gpu;
  }
  std::vector<const GpuSlowdownEvent*> slowdowns;
  for (const auto& [name, gpu] : last) slowdowns.push_back(gpu);
  return slowdowns;
}

Verdict other_load(const Journal& journal, const RunSummary&) {
  std::vector<std::string> words;
  add_words(words, host_loads(journal), too_much_other_load);
  if (words.empty()) return {};
  return Finding{fmt::format("other processes on at most {:.0f} % of the run's CPUs of any host",
                             100 * largest_other_load),
                 joined(std::move(words))};
}

Verdict throttled(const Journal& journal, const RunSummary&) {
  std::vector<std::string> words;
  add_words(words, host_loads(journal), too_much_throttling);
  add_words(words, gpu_slowdowns(journal), too_hot);
  if (words.empty()) return {};
  return Finding{fmt::format("CPUs and GPUs of any host slowed down for at most {:.0f} % of their "
                             "time",
                             100 * largest_throttled_share),
                 joined(std::move(words))};
}

}  // namespace heteroperf
