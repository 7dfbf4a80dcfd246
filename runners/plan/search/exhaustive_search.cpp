// Branch and bound over every draft of a small problem.
//
// A *type* is a pool, a degree and a number of samples. The recursion goes through the types in a
// fixed order and takes none, one, two, … replicas of each while devices and samples last, so every
// set is visited once whatever the order of its members. Devices are marked as taken while the
// visitor runs: the visitor may ask for the next stage's sets, and sees only what is left.
//
// Drafts of one chunk: stages are chosen from the last to the first, because the number of stages
// that follow gives a stage's warm-up and with it its memory. For each number of samples in a
// micro-batch the recursion goes through all starts of the stage, all sets of replicas of the free
// devices, and all kinds of recomputation. A branch is left when the stage just added cannot end in
// time: a micro-batch needs at least the way through the layers before it, and the stage then works
// on all micro-batches. Memory is judged on whole drafts only, by the scorer. Warm-ups are the
// least ones, `1f1b` the only schedule, and the rest is for local search.
//
// Drafts of several chunks: the recursion has two levels. The first adds positions with a set of
// replicas each, and from two positions on tries every schedule and number of chunks. The second
// cuts the layers into stages in the model's order, with every kind of recomputation. A branch is
// left when what a position already has to do for all micro-batches takes as long as the best
// draft. The number of stages tried is limited, because the space grows much faster than with one
// chunk.
#include "runners/plan/search/exhaustive_search.hpp"

#include <algorithm>
#include <cmath>

#include "metrics/base/quantity.hpp"
#include "runners/plan/search/problem/layer_sums.hpp"

namespace heteroperf {
namespace {

/// All ways in which free devices of a small problem can take a micro-batch.
class ReplicaChoices {
 public:
  using Visit = std::function<void(const std::vector<ReplicaGroup>&)>;
  /// Both outlive it.
  ReplicaChoices(const PlanningProblem& problem, const LayerSums& sums) : problem_(problem) {
    for (std::size_t p = 0; p < problem.pools.size(); ++p) {
      free_.push_back(problem.pools[p].devices);
      for (std::size_t d = 0; d < problem.degrees.size(); ++d) {
        if (problem.degrees[d] > problem.pools[p].devices_per_node) continue;
        for (std::int64_t m = problem.most_samples; m >= 1; --m) {
          if (!sums.known(static_cast<int>(p), static_cast<int>(d), m)) continue;
          types_.push_back({static_cast<int>(p), static_cast<int>(d), 1, m});
        }
      }
    }
  }

  /// Calls `visit` with every set of replicas that take `samples`; its devices are taken meanwhile,
  /// so that calls may nest.
  void for_each(std::int64_t samples, const Visit& visit) {
    std::vector<ReplicaGroup> groups;
    from(0, samples, groups, visit);
  }

  /// Every replica there can be, without its number.
  const std::vector<ReplicaGroup>& types() const { return types_; }

 private:
  /// Replicas of the types from `type` on that take `open` samples.
  void from(std::size_t type, std::int64_t open, std::vector<ReplicaGroup>& groups,
            const Visit& visit) {
    if (open == 0) return visit(groups);
    if (type == types_.size()) return;
    from(type + 1, open, groups, visit);
    ReplicaGroup group = types_[type];
    const int degree = problem_.degrees[group.degree];
    const auto most =
        static_cast<int>(std::min<std::int64_t>(free_[group.pool] / degree, open / group.samples));
    for (group.replicas = 1; group.replicas <= most; ++group.replicas) {
      groups.push_back(group);
      take(group, 1);
      from(type + 1, open - group.replicas * group.samples, groups, visit);
      take(group, -1);
      groups.pop_back();
    }
  }

  void take(const ReplicaGroup& group, int sign) {
    free_[group.pool] -= sign * group.replicas * problem_.degrees[group.degree];
  }

