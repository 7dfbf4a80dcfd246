// Pipelines of pools in groups, by dynamic programming over sets of pools.
//
// A *structure* says which devices every stage has. The program goes from the last stage to the
// first, because a stage keeps a micro-batch for each stage that follows it: with the followers
// known, memory is known. From each state (pools used, stages made) every group of unused pools may
// add 1, 2, … stages with equal devices, each as long as the period allows. States are visited in
// the order of their number of stages, so a state is final when its turn comes.
//
// The number of sets doubles with every pool, so beyond three pools only pairs and runs of
// neighbours in speed form groups. The numbers of stages are a coarse list, and `most_fills` bounds
// the work. The structures are worth more than the periods they were found with: each is filled
// again with its own shortest period by tighten_structure().
//
// Advice for a model that fits nowhere.
//
// The question is always the same: does find_structures() find any pipeline when time does not
// matter? It is asked for more and more memory per device, first doubling and then by bisection,
// and for more devices. Every other choice is the thriftiest there is: full recomputation if need
// be, ZeRO-1, all sizes of micro-batches. So the factors named are what the search itself would
// need. Where no memory helps, the tables have a hole.
#include "runners/plan/search/pipeline_fill.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

/// Numbers of stages of one group that are tried, and those on machines of many devices.
constexpr int stage_counts[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48};
constexpr int few_stage_counts[] = {1, 2, 4, 8, 16, 32, 48};
constexpr int many_devices = 1024;

constexpr double most_memory_factor = 1 << 20;

/// One run over all states with one period.
class StructureSearch {
 public:
  StructureSearch(const StageFiller& filler, double period_s, const FillRules& rules,
                  const std::function<bool()>& stop,
                  const std::function<void(PipelineStructure&&)>& visit)
      : filler_(filler),
        problem_(filler.scorer().problem()),
        period_s_(period_s),
        rules_(rules),
        stop_(stop),
        visit_(visit),
        sets_(std::size_t{1} << problem_.pools.size()),
        most_stages_(std::min({problem_.layers, problem_.devices(), 48})),
        states_(static_cast<std::size_t>(most_stages_ + 1) * sets_) {
    const std::size_t pools = problem_.pools.size();
    states_[0].first = problem_.layers;
    for (PoolSet group = 1; group < sets_; ++group) {
      // Many pools: pairs, and those next to each other in speed.
      const PoolSet ones = group >> std::countr_zero(group);
      if (pools <= 3 || std::popcount(group) <= 2 || std::has_single_bit(ones + 1))
        groups_.push_back(group);
    }
  }

  /// States are stored by number of stages first, and every step adds stages, so one pass over them
  /// is enough.
  bool run() {
    const std::span<const int> counts = problem_.devices() > many_devices
                                            ? std::span<const int>(few_stage_counts)
                                            : std::span<const int>(stage_counts);
    bool any = false;
    for (std::size_t index = 0; index < states_.size(); ++index) {
      const int first = states_[index].first;
      if (first < 0) continue;
      if (first == 0) {
        any = true;
        visit_(structure(index));
        continue;
      }
      if (stop_() || fills_ > most_fills) break;
      if (is_dominated(index)) continue;
      const PoolSet free = static_cast<PoolSet>(sets_ - 1) & ~static_cast<PoolSet>(index % sets_);
      const int room = most_stages_ - static_cast<int>(index / sets_);
      for (const PoolSet group : groups_) {
        if ((group & ~free) != 0) continue;
        int most = room;
        for (std::size_t pool = 0; pool < problem_.pools.size(); ++pool) {
          if ((group >> pool & 1) != 0) most = std::min(most, problem_.pools[pool].devices);
        }
        for (const int stages : counts) {
          if (stages > std::min(most, first)) break;
          extend(index, group, stages);
        }
      }
    }
    return any;
  }

