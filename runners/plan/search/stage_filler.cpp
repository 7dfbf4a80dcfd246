// Single stages: how many layers some devices can take, and how they share a micro-batch.
//
// Everything rests on monotony: more samples take more time and memory, more layers too. So the
// largest number of samples of a replica, and the longest range of layers of a stage, are found by
// bisection over tables of sums (LayerSums). A stage is good when the *capacities* of its replicas,
// the samples that each can take within the period and its memory, add up to a micro-batch.
//
// Recomputation is tried from none to full, and only when memory is what lacks; each degree of
// recomputation takes longer, so where time lacks the stage is given up at once. fill() finds
// stages for a given period; balance() goes the other way and finds the shortest period for given
// layers and replicas.
#include "runners/plan/search/stage_filler.hpp"

#include <algorithm>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

/// Replicas of so many samples lose little by whole numbers.
constexpr std::int64_t fine_samples = 6;

}  // namespace

StageFiller::StageFiller(const DraftScorer& scorer)
    : scorer_(scorer), device_seconds_(scorer.problem().least_device_seconds()) {
  const PlanningProblem& problem = scorer.problem();
  for (std::size_t pool = 0; pool < problem.pools.size(); ++pool) {
    auto& of_pool = sizes_.emplace_back(problem.degrees.size());
    for (std::size_t degree = 0; degree < problem.degrees.size(); ++degree) {
      if (problem.degrees[degree] > problem.pools[pool].devices_per_node) continue;
      for (std::int64_t samples = 1; samples <= problem.most_samples; ++samples) {
        if (scorer.sums().known(static_cast<int>(pool), static_cast<int>(degree), samples)) {
          of_pool[degree].push_back(samples);
        }
      }
    }
  }
}

/// Bisects the sizes, because time and memory grow with the samples.
StageFiller::Capacity StageFiller::capacity(ReplicaGroup group, LayerSums::Range range,
                                            const LayerSums::Holding& holding, double period_s,
                                            const FillRules& rules) const {
  const double limit = scorer_.problem().pools[group.pool].memory_bytes;
  const LayerSums& sums = scorer_.sums();
  const auto& sizes = sizes_[group.pool][group.degree];
  const auto in_time = std::ranges::partition_point(sizes, [&](std::int64_t samples) {
    group.samples = samples;
    return samples <= rules.samples &&
           sums.work(group, range, holding.recomputation).total() <= period_s * sum_slack;
  });
  const auto end = limit <= 0
                       ? in_time
                       : std::partition_point(sizes.begin(), in_time, [&](std::int64_t samples) {
                           return sums.memory(group.degree, samples, range, holding) <= limit;
                         });
  Capacity result{.degree = group.degree, .replicas = group.replicas};
  if (in_time != sizes.begin()) result.in_time = *(in_time - 1);
  if (end != sizes.begin()) result.samples = *(end - 1);
  return result;
}

/// Finds for every pool the degree with which it takes the most samples.
StageFiller::Room StageFiller::room(const DeviceCounts& devices, LayerSums::Range range,
                                    const LayerSums::Holding& holding, double period_s,
                                    const FillRules& rules, std::vector<Capacity>& chosen) const {
  const PlanningProblem& problem = scorer_.problem();
  std::int64_t sum = 0, in_time = 0;
  for (std::size_t pool = 0; pool < devices.size(); ++pool) {
    chosen[pool] = Capacity();
    std::int64_t most_in_time = 0;
    for (std::size_t d = 0; d < problem.degrees.size(); ++d) {
      const int replicas =
          problem.groups_of(static_cast<int>(pool), devices[pool], problem.degrees[d]);
      if (replicas == 0) break;
      LayerSums::Holding shared = holding;
      if (rules.zero_stage == 1) shared.state_replicas = replicas;
      const Capacity room = capacity({static_cast<int>(pool), static_cast<int>(d), replicas, 1},
                                     range, shared, period_s, rules);
      most_in_time = std::max(most_in_time, room.in_time * replicas);
      if (room.all() > chosen[pool].all()) chosen[pool] = room;
      // Larger groups pay where memory is short, or where whole samples are too coarse.
      if (room.samples == room.in_time && room.samples >= fine_samples) break;
    }
    sum += chosen[pool].all();
    in_time += most_in_time;
  }
  if (sum >= rules.samples) return Room::enough;
  return in_time >= rules.samples ? Room::too_little_memory : Room::too_slow;
}

bool StageFiller::takes(const DeviceCounts& devices, LayerSums::Range range, int in_flight,
                        double period_s, const FillRules& rules, DraftStage* stage) const {
  std::vector<Capacity> chosen(devices.size());
  for (const Recomputation r : recomputations) {
    const Room there_is =
        room(devices, range, rules.holding(r, in_flight), period_s, rules, chosen);
    if (there_is == Room::too_slow) return false;
    if (there_is == Room::too_little_memory) continue;
    if (stage == nullptr) return true;
    stage->first = range.first;
    stage->end = range.end;
    stage->recomputation = r;
    for (std::size_t pool = 0; pool < devices.size(); ++pool) {
      const Capacity& room = chosen[pool];
      if (room.all() == 0) continue;
      stage->groups.push_back({static_cast<int>(pool), room.degree, room.replicas, room.samples});
    }
    return true;
  }
  return false;
}