  const PlanningProblem& problem_;
  std::vector<ReplicaGroup> types_;
  std::vector<int> free_;  ///< devices, by pool
};

/// Both searches share this: the time to beat, the end, and the scores of drafts.
class Exhaustion {
 public:
  explicit Exhaustion(ExhaustiveTask& task)
      : task_(task),
        scorer_(task.scorer),
        problem_(scorer_.problem()),
        choices_(problem_, scorer_.sums()) {
    for (const ReplicaGroup& type : choices_.types()) {
      attention_ = attention_ || std::ranges::any_of(times_of(type), [](const LayerTimes& t) {
                     return t.attention_s > 0;
                   });
    }
  }

 protected:
  const std::vector<LayerTimes>& times_of(const ReplicaGroup& type) const {
    return problem_.pools[type.pool].times[type.degree][type.samples - 1];
  }

  /// Calls `look` for every size of micro-batches, the largest first; false where it was stopped.
  template <class Look>
  bool for_each_size(Look look) {
    for (samples_ = problem_.batch; samples_ >= 1 && !stopped_; --samples_) {
      if (problem_.batch % samples_ == 0) look();
    }
    return !stopped_;
  }

  /// A draft of micro-batches of the size at hand.
  PipelineDraft empty_draft() const {
    PipelineDraft draft;
    draft.micro_batches = static_cast<int>(problem_.batch / samples_);
    draft.zero_stage = task_.zero_stage;
    return draft;
  }

  void ask_stop() { stopped_ = stopped_ || task_.stop(); }

  /// True for what takes as long as the best draft.
  bool is_late(double seconds) const { return seconds >= task_.best_s * (1 + 1e-12); }

  /// Calls `visit` for each kind of recomputation that differs from the others.
  template <class Visit>
  void for_each_recomputation(Visit visit) const {
    for (const Recomputation r : recomputations) {
      if (r != Recomputation::selective || attention_) visit(r);
    }
  }

  void score(PipelineDraft draft) {
    ++task_.scored;
    DraftScore score = scorer_.score(draft);
    if (!score.fits() || score.step_time_s >= task_.best_s) return;
    task_.best_s = score.step_time_s;
    task_.visit({std::move(draft), std::move(score)});
  }

  ExhaustiveTask& task_;
  const DraftScorer& scorer_;
  const PlanningProblem& problem_;
  ReplicaChoices choices_;
  bool attention_ = false;  ///< selective recomputation is something of its own
  std::int64_t samples_ = 1;
  bool stopped_ = false;
};

/// Drafts of one chunk, from the last stage to the first: a stage's work and the way to it bound
/// what is still open.
class OneChunk : public Exhaustion {
 public:
  /// way_ is built from each layer's fastest replica.
  explicit OneChunk(ExhaustiveTask& task) : Exhaustion(task) {
    std::vector<double> least(problem_.layers, infinite);
    for (const ReplicaGroup& type : choices_.types()) {
      for (std::size_t l = 0; l < least.size(); ++l) {
        least[l] = std::min(least[l], times_of(type)[l].total());
      }
    }
    way_.assign(1, 0);
    for (const double seconds : least) way_.push_back(way_.back() + seconds);
  }

  bool run() {
    return for_each_size([&] {
      draft_ = empty_draft();
      stages_before(problem_.layers);
    });
  }

 private:
  void stages_before(int end) {
    if (end == 0) {
      PipelineDraft draft = draft_;
      std::ranges::reverse(draft.stages);
      return score(std::move(draft));
    }
    ask_stop();
    for (int first = 0; first < end && !stopped_; ++first) {
      // The stage runs as many forwards ahead as stages follow.
      const auto follow = static_cast<int>(draft_.stages.size());
      DraftStage stage{
          .first = first, .end = end, .warm_up = std::min(draft_.micro_batches, follow)};
      choices_.for_each(samples_, [&](const std::vector<ReplicaGroup>& groups) {
        if (stopped_) return;
        stage.groups = groups;
        for_each_recomputation([&](Recomputation r) {
          stage.recomputation = r;
          add_stage(stage);
        });
      });
    }
  }

