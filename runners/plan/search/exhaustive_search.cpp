#include "runners/plan/search/exhaustive_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace heteroperf {
namespace {

std::size_t at_index(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

ExhaustiveSearch::ExhaustiveSearch(const DraftScorer& scorer, int zero_stage)
    : scorer_(scorer), problem_(scorer.problem()), zero_stage_(zero_stage) {
  const auto layers = at_index(problem_.layers);
  std::vector<double> least(layers, std::numeric_limits<double>::infinity());
  for (std::size_t p = 0; p < problem_.pools.size(); ++p) {
    free_.push_back(problem_.pools[p].devices);
    for (std::size_t d = 0; d < problem_.degrees.size(); ++d) {
      if (problem_.degrees[d] > problem_.pools[p].devices_per_node) continue;
      for (std::int64_t m = problem_.most_samples; m >= 1; --m) {
        if (!scorer.sums().known(static_cast<int>(p), static_cast<int>(d), m)) continue;
        types_.push_back({static_cast<int>(p), static_cast<int>(d), 1, m});
        for (std::size_t l = 0; l < layers; ++l) {
          const LayerTimes& t = problem_.pools[p].times[d][at_index(m - 1)][l];
          attention_ = attention_ || t.attention_s > 0;
          least[l] = std::min(least[l], t.forward_s + t.input_gradient_s + t.weight_gradient_s);
        }
      }
    }
  }
  way_.assign(1, 0);
  for (const double one : least) way_.push_back(way_.back() + one);
}

double ExhaustiveSearch::drafts() const {
  // Every device has a type, no stage, or one of the stages; every cut and recomputation.
  double drafts = 1;
  for (const DevicePool& pool : problem_.pools) {
    const double ways = static_cast<double>(problem_.degrees.size()) *
                        static_cast<double>(problem_.most_samples) *
                        std::min(problem_.layers, problem_.devices());
    // Like devices are alike: multisets.
    for (int d = 1; d <= pool.devices; ++d) drafts *= (ways + d) / d;
  }
  return drafts * std::pow(2, problem_.layers) * std::pow(3, std::min(problem_.layers, 4));
}

void ExhaustiveSearch::take(const ReplicaGroup& group, int sign) {
  free_[at_index(group.pool)] -= sign * group.replicas * problem_.degrees[at_index(group.degree)];
}

bool ExhaustiveSearch::run(double best_s, const std::function<bool()>& stop,
                           const std::function<void(ScoredDraft&&)>& visit) {
  best_s_ = best_s;
  stop_ = &stop;
  visit_ = &visit;
  stopped_ = false;
  for (std::int64_t samples = problem_.batch; samples >= 1 && !stopped_; --samples) {
    if (problem_.batch % samples != 0) continue;
    samples_ = samples;
    draft_ = PipelineDraft();
    draft_.micro_batches = static_cast<int>(problem_.batch / samples);
    draft_.zero_stage = zero_stage_;
    stages_before(problem_.layers);
  }
  return !stopped_;
}

void ExhaustiveSearch::stages_before(int end) {
  if (end == 0) {
    PipelineDraft draft = draft_;
    std::reverse(draft.stages.begin(), draft.stages.end());
    ++scored_;
    DraftScore score = scorer_.score(draft);
    if (!score.fits() || score.step_time_s >= best_s_) return;
    best_s_ = score.step_time_s;
    (*visit_)({std::move(draft), std::move(score)});
    return;
  }
  stopped_ = stopped_ || (*stop_)();
  for (int first = 0; first < end && !stopped_; ++first) {
    DraftStage stage;
    stage.first = first;
    stage.end = end;
    stage.warm_up = std::min<int>(draft_.micro_batches, static_cast<int>(draft_.stages.size()));
    groups_of(stage, 0, samples_);
  }
}

/// Replicas of the types from `type` on that take `open` samples.
void ExhaustiveSearch::groups_of(DraftStage& stage, std::size_t type, std::int64_t open) {
  if (open == 0) return add_stage(stage);
  if (type == types_.size() || stopped_) return;
  groups_of(stage, type + 1, open);
  ReplicaGroup group = types_[type];
  const int degree = problem_.degrees[at_index(group.degree)];
  const auto most = static_cast<int>(
      std::min<std::int64_t>(free_[at_index(group.pool)] / degree, open / group.samples));
  for (group.replicas = 1; group.replicas <= most; ++group.replicas) {
    stage.groups.push_back(group);
    take(group, 1);
    groups_of(stage, type + 1, open - group.replicas * group.samples);
    take(group, -1);
    stage.groups.pop_back();
  }
}

/// No order of computations lets the stage begin before one micro-batch has come to it, or end more
/// than one micro-batch's way back before the step does.
bool ExhaustiveSearch::hopeless(const DraftStage& stage, const ClockStage& clock) const {
  return way_[at_index(stage.first)] + draft_.micro_batches * clock.work_s() >=
         best_s_ * (1 + 1e-12);
}

void ExhaustiveSearch::add_stage(const DraftStage& stage) {
  for (const Recomputation r :
       {Recomputation::none, Recomputation::selective, Recomputation::full}) {
    if (r == Recomputation::selective && !attention_) continue;
    DraftStage one = stage;
    one.recomputation = r;
    const ClockStage clock = scorer_.compute(one);
    if (hopeless(one, clock)) continue;
    draft_.stages.push_back(std::move(one));
    stages_before(stage.first);
    draft_.stages.pop_back();
  }
}

}  // namespace heteroperf
