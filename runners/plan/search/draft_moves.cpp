// Local search around one draft.
//
// A *move* changes one thing: a cut, the place of some replicas, a degree, recomputation, the
// schedule, warm-ups, shares, or a wire's format. For each kind of move all neighbours are scored
// and the best is taken if it is better; rounds over all kinds go on until none helps. So a round
// ends in a draft that no single move improves.
//
// Neighbours are compared by worth() instead of the step's time alone. Where several stages are
// equally slow, no single move shortens the step; the small term for the sum of squares rewards
// easing one of them, which makes room for the next move. As the worth may fall while the time
// grows a little, the fastest draft seen is kept apart from the one at hand.
//
// With many stages the exact clock is dear, so the formula filters neighbours first, except for
// moves whose effect it does not see (schedules, warm-ups).
#include "runners/plan/search/draft_moves.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

/// A smaller gain is noise of sums.
constexpr double least_gain = 1e-9;
/// Pipelines of so many stages ask the exact clock only about drafts that the formula finds no
/// slower, but for this factor.
constexpr std::size_t many_stages = 12;
constexpr double kept_estimate_room = 1.002;

class DraftMoves {
 public:
  DraftMoves(const StageFiller& filler, const MoveRules& rules, std::uint64_t& scored)
      : filler_(filler), rules_(rules), scored_(scored) {}

  ScoredDraft improve(ScoredDraft start, const std::function<bool()>& stop) {
    using Kind = void (DraftMoves::*)(const PipelineDraft&, const Visit&) const;
    constexpr Kind kinds[] = {
        &DraftMoves::cuts,     &DraftMoves::replicas,      &DraftMoves::idle_devices,
        &DraftMoves::degrees,  &DraftMoves::recomputation, &DraftMoves::schedules,
        &DraftMoves::warm_ups, &DraftMoves::shares,        &DraftMoves::wires};
    const std::int64_t samples = start.draft.stages.front().samples();
    ScoredDraft fastest = start;
    bool better = true;
    while (better && !stop()) {
      better = false;
      for (const Kind kind : kinds) {
        // A coarser wire loses precision, so it has to pay for itself.
        const double gain = kind == &DraftMoves::wires ? rules_.least_wire_gain : least_gain;
        ScoredDraft best = start;
        double to_beat = worth(start) * (1 - gain);
        // The formula knows no schedules and few warm-ups.
        const bool by_formula = start.draft.stages.size() >= many_stages &&
                                kind != &DraftMoves::schedules && kind != &DraftMoves::warm_ups;
        const double promising_s =
            by_formula ? kept_estimate_room * filler_.scorer().estimate(start.draft).step_time_s
                       : 0;
        (this->*kind)(start.draft, [&](PipelineDraft&& draft) {
          // A micro-batch of another size would be another batch with this number of micro-batches.
          if (stop() || draft.stages.front().samples() != samples) return;
          ++scored_;
          if (by_formula) {
            const DraftScore estimate = filler_.scorer().estimate(draft);
            if (!estimate.fits() || estimate.step_time_s > promising_s) return;
          }
          ScoredDraft scored_draft{std::move(draft), {}};
          scored_draft.score = filler_.scorer().extrapolate(scored_draft.draft);
          const double value = worth(scored_draft);
          if (!scored_draft.score.fits() || value >= to_beat) return;
          to_beat = value;
          best = std::move(scored_draft);
        });
        if (best.draft == start.draft) continue;
        start = std::move(best);
        if (start.score.step_time_s < fastest.score.step_time_s) fastest = start;
        better = true;
      }
    }
    // The moves were compared by extrapolated times.
    fastest.score = filler_.scorer().score(fastest.draft);
    return fastest;
  }

 private:
  /// A kind of move calls `visit` with every neighbour of the draft; nothing is scored yet.
  using Visit = std::function<void(PipelineDraft&&)>;
  /// Moves the border of two neighbours by up to four layers; only these two stages are balanced
  /// again.
  void cuts(const PipelineDraft& draft, const Visit& visit) const {
    for (std::size_t s = 0; s + 1 < draft.stages.size(); ++s) {
      for (const int by : {-4, -2, -1, 1, 2, 4}) {
        PipelineDraft moved = draft;
        if (move_cut(moved, s, by) && rebalance(moved, s, s + 2)) visit(std::move(moved));
      }
    }
  }