  /// No order of computations lets the stage begin before one micro-batch has come to it, or end
  /// more than one micro-batch's way back before the step does.
  void add_stage(const DraftStage& stage) {
    const double work_s = draft_.micro_batches * scorer_.compute(stage).work_s();
    if (is_late(way_[stage.first] + work_s)) return;
    draft_.stages.push_back(stage);
    stages_before(stage.first);
    draft_.stages.pop_back();
  }

  std::vector<double> way_;  ///< [layer]: least time of all layers before it
  PipelineDraft draft_;      ///< stages from the last to the first
};

/// Drafts of several chunks. What a position has to do bounds what is still open.
class SeveralChunks : public Exhaustion {
 public:
  SeveralChunks(ExhaustiveTask& task, const std::vector<std::string>& schedules)
      : Exhaustion(task), schedules_(chunked_schedules(schedules)) {}

  bool run() {
    return for_each_size([&] {
      std::vector<Groups> positions;
      next_position(positions);
    });
  }

 private:
  static constexpr std::uint64_t most_tried = 4'000'000;
  using Groups = std::vector<ReplicaGroup>;
  void next_position(std::vector<Groups>& positions) {
    ask_stop();
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

  void cut(const std::vector<Groups>& positions, const DraftSchedule& schedule, int chunks) {
    const std::size_t stages = positions.size() * static_cast<std::size_t>(chunks);
    if (stages > static_cast<std::size_t>(problem_.layers)) return;
    PipelineDraft draft = empty_draft();
    draft.schedule = schedule.name;
    draft.chunks = chunks;
    draft.stages.resize(stages);
    if (scorer_.order_of(draft) == nullptr) return;
    for (std::size_t s = 0; s < stages; ++s) {
      draft.stages[s].groups = positions[draft.position_of(StageId(s)).index()];
    }
    std::vector<double> busy(positions.size(), 0);
    next_stage(draft, 0, busy);
  }

  void next_stage(PipelineDraft& draft, std::size_t s, std::vector<double>& busy) {
    if (s == draft.stages.size()) return score(draft);
    const int first = s == 0 ? 0 : draft.stages[s - 1].end;
    const int most = problem_.layers - static_cast<int>(draft.stages.size() - 1 - s);
    double& busy_s = busy[draft.position_of(StageId(s)).index()];
    for (int end = s + 1 == draft.stages.size() ? most : first + 1; end <= most; ++end) {
      for_each_recomputation([&](Recomputation r) {
        stopped_ = stopped_ || ++tried_ > most_tried;
        if (stopped_) return;
        draft.stages[s].first = first;
        draft.stages[s].end = end;
        draft.stages[s].recomputation = r;
        const double work_s = draft.micro_batches * scorer_.compute(draft.stages[s]).work_s();
        if (is_late(busy_s + work_s)) return;
        busy_s += work_s;
        next_stage(draft, s + 1, busy);
        busy_s -= work_s;
      });
    }
  }

  std::vector<DraftSchedule> schedules_;
  std::uint64_t tried_ = 0;
};

}  // namespace

double exhaustive_drafts(const PlanningProblem& problem) {
  // Every device has a type, no stage, or one of the stages; every cut and recomputation.
  double drafts = 1;
  for (const DevicePool& pool : problem.pools) {
    const double ways = static_cast<double>(problem.degrees.size()) *
                        static_cast<double>(problem.most_samples) *
                        std::min(problem.layers, problem.devices());
    // Like devices are alike: multisets.
    for (int d = 1; d <= pool.devices; ++d) drafts *= (ways + d) / d;
  }
  return drafts * std::pow(2, problem.layers) * std::pow(3, std::min(problem.layers, 4));
}

bool search_every_draft(ExhaustiveTask& task) { return OneChunk(task).run(); }

bool search_every_chunked_draft(ExhaustiveTask& task, const std::vector<std::string>& schedules) {
  return SeveralChunks(task, schedules).run();
}

}  // namespace heteroperf
