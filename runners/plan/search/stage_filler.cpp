#include "runners/plan/search/stage_filler.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace heteroperf {
namespace {

std::size_t at_index(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr double infinite = std::numeric_limits<double>::infinity();
/// Room for the last digits of sums.
constexpr double slack = 1 + 1e-9;

/// Neighbours that are alike become one.
std::vector<ReplicaGroup> merged(std::vector<ReplicaGroup> groups) {
  std::sort(groups.begin(), groups.end(), [](const ReplicaGroup& a, const ReplicaGroup& b) {
    return std::tuple(a.pool, a.degree, -a.samples) < std::tuple(b.pool, b.degree, -b.samples);
  });
  std::vector<ReplicaGroup> result;
  for (const ReplicaGroup& group : groups) {
    if (group.replicas == 0 || group.samples == 0) continue;
    ReplicaGroup* last = result.empty() ? nullptr : &result.back();
    if (last != nullptr && last->pool == group.pool && last->degree == group.degree &&
        last->samples == group.samples) {
      last->replicas += group.replicas;
    } else {
      result.push_back(group);
    }
  }
  return result;
}

}  // namespace

StageFiller::StageFiller(const DraftScorer& scorer) : scorer_(scorer) {
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

/// Time and memory grow with the samples.
std::int64_t StageFiller::most_samples(ReplicaGroup group, LayerSums::Range range,
                                       const LayerSums::Holding& holding, double period_s,
                                       const FillRules& rules) const {
  const double limit = scorer_.problem().pools[at_index(group.pool)].memory_bytes;
  const auto fits = [&](std::int64_t samples) {
    if (samples > rules.samples) return false;
    group.samples = samples;
    const LayerSums& sums = scorer_.sums();
    if (sums.work(group, range, holding.recomputation).total() > period_s * slack) return false;
    return limit <= 0 || sums.memory(group.degree, samples, range, holding) <= limit;
  };
  const auto& sizes = sizes_[at_index(group.pool)][at_index(group.degree)];
  const auto end = std::partition_point(sizes.begin(), sizes.end(), fits);
  return end == sizes.begin() ? 0 : *(end - 1);
}

bool StageFiller::takes(const DeviceCounts& devices, LayerSums::Range range,
                        const LayerSums::Holding& holding, double period_s, const FillRules& rules,
                        std::vector<Capacity>* chosen) const {
  const PlanningProblem& problem = scorer_.problem();
  std::int64_t sum = 0;
  for (std::size_t pool = 0; pool < devices.size(); ++pool) {
    if (devices[pool] == 0) continue;
    Capacity best;
    for (std::size_t d = 0; d < problem.degrees.size(); ++d) {
      Capacity one;
      one.degree = static_cast<int>(d);
      one.replicas = devices[pool] / problem.degrees[d];
      if (one.replicas == 0) break;
      const ReplicaGroup group{static_cast<int>(pool), one.degree, one.replicas, 1};
      LayerSums::Holding own = holding;
      if (rules.zero_stage == 1) own.state_replicas = one.replicas;
      one.samples = most_samples(group, range, own, period_s, rules);
      if (one.all() > best.all()) best = one;
    }
    sum += best.all();
    if (chosen != nullptr) (*chosen)[pool] = best;
    if (chosen == nullptr && sum >= rules.samples) return true;
  }
  return sum >= rules.samples;
}

bool StageFiller::takes_any(const DeviceCounts& devices, LayerSums::Range range, int in_flight,
                            double period_s, const FillRules& rules, DraftStage* stage) const {
  for (const Recomputation r :
       {Recomputation::none, Recomputation::selective, Recomputation::full}) {
    LayerSums::Holding holding;
    holding.recomputation = r;
    holding.in_flight = in_flight;
    holding.split_backward = rules.split_backward;
    std::vector<Capacity> chosen(devices.size());
    if (!takes(devices, range, holding, period_s, rules, stage != nullptr ? &chosen : nullptr)) {
      continue;
    }
    if (stage == nullptr) return true;
    stage->first = range.first;
    stage->end = range.end;
    stage->recomputation = r;
    stage->groups.clear();
    for (std::size_t pool = 0; pool < devices.size(); ++pool) {
      const Capacity& one = chosen[pool];
      if (one.all() == 0) continue;
      stage->groups.push_back({static_cast<int>(pool), one.degree, one.replicas, one.samples});
    }
    return true;
  }
  return false;
}

std::optional<DraftStage> StageFiller::fill(const DeviceCounts& devices, int end, int in_flight,
                                            double period_s, const FillRules& rules) const {
  const int kept = std::min(in_flight, rules.micro_batches);
  // More layers never need less; the longest range is found by bisection.
  int fails = -1, goes = end;
  while (goes - fails > 1) {
    const int first = fails + (goes - fails) / 2;
    (takes_any(devices, {first, end}, kept, period_s, rules, nullptr) ? goes : fails) = first;
  }
  if (goes == end) return std::nullopt;
  DraftStage stage;
  if (!takes_any(devices, {goes, end}, kept, period_s, rules, &stage)) return std::nullopt;
  stage.warm_up = in_flight - 1;
  return stage;
}

std::optional<DraftStage> StageFiller::balance(const DraftStage& stage,
                                               const FillRules& rules) const {
  const LayerSums::Range range{stage.first, stage.end};
  LayerSums::Holding holding;
  holding.recomputation = stage.recomputation;
  holding.in_flight = std::min(rules.micro_batches, stage.warm_up + 1);
  holding.split_backward = rules.split_backward;
  std::vector<ReplicaGroup> groups;  // one of each pool and degree
  bool alike = true;
  for (const ReplicaGroup& group : stage.groups) {
    alike = alike && group.degree == stage.groups.front().degree;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const ReplicaGroup& other) {
      return other.pool == group.pool && other.degree == group.degree;
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
    for (const std::int64_t size : sizes_[at_index(group.pool)][at_index(group.degree)]) {
      group.samples = size;
      periods.push_back(scorer_.sums().work(group, range, stage.recomputation).total());
    }
  }
  std::sort(periods.begin(), periods.end());
  const auto room = [&](double period_s) {
    std::int64_t sum = 0;
    for (const ReplicaGroup& group : groups) {
      sum += group.replicas * most_samples(group, range, holding, period_s, rules);
    }
    return sum;
  };
  const auto shortest = std::partition_point(periods.begin(), periods.end(), [&](double period_s) {
    return room(period_s) < rules.samples;
  });
  if (shortest == periods.end()) return std::nullopt;
  std::int64_t over = -rules.samples;
  for (ReplicaGroup& group : groups) {
    group.samples = most_samples(group, range, holding, *shortest, rules);
    over += group.replicas * group.samples;
  }
  // What is too much is taken from the slowest first, one sample of each of its replicas.
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
  balanced.groups = merged(std::move(result));
  for (const ReplicaGroup& group : balanced.groups) {
    if (!scorer_.sums().known(group.pool, group.degree, group.samples)) return std::nullopt;
  }
  return balanced;
}

}  // namespace heteroperf