  /// One replica, or a quarter of the group's, goes to another stage or is left idle.
  void replicas(const PipelineDraft& draft, const Visit& visit) const {
    const std::size_t stages = draft.stages.size();
    for (std::size_t s = 0; s < stages; ++s) {
      for (std::size_t g = 0; g < draft.stages[s].groups.size(); ++g) {
        const ReplicaGroup group = draft.stages[s].groups[g];
        for (const int count : {1, std::max(2, group.replicas / 4)}) {
          if (count > group.replicas) continue;
          PipelineDraft without = draft;
          without.stages[s].groups[g].replicas -= count;
          if (count == group.replicas) {
            auto& groups = without.stages[s].groups;
            groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(g));
            if (groups.empty()) continue;
          }
          if (!rebalance(without, s, s + 1)) continue;
          for (std::size_t to = 0; to < stages; ++to) {
            // Deep pipelines pass replicas to neighbours alone, for the number of pairs grows as a
            // square.
            if (to == s || (stages > 8 && to + 1 != s && to != s + 1)) continue;
            PipelineDraft moved = without;
            ReplicaGroup more = group;
            more.replicas = count;
            moved.stages[to].groups.push_back(more);
            if (rebalance(moved, to, to + 1)) visit(std::move(moved));
          }
          // The devices may also stay idle: this is a neighbour of its own.
          visit(std::move(without));
        }
      }
    }
  }

  /// Devices that no stage has go to one of the stages of their pool.
  void idle_devices(const PipelineDraft& draft, const Visit& visit) const {
    const PlanningProblem& problem = filler_.scorer().problem();
    std::vector<int> free;
    for (const DevicePool& pool : problem.pools) free.push_back(pool.devices);
    for (const DraftStage& stage : draft.stages) {
      for (const ReplicaGroup& group : stage.groups) {
        free[group.pool] -= group.replicas * problem.degrees[group.degree];
      }
    }
    for (std::size_t s = 0; s < draft.stages.size(); ++s) {
      for (const ReplicaGroup& group : draft.stages[s].groups) {
        const int room = free[group.pool] / problem.degrees[group.degree];
        for (const int count : {1, room}) {
          if (count < 1 || count > room) continue;
          PipelineDraft moved = draft;
          ReplicaGroup more = group;
          more.replicas = count;
          moved.stages[s].groups.push_back(more);
          if (rebalance(moved, s, s + 1)) visit(std::move(moved));
        }
      }
    }
  }

  /// Regroups a group's devices with another degree. The number of devices stays, so the new degree
  /// must divide it, and a group must fit a node.
  void degrees(const PipelineDraft& draft, const Visit& visit) const {
    const PlanningProblem& problem = filler_.scorer().problem();
    for (std::size_t s = 0; s < draft.stages.size(); ++s) {
      for (std::size_t g = 0; g < draft.stages[s].groups.size(); ++g) {
        const ReplicaGroup group = draft.stages[s].groups[g];
        const int devices = group.replicas * problem.degrees[group.degree];
        for (std::size_t d = 0; d < problem.degrees.size(); ++d) {
          if (static_cast<int>(d) == group.degree || devices % problem.degrees[d] != 0) continue;
          if (problem.degrees[d] > problem.pools[group.pool].devices_per_node) continue;
          PipelineDraft moved = draft;
          moved.stages[s].groups[g].degree = static_cast<int>(d);
          moved.stages[s].groups[g].replicas = devices / problem.degrees[d];
          if (rebalance(moved, s, s + 1)) visit(std::move(moved));
        }
      }
    }
  }

  /// One stage's recomputation, or ZeRO for the whole plan.
  void recomputation(const PipelineDraft& draft, const Visit& visit) const {
    for (std::size_t s = 0; s < draft.stages.size(); ++s) {
      for (const Recomputation r : recomputations) {
        if (r == draft.stages[s].recomputation) continue;
        PipelineDraft moved = draft;
        moved.stages[s].recomputation = r;
        if (rebalance(moved, s, s + 1)) visit(std::move(moved));
      }
    }
    PipelineDraft moved = draft;
    moved.zero_stage = 1 - draft.zero_stage;
    visit(std::move(moved));
  }

  /// Another schedule of one chunk with its least warm-ups. Memory and the parting of B and W
  /// change in all stages, so all are balanced.
  void schedules(const PipelineDraft& draft, const Visit& visit) const {
    if (draft.stages.size() == 1) return;
    for (const std::string& schedule : rules_.plain_schedules()) {
      if (schedule == draft.schedule) continue;
      PipelineDraft moved = draft;
      set_schedule(moved, schedule);
      if (rebalance(moved, 0, moved.stages.size())) visit(std::move(moved));
    }
  }

  /// The first k positions start more or fewer micro-batches ahead.
  void warm_ups(const PipelineDraft& draft, const Visit& visit) const {
    const auto stages = static_cast<int>(draft.stages.size());
    if (stages == 1 || !rules_.deeper_warm_ups || draft.schedule != "1f1b") return;
    for (int k = 0; k < stages; ++k) {
      for (const int by : {-1, 1, stages - 1}) {
        PipelineDraft moved = draft;
        bool allowed = by != 0;
        for (int s = 0; s <= k; ++s) {
          int& warm_up = moved.stages[s].warm_up;
          warm_up = std::min(warm_up + by, draft.micro_batches);
          // Fewer forwards than positions follow would stall the pipeline; see pipeline_ends().
          allowed = allowed && warm_up >= std::min(draft.micro_batches, stages - 1 - s);
        }
        for (int s = 0; s + 1 < stages; ++s) {
          allowed = allowed && moved.stages[s].warm_up >= moved.stages[s + 1].warm_up;
        }
        if (allowed && moved != draft) visit(std::move(moved));
      }
    }
  }

  /// One sample from each replica of a group to one replica of another.
  void shares(const PipelineDraft& draft, const Visit& visit) const {
    for (std::size_t s = 0; s < draft.stages.size(); ++s) {
      const auto& groups = draft.stages[s].groups;
      for (std::size_t from = 0; from < groups.size(); ++from) {
        for (std::size_t to = 0; to < groups.size(); ++to) {
          if (from == to || groups[from].samples < 2) continue;
          PipelineDraft moved = draft;
          auto& changed = moved.stages[s].groups;
          ReplicaGroup less = groups[from], more = groups[to];
          less.replicas = more.replicas = 1;
          --less.samples;
          ++more.samples;
          if (!filler_.scorer().sums().known(more.pool, more.degree, more.samples)) continue;
          --changed[from].replicas;
          --changed[to].replicas;
          changed.push_back(less);
          changed.push_back(more);
          changed = ordered_groups(std::move(changed));
          visit(std::move(moved));
        }
      }
    }
  }

  /// Only coarser formats than the present one, up to the coarsest that is allowed.
  void wires(const PipelineDraft& draft, const Visit& visit) const {
    for (std::size_t s = 0; s + 1 < draft.stages.size(); ++s) {
      for (const WireFormat format : {WireFormat::bf16, WireFormat::int8}) {
        if (format > rules_.coarsest_wire || format <= draft.stages[s].wire) continue;
        PipelineDraft moved = draft;
        moved.stages[s].wire = format;
        visit(std::move(moved));
      }
    }
  }

  /// Gives the stages [first, end) new shares after a change; false where their replicas have no
  /// room.
  bool rebalance(PipelineDraft& draft, std::size_t first, std::size_t end) const {
    std::int64_t samples = 0;
    for (const DraftStage& stage : draft.stages) samples = std::max(samples, stage.samples());
    return filler_.balance(draft, samples, first, end);
  }

  const StageFiller& filler_;
  const MoveRules& rules_;
  std::uint64_t& scored_;
};

}  // namespace