 private:
  static constexpr std::uint64_t most_fills = 20000;
  using PoolSet = std::uint32_t;
  struct State {
    int first = -1;             ///< layers before it are open; −1: not reached
    int from = -1;              ///< index of the state before
    DeviceCounts devices = {};  ///< that each added stage takes
    int stages = 0;
  };

  /// True when the free pools could do the open layers if nothing were lost.
  bool can_finish(PoolSet free, int first) const {
    double samples = 0;
    for (std::size_t pool = 0; pool < problem_.pools.size(); ++pool) {
      if ((free >> pool & 1) == 0) continue;
      const double time = filler_.device_seconds()[pool][first];
      if (time <= 0) return true;
      samples += problem_.pools[pool].devices * period_s_ / time;
    }
    return samples >= static_cast<double>(rules_.samples) * (1 - 1e-9);
  }

  void extend(std::size_t index, PoolSet group, int stages) {
    const auto before = static_cast<int>(index / sets_);
    const PoolSet used = static_cast<PoolSet>(index % sets_);
    DeviceCounts devices(problem_.pools.size(), 0);
    for (std::size_t pool = 0; pool < devices.size(); ++pool) {
      if ((group >> pool & 1) != 0) devices[pool] = problem_.pools[pool].devices / stages;
    }
    int first = states_[index].first;
    int added = 0, likely = 0;
    for (; added < stages && first > 0; ++added) {
      // The number of stages that follow, and its own, are kept in flight.
      const std::optional<DraftStage> stage =
          filler_.fill(devices, first, before + added + 1, period_s_, rules_, likely);
      ++fills_;
      if (!stage) return;
      likely = stage->end - stage->first;
      first = stage->first;
    }
    State& state = states_[(before + added) * sets_ + (used | group)];
    // Only the way to a state that leaves the fewest layers open stays.
    if (state.first >= 0 && state.first <= first) return;
    const PoolSet free = static_cast<PoolSet>(sets_ - 1) & ~(used | group);
    if (first > 0 && !can_finish(free, first)) return;
    state = {first, static_cast<int>(index), std::move(devices), added};
  }

  PipelineStructure structure(std::size_t index) const {
    PipelineStructure result;
    for (int at = static_cast<int>(index); at >= 0; at = states_[at].from) {
      const State& state = states_[at];
      result.insert(result.end(), state.stages, state.devices);
    }
    return result;
  }

  /// True when the same pools have covered as much with less than half the stages.
  bool is_dominated(std::size_t index) const {
    const std::size_t used = index % sets_;
    for (std::size_t stages = 0; 2 * stages < index / sets_; ++stages) {
      const int first = states_[stages * sets_ + used].first;
      if (first >= 0 && first <= states_[index].first) return true;
    }
    return false;
  }

  const StageFiller& filler_;
  const PlanningProblem& problem_;
  double period_s_;
  const FillRules& rules_;
  const std::function<bool()>& stop_;
  const std::function<void(PipelineStructure&&)>& visit_;
  std::size_t sets_;
  int most_stages_;
  std::vector<State> states_;  ///< [stages, pools used]
  std::vector<PoolSet> groups_;
  std::uint64_t fills_ = 0;
};

/// True when some micro-batch lets the pools cover the model within their memory.
bool fits(const PlanningProblem& problem) {
  const DraftScorer scorer(problem);
  const StageFiller filler(scorer);
  const auto never = [] { return false; };
  const auto nothing = [](PipelineStructure&&) {};
  for (const std::int64_t samples : divisors(problem.batch)) {
    const FillRules rules = FillRules::of_batch(problem.batch, samples);
    if (find_structures(filler, any_period_s, rules, never, nothing)) return true;
    // Larger micro-batches need more memory, but can use more replicas to share states.
    if (samples > problem.devices()) break;
  }
  return false;
}

PlanningProblem with_memory(PlanningProblem problem, double factor) {
  for (DevicePool& pool : problem.pools) pool.memory_bytes *= factor;
  return problem;
}

