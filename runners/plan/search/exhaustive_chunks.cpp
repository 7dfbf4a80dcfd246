// Every draft of several chunks of a small problem.
//
// The recursion has two levels. The first adds positions with a set of replicas each, and from two
// positions on tries every schedule and number of chunks. The second cuts the layers into stages in
// the model's order, with every kind of recomputation. A branch is left when what a position
// already has to do for all micro-batches takes as long as the best draft. The number of stages
// tried is limited, because the space grows much faster than with one chunk.
#include "runners/plan/search/exhaustive_chunks.hpp"

#include <algorithm>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
ExhaustiveChunks::ExhaustiveChunks(const DraftScorer& scorer,
                                   const std::vector<std::string>& schedules, int zero_stage)
    : scorer_(scorer),
      problem_(scorer.problem()),
      choices_(problem_, scorer.sums()),
      schedules_(chunked_schedules(schedules)),
      zero_stage_(zero_stage) {
  for (const ReplicaGroup& type : choices_.types()) {
    const auto& times = problem_.pools[type.pool].times[type.degree][type.samples - 1];
    attention_ = attention_ || std::any_of(times.begin(), times.end(),
                                           [](const LayerTimes& t) { return t.attention_s > 0; });
  }
}

bool ExhaustiveChunks::run(double best_s, const std::function<bool()>& stop,
                           const std::function<void(ScoredDraft&&)>& visit) {
  best_s_ = best_s;
  stop_ = &stop;
  visit_ = &visit;
  stopped_ = false;
  for (samples_ = problem_.batch; samples_ >= 1 && !stopped_; --samples_) {
    if (problem_.batch % samples_ != 0) continue;
    std::vector<Groups> positions;
    next_position(positions);
  }
  return !stopped_;
}

void ExhaustiveChunks::next_position(std::vector<Groups>& positions) {
  stopped_ = stopped_ || (*stop_)();
  if (positions.size() > 1) {
    for (const DraftSchedule& schedule : schedules_) {
      for (int v = schedule.least_chunks; v <= schedule.most_chunks; ++v) {
        cut(positions, schedule, v);
      }
    }
  }
  if (2 * static_cast<int>(positions.size() + 1) > problem_.layers) return;
  choices_.for_each(samples_, [&](const Groups& groups) {
    if (stopped_) return;
    positions.push_back(groups);
    next_position(positions);
    positions.pop_back();
  });
}

void ExhaustiveChunks::cut(const std::vector<Groups>& positions, const DraftSchedule& schedule,
                           int chunks) {
  const std::size_t stages = positions.size() * static_cast<std::size_t>(chunks);
  if (stages > static_cast<std::size_t>(problem_.layers)) return;
  PipelineDraft draft;
  draft.schedule = schedule.name;
  draft.chunks = chunks;
  draft.micro_batches = static_cast<int>(problem_.batch / samples_);
  draft.zero_stage = zero_stage_;
  draft.stages.resize(stages);
  if (scorer_.order_of(draft) == nullptr) return;
  for (std::size_t s = 0; s < stages; ++s) {
    draft.stages[s].groups = positions[draft.position_of(StageId(s)).index()];
  }
  std::vector<double> busy(positions.size(), 0);
  next_stage(draft, 0, busy);
}

void ExhaustiveChunks::next_stage(PipelineDraft& draft, std::size_t s, std::vector<double>& busy) {
  if (s == draft.stages.size()) return score(draft);
  const int first = s == 0 ? 0 : draft.stages[s - 1].end;
  const int most = problem_.layers - static_cast<int>(draft.stages.size() - 1 - s);
  double& own = busy[draft.position_of(StageId(s)).index()];
  for (int end = s + 1 == draft.stages.size() ? most : first + 1; end <= most; ++end) {
    for (const Recomputation r :
         {Recomputation::none, Recomputation::selective, Recomputation::full}) {
      if (r == Recomputation::selective && !attention_) continue;
      stopped_ = stopped_ || ++tried_ > most_tried;
      if (stopped_) return;
      draft.stages[s].first = first;
      draft.stages[s].end = end;
      draft.stages[s].recomputation = r;
      const double work_s = draft.micro_batches * scorer_.compute(draft.stages[s]).work_s();
      if (own + work_s >= best_s_ * (1 + 1e-12)) continue;
      own += work_s;
      next_stage(draft, s + 1, busy);
      own -= work_s;
    }
  }
}

void ExhaustiveChunks::score(const PipelineDraft& draft) {
  ++scored_;
  DraftScore score = scorer_.score(draft);
  if (!score.fits() || score.step_time_s >= best_s_) return;
  best_s_ = score.step_time_s;
  (*visit_)({draft, std::move(score)});
}

}  // namespace heteroperf