std::optional<DraftStage> StageFiller::fill(const DeviceCounts& devices, int end, int in_flight,
                                            double period_s, const FillRules& rules,
                                            int likely) const {
  const auto goes = [&](int first) {
    return takes(devices, {first, end}, in_flight, period_s, rules, nullptr);
  };
  // More layers never need less: the longest range is found by bisection, around the likely one.
  int fails = -1, best = end;
  for (int step = 1, at = end - likely; likely > 0; step *= 4) {
    at = std::clamp(at, 0, end - 1);
    const bool good = goes(at);
    (good ? best : fails) = at;
    if (good ? fails >= 0 || at == 0 : best < end || at == end - 1) break;
    at += good ? -step : step;
    if (good && fails + 1 >= best) break;
  }
  while (best - fails > 1) {
    const int first = fails + (best - fails) / 2;
    (goes(first) ? best : fails) = first;
  }
  if (best == end) return std::nullopt;
  return fill_range(devices, {best, end}, in_flight, period_s, rules);
}

std::optional<DraftStage> StageFiller::fill_range(const DeviceCounts& devices,
                                                  LayerSums::Range range, int in_flight,
                                                  double period_s, const FillRules& rules) const {
  DraftStage stage;
  if (!takes(devices, range, in_flight, period_s, rules, &stage)) return std::nullopt;
  stage.warm_up = in_flight - 1;
  return stage;
}

std::optional<DraftStage> StageFiller::balance(const DraftStage& stage,
                                               const FillRules& rules) const {
  const LayerSums::Range range{stage.first, stage.end};
  LayerSums::Holding holding = rules.holding(stage.recomputation, stage.warm_up + 1);
  std::vector<ReplicaGroup> groups;  // one of each pool and degree
  bool alike = true;
  for (const ReplicaGroup& group : stage.groups) {
    alike = alike && group.degree == stage.groups.front().degree;
    const auto same = std::ranges::find_if(groups, [&](const ReplicaGroup& replica_group) {
      return replica_group.pool == group.pool && replica_group.degree == group.degree;
    });
    if (same == groups.end()) {
      groups.push_back(group);
    } else {
      same->replicas += group.replicas;
    }
  }
  if (rules.zero_stage == 1 && alike) holding.state_replicas = stage.replicas();

  // The shortest period at which all have room: of the times of every group and size.
  std::vector<double> periods;
  for (ReplicaGroup group : groups) {
    for (const std::int64_t size : sizes_[group.pool][group.degree]) {
      group.samples = size;
      periods.push_back(scorer_.sums().work(group, range, stage.recomputation).total());
    }
  }
  std::ranges::sort(periods);
  const auto samples_in = [&](double period_s) {
    std::int64_t sum = 0;
    for (const ReplicaGroup& group : groups) {
      sum += group.replicas * capacity(group, range, holding, period_s, rules).samples;
    }
    return sum;
  };
  const auto shortest = std::ranges::partition_point(
      periods, [&](double period_s) { return samples_in(period_s) < rules.samples; });
  if (shortest == periods.end()) return std::nullopt;
  std::int64_t over = -rules.samples;
  for (ReplicaGroup& group : groups) {
    group.samples = capacity(group, range, holding, *shortest, rules).samples;
    over += group.replicas * group.samples;
  }
  // Samples too many are taken from the slowest first, one sample of each of its replicas.
  std::vector<ReplicaGroup> result;
  while (over > 0) {
    std::size_t slowest = groups.size();
    double most = -infinite;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].samples == 0) continue;
      const double time = scorer_.sums().work(groups[g], range, stage.recomputation).total();
      if (time > most) most = time, slowest = g;
    }
    ReplicaGroup& group = groups[slowest];
    const auto replicas = static_cast<int>(std::min<std::int64_t>(over, group.replicas));
    ReplicaGroup less = group;
    less.replicas = replicas;
    --less.samples;
    over -= replicas;
    if (replicas == group.replicas) {
      group = less;
    } else {
      group.replicas -= replicas;
      result.push_back(less);
    }
  }
  result.insert(result.end(), groups.begin(), groups.end());
  DraftStage balanced = stage;
  balanced.groups = ordered_groups(std::move(result));
  for (const ReplicaGroup& group : balanced.groups) {
    if (!scorer_.sums().known(group.pool, group.degree, group.samples)) return std::nullopt;
  }
  return balanced;
}

bool StageFiller::balance(PipelineDraft& draft, std::int64_t samples, std::size_t first,
                          std::size_t end) const {
  const FillRules rules{samples, draft.micro_batches, draft.zero_stage, draft.schedule != "1f1b"};
  for (std::size_t s = first; s < end; ++s) {
    std::optional<DraftStage> stage = balance(draft.stages[s], rules);
    if (!stage) return false;
    draft.stages[s] = std::move(*stage);
  }
  return true;
}

}  // namespace heteroperf