PlanningProblem with_devices(PlanningProblem problem, int factor) {
  for (DevicePool& pool : problem.pools) pool.devices *= factor;
  return problem;
}

/// The least factor on all memory with which the model fits, to a part in a thousand; 0 where no
/// factor helps.
double least_memory_factor(const PlanningProblem& problem) {
  double low = 1, high = 2;
  while (!fits(with_memory(problem, high))) {
    low = high;
    if ((high *= 2) > most_memory_factor) return 0;
  }
  while (high / low > 1.001) {
    const double middle = (low + high) / 2;
    (fits(with_memory(problem, middle)) ? high : low) = middle;
  }
  return high;
}

}  // namespace

bool find_structures(const StageFiller& filler, double period_s, const FillRules& rules,
                     const std::function<bool()>& stop,
                     const std::function<void(PipelineStructure&&)>& visit) {
  return StructureSearch(filler, period_s, rules, stop, visit).run();
}

std::optional<PipelineDraft> fill_structure(const StageFiller& filler,
                                            const PipelineStructure& structure, double period_s,
                                            const FillRules& rules) {
  PipelineDraft draft;
  draft.micro_batches = rules.micro_batches;
  draft.zero_stage = rules.zero_stage;
  int first = filler.scorer().problem().layers, in_flight = 1, likely = 0;
  for (auto devices = structure.rbegin(); devices != structure.rend() && first > 0; ++devices) {
    std::optional<DraftStage> stage =
        filler.fill(*devices, first, in_flight++, period_s, rules, likely);
    if (!stage) return std::nullopt;
    likely = stage->end - stage->first;
    first = stage->first;
    draft.stages.push_back(std::move(*stage));
  }
  if (first > 0) return std::nullopt;
  std::ranges::reverse(draft.stages);
  return draft;
}

std::optional<PipelineDraft> tighten_structure(const StageFiller& filler,
                                               const PipelineStructure& structure, double period_s,
                                               const FillRules& rules) {
  std::optional<PipelineDraft> best = fill_structure(filler, structure, period_s, rules);
  // Structures come from periods not far above their own, so a quarter is low enough.
  double low = period_s / 4, high = period_s;
  while (best && high / low > 1.001) {
    const double middle = std::sqrt(low * high);
    std::optional<PipelineDraft> shorter = fill_structure(filler, structure, middle, rules);
    (shorter ? high : low) = middle;
    if (shorter) best = std::move(shorter);
  }
  return best;
}

std::vector<Problem> fit_problems(const PlanningProblem& problem) {
  const double factor = least_memory_factor(problem);
  if (factor == 0) {
    return {{"no plan covers the model and its batch",
             fmt::format("for some layer no pool has times with micro-batches of 1 to {}, whatever "
                         "the memory",
                         problem.most_samples),
             "Add the missing times, or another batch."}};
  }
  std::string pools;
  for (const DevicePool& pool : problem.pools) {
    if (pool.devices == 0 || pool.memory_bytes <= 0) continue;
    pools += fmt::format("{}{} needs {} ({} available)", pools.empty() ? "" : ", ", pool.name,
                         rounded_byte_size(factor * pool.memory_bytes),
                         rounded_byte_size(pool.memory_bytes));
  }
  std::string advice = fmt::format("Use devices with {:.3g} times the memory", factor);
  for (const int more : {2, 3, 4, 6, 8, 16, 32, 64}) {
    if (static_cast<long long>(problem.devices()) * more > (1 << 16)) break;
    if (!fits(with_devices(problem, more))) continue;
    advice += fmt::format(", {} times as many devices", more);
    break;
  }
  return {{"the model fits nowhere on this machine",
           fmt::format("with full recomputation, ZeRO-1 and the smallest micro-batch {}", pools),
           advice + ", or a smaller model."}};
}

}  // namespace heteroperf