double worth(const ScoredDraft& draft) {
  IdVector<PositionId, double> busy(draft.draft.positions(), 0);
  double lacking = 0;
  for (std::size_t s = 0; s < draft.score.stages.size(); ++s) {
    const StageScore& stage = draft.score.stages[s];
    busy[draft.draft.position_of(StageId(s))] +=
        draft.draft.micro_batches * stage.clock.work_s() + stage.reduction_s;
    if (stage.excess_bytes > 0) lacking += stage.excess_bytes / stage.limit_bytes;
  }
  const double squares = std::inner_product(busy.begin(), busy.end(), busy.begin(), 0.0);
  constexpr double weight = 1e-2;
  return (draft.score.step_time_s +
          weight * std::sqrt(squares / static_cast<double>(busy.size()))) *
         (1 + lacking);
}

std::vector<std::string> MoveRules::plain_schedules() const {
  std::vector<std::string> plain;
  for (const DraftSchedule& schedule : draft_schedules()) {
    const bool wanted = std::ranges::find(schedules, schedule.name) != schedules.end();
    if (wanted && schedule.most_chunks == 1) plain.emplace_back(schedule.name);
  }
  if (plain.empty()) plain.emplace_back("1f1b");
  return plain;
}

std::vector<std::string> schedules_for(const ModelGraph& graph,
                                       std::vector<std::string> schedules) {
  if (contrast_of(graph) != ContrastOver::step || schedules.size() == 1) return schedules;
  return {"gpipe"};
}

ScoredDraft improve_draft(ScoredDraft start, const StageFiller& filler, const MoveRules& rules,
                          const std::function<bool()>& stop, std::uint64_t& scored) {
  return DraftMoves(filler, rules, scored).improve(std::move(start), stop);
}

}  // namespace heteroperf
