// The rules that look at single steps: clocks that go back or leap, steps that overlap, are missing
// or stand twice, losses that are not finite, and windows with too few steps. Steps of one
// training, a fixed model's or a trial's, are numbered one after another, and steps of one group of
// ranks follow each other in time. A loss may be NaN only where the search itself says that the
// trial diverged.
//
// Rules on the hosts and GPUs of a run. Other programs on its CPUs, or processors that are slowed
// down by heat or a limit, make numbers that nobody can repeat. Every host tells its load by its
// first rank (`host_load` lines), every GPU its slowdown by the ranks on it (`gpu_slowdown`). A
// rule looks at all of them, since a single slow host holds up a step of all ranks, and its finding
// names the first few. Nothing is held against a host that cannot tell: kernels and drivers differ
// in what they count.
#include "results/record/line_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t fewest_steps = 20;
constexpr double longest_pause_s = 10;
constexpr double longest_pause_medians = 20;

using TrainingKey = std::tuple<std::int32_t, std::optional<std::uint64_t>>;

/// A run of one model counts on from the checkpoint that it goes on from.
std::uint64_t first_step_of(const Journal& journal, const StepEvent& step) {
  if (step.trial) return step.n;
  const auto* start = journal.first<StartEvent>();
  return start == nullptr ? 0 : start->parent_step.value_or(0);
}

/// Returns the trials whose outcome is that they diverged.
std::set<std::uint64_t> diverged_trials(const Journal& journal) {
  std::set<std::uint64_t> trials;
  for (const TrialEvent* trial : journal.all<TrialEvent>()) {
    if (trial->state == TrialStatus::diverged) trials.insert(trial->id);
    if (trial->state == TrialStatus::completed) trials.erase(trial->id);
  }
  return trials;
}

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

std::string training_name(std::int32_t group, std::optional<std::uint64_t> trial) {
  return trial ? fmt::format("group {} trial {}", group, *trial) : fmt::format("group {}", group);
}

/// Times of lines never decrease, since all are of rank 0's clock; steps of different groups may
/// overlap.
Verdict clock_backwards(const Journal& journal, const RunSummary&) {
  std::map<std::int32_t, std::int64_t> group_end;
  for (std::size_t i = 0; i < journal.lines.size(); ++i) {
    const JournalLine& line = journal.lines[i];
    if (i > 0 && line.t_ns < journal.lines[i - 1].t_ns) {
      return Finding{"times that never decrease",
                     fmt::format("line {} is {} ns before the last", i + 1,
                                 journal.lines[i - 1].t_ns - line.t_ns)};
    }
    const auto* step = std::get_if<StepEvent>(&line.event);
    if (step == nullptr) continue;
    const auto last = group_end.try_emplace(step->group, step->t_start_ns).first;
    if (step->t_end_ns <= step->t_start_ns || step->t_start_ns < last->second) {
      return Finding{"steps of a group one after another",
                     fmt::format("line {}: step {} from {} to {} ns, the one before ended at {} ns",
                                 i + 1, step->n, step->t_start_ns, step->t_end_ns, last->second)};
    }
    last->second = step->t_end_ns;
  }
  return {};
}

/// A monotonic clock cannot go back but can leap, and a machine can be stopped: either shows as one
/// step far beyond all others.
Verdict clock_jump(const Journal& journal, const RunSummary& summary) {
  if (!summary.step_time || !summary.window) return {};
  const double longest_s =
      std::max(longest_pause_s, longest_pause_medians * summary.step_time->median_s);
  for (const StepEvent* step : journal.all<StepEvent>()) {
    if (!summary.window->contains(step->t_end_ns)) continue;
    const double seconds = seconds_of(step->t_end_ns - step->t_start_ns);
    if (seconds <= longest_s) continue;
    return Finding{
        fmt::format("no step beyond {:.6g} s ({:.0f} medians)", longest_s, longest_pause_medians),
        fmt::format("{:.6g} s in {}", seconds, training_name(step->group, step->trial))};
  }
  return {};
}

/// A missing step would take its operations out of the window and its time with it.
Verdict step_order(const Journal& journal, const RunSummary&) {
  std::map<TrainingKey, std::uint64_t> next;
  for (const StepEvent* step : journal.all<StepEvent>()) {
    // A trial may move to another group with a later rung.
    const TrainingKey key{step->trial ? 0 : step->group, step->trial};
    const auto entry = next.try_emplace(key, first_step_of(journal, *step)).first;
    if (step->n != entry->second || step->samples == 0) {
      return Finding{fmt::format("{} goes on with step {} and samples",
                                 training_name(step->group, step->trial), entry->second),
                     fmt::format("step {} with {} samples", step->n, step->samples)};
    }
    ++entry->second;
  }
  return {};
}

Verdict non_finite_loss(const Journal& journal, const RunSummary&) {
  const std::set<std::uint64_t> outcomes = diverged_trials(journal);
  for (const JournalLine& line : journal.lines) {
    const auto judge_loss = [&](const auto& event, const char* what) -> Verdict {
      if (std::isfinite(event.loss) || (event.trial && outcomes.contains(*event.trial))) return {};
      return Finding{"a finite loss", fmt::format("{} in {} of {}", event.loss, what,
                                                  training_name(event.group, event.trial))};
    };
    if (const auto* step = std::get_if<StepEvent>(&line.event)) {
      if (Verdict broken = judge_loss(*step, "a step")) return broken;
    } else if (const auto* eval = std::get_if<EvalEvent>(&line.event)) {
      if (Verdict broken = judge_loss(*eval, "an evaluation")) return broken;
    }
  }
  return {};
}

Verdict no_steps(const Journal&, const RunSummary& summary) {
  if (summary.steps >= 1) return {};
  return Finding{"at least 1 step after the warm-up",
                 fmt::format("{} ({} steps of warm-up)", summary.steps, summary.warmup_steps)};
}

/// A run without any step breaks the stricter rule only.
Verdict few_steps(const Journal&, const RunSummary& summary) {
  if (summary.steps >= fewest_steps || summary.steps == 0) return {};
  return Finding{fmt::format("at least {} steps after the warm-up", fewest_steps),
                 std::to_string(summary.steps)};
}

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
