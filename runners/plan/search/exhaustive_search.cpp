// Branch and bound over every draft of one chunk of a small problem.
//
// Stages are chosen from the last to the first, because the number of stages that follow gives a
// stage's warm-up and with it its memory. For each number of samples in a micro-batch the recursion
// goes through all starts of the stage, all sets of replicas of the free devices, and all kinds of
// recomputation. A branch is left when the stage just added cannot end in time: a micro-batch needs
// at least the way through the layers before it, and the stage then works on all micro-batches.
// Memory is judged on whole drafts only, by the scorer.
//
// Warm-ups are the least ones, `1f1b` the only schedule, and the rest is for local search.
#include "runners/plan/search/exhaustive_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
/// way_ is built from each layer's fastest replica.
ExhaustiveSearch::ExhaustiveSearch(const DraftScorer& scorer, int zero_stage)
    : scorer_(scorer),
      problem_(scorer.problem()),
      choices_(problem_, scorer.sums()),
      zero_stage_(zero_stage) {
  const std::size_t layers = problem_.layers;
  std::vector<double> least(layers, std::numeric_limits<double>::infinity());
  for (const ReplicaGroup& type : choices_.types()) {
    const auto& times = problem_.pools[type.pool].times[type.degree][type.samples - 1];
    for (std::size_t l = 0; l < layers; ++l) {
      const LayerTimes& t = times[l];
      attention_ = attention_ || t.attention_s > 0;
      least[l] = std::min(least[l], t.forward_s + t.input_gradient_s + t.weight_gradient_s);
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
    // The stage runs as many forwards ahead as stages follow.
    stage.warm_up = std::min<int>(draft_.micro_batches, static_cast<int>(draft_.stages.size()));
    choices_.for_each(samples_, [&](const std::vector<ReplicaGroup>& groups) {
      if (stopped_) return;
      stage.groups = groups;
      add_stage(stage);
    });
  }
}

/// No order of computations lets the stage begin before one micro-batch has come to it, or end more
/// than one micro-batch's way back before the step does.
bool ExhaustiveSearch::hopeless(const DraftStage& stage, const ClockStage& clock) const {
  return way_[stage.first] + draft_.micro_batches * clock.work_s() >= best_s_ * (1 + 1e-12);
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
