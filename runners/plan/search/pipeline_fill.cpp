#include "runners/plan/search/pipeline_fill.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace heteroperf {
namespace {

std::size_t at_index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Numbers of stages of one group that are tried: all small ones, then steps of a quarter.
std::vector<int> stage_counts(int most) {
  std::vector<int> counts;
  for (int n = 1; n <= most; n += std::max(1, n / 4)) counts.push_back(n);
  return counts;
}

}  // namespace

PipelineFill::PipelineFill(const StageFiller& filler)
    : filler_(filler), problem_(filler.scorer().problem()) {
  const std::size_t pools = problem_.pools.size();
  sets_ = std::size_t{1} << pools;
  most_stages_ = std::min({problem_.layers, problem_.devices(), 64});
  for (PoolSet group = 1; group < sets_; ++group) {
    // Many pools: those next to each other in speed, so that sets stay few.
    const PoolSet ones = group >> std::countr_zero(group);
    if (pools <= 4 || std::has_single_bit(ones + 1)) groups_.push_back(group);
  }
  for (const DevicePool& pool : problem_.pools) {
    auto& row = device_seconds_.emplace_back(1, 0.0);
    for (int layer = 0; layer < problem_.layers; ++layer) {
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t d = 0; d < problem_.degrees.size(); ++d) {
        for (std::size_t m = 0; m < pool.times[d].size(); ++m) {
          if (pool.times[d][m].empty()) continue;
          const LayerTimes& t = pool.times[d][m][at_index(layer)];
          const double time = t.forward_s + t.input_gradient_s + t.weight_gradient_s;
          least = std::min(least, time * problem_.degrees[d] / static_cast<double>(m + 1));
        }
      }
      row.push_back(row.back() + least);
    }
  }
}

/// Whether the free pools could do the open layers if nothing were lost.
bool PipelineFill::can_finish(PoolSet free, int first, double period_s,
                              const FillRules& rules) const {
  double samples = 0;
  for (std::size_t pool = 0; pool < problem_.pools.size(); ++pool) {
    if ((free >> pool & 1) == 0) continue;
    const double time = device_seconds_[pool][at_index(first)];
    if (time <= 0) return true;
    samples += problem_.pools[pool].devices * period_s / time;
  }
  return samples >= static_cast<double>(rules.samples) * (1 - 1e-9);
}

void PipelineFill::extend(std::size_t index, PoolSet group, int stages, double period_s,
                          const FillRules& rules) {
  const auto before = static_cast<int>(index / sets_);
  const PoolSet used = static_cast<PoolSet>(index % sets_);
  DeviceCounts devices(problem_.pools.size(), 0);
  for (std::size_t pool = 0; pool < devices.size(); ++pool) {
    if ((group >> pool & 1) != 0) devices[pool] = problem_.pools[pool].devices / stages;
  }
  int first = states_[index].first;
  std::vector<DraftStage> added;
  for (int s = 0; s < stages && first > 0; ++s) {
    std::optional<DraftStage> stage =
        filler_.fill(devices, first, before + s + 1, period_s, rules);
    if (!stage) return;
    first = stage->first;
    added.push_back(std::move(*stage));
  }
  const std::size_t to = index_of(before + static_cast<int>(added.size()), used | group);
  State& state = states_[to];
  if (state.first >= 0 && state.first <= first) return;
  if (first > 0 && !can_finish(static_cast<PoolSet>(sets_ - 1) & ~(used | group), first, period_s,
                               rules)) {
    return;
  }
  state = {first, static_cast<int>(index), std::move(added)};
}

PipelineDraft PipelineFill::draft(std::size_t index, const FillRules& rules) const {
  PipelineDraft draft;
  draft.micro_batches = rules.micro_batches;
  draft.zero_stage = rules.zero_stage;
  for (int at = static_cast<int>(index); at >= 0; at = states_[at_index(at)].from) {
    const State& state = states_[at_index(at)];
    draft.stages.insert(draft.stages.end(), state.stages.rbegin(), state.stages.rend());
  }
  for (DraftStage& stage : draft.stages) {
    stage.warm_up = std::min(stage.warm_up, rules.micro_batches);
  }
  return draft;
}

bool PipelineFill::run(double period_s, const FillRules& rules, const std::function<bool()>& stop,
                       const std::function<void(PipelineDraft&&)>& visit) {
  states_.assign(at_index(most_stages_ + 1) * sets_, State());
  states_[0].first = problem_.layers;
  bool any = false;
  for (std::size_t index = 0; index < states_.size(); ++index) {
    const int first = states_[index].first;
    if (first < 0) continue;
    if (first == 0) {
      any = true;
      visit(draft(index, rules));
      continue;
    }
    if (stop()) break;
    const PoolSet free = static_cast<PoolSet>(sets_ - 1) & ~static_cast<PoolSet>(index % sets_);
    const int room = most_stages_ - static_cast<int>(index / sets_);
    for (const PoolSet group : groups_) {
      if ((group & ~free) != 0) continue;
      int most = room;
      for (std::size_t pool = 0; pool < problem_.pools.size(); ++pool) {
        if ((group >> pool & 1) != 0) most = std::min(most, problem_.pools[pool].devices);
      }
      for (const int stages : stage_counts(std::min(most, first))) {
        extend(index, group, stages, period_s, rules);
      }
    }
  }
  return any;
}

}  // namespace heteroperf
