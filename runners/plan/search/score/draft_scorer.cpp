// The time and the memory of a draft, by the rules that stage_times(), predict() and plan_memory()
// apply to a whole plan.
//
// Scores must be cheap, since a search makes millions of them, so everything of a stage comes from
// sums over layers, and groups of like replicas are timed once. DraftTimer first works out what
// does not depend on the order of passes: compute of the slowest group, messages, sums, optimizer
// and memory. A clock then gives the end of each position's last pass: exactly (score), exactly for
// the beginning and by the steady period for the rest (extrapolate), or by formula (estimate).
// finish() adds the sums over replicas and the optimizer to these ends.
//
// The three agree in all but the ends, so a draft may be filtered by estimate() and judged by
// score().
//
// Nodes of the pools must have room for the tensor-parallel groups. A group of a degree stays
// within one node, so a draft may have enough devices in a pool and still not fit: two groups of
// three do not share a node of four. The check packs groups as GraphProblem::plan() does, largest
// degrees first, each into the fullest node that still has room, and it counts nodes by their free
// devices instead of listing them, because pools may have thousands. Pools are thought to consist
// of equal nodes and at most one smaller one.
#include "runners/plan/search/score/draft_scorer.hpp"

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/plan_bytes.hpp"

namespace heteroperf {
namespace {

LayerSums::Range range_of(const DraftStage& stage) { return {stage.first, stage.end}; }

ClockOrder clock_order(const std::string& schedule) {
  return schedule == "zb-h1"   ? ClockOrder::zb_h1
         : schedule == "zb-h2" ? ClockOrder::zb_h2
                               : ClockOrder::one_f_one_b;
}

/// Optimizer states are shared among replicas of one degree: others hold other parts.
int state_replicas(const PipelineDraft& draft, const DraftStage& stage) {
  const bool alike = std::ranges::all_of(stage.groups, [&](const ReplicaGroup& group) {
    return group.degree == stage.groups.front().degree;
  });
  return draft.zero_stage == 1 && alike ? stage.replicas() : 1;
}

/// Nodes of one pool, by how many of their devices are free.
class FreeNodes {
 public:
  FreeNodes(int devices, int per_node) : count_(static_cast<std::size_t>(per_node) + 1, 0) {
    count_[per_node] = devices / per_node;
    ++count_[devices % per_node];
  }

  /// Takes groups from the fullest nodes that have room, as plans do; false where there are too
  /// few.
  bool take(int groups, int degree) {
    for (std::size_t size = degree; size < count_.size() && groups > 0; ++size) {
      const int taken = std::min(groups, count_[size]);
      count_[size] -= taken;
      count_[size - static_cast<std::size_t>(degree)] += taken;
      groups -= taken;
      // The rest of these nodes may have room again.
      if (taken > 0 && size >= 2 * static_cast<std::size_t>(degree))
        size = static_cast<std::size_t>(degree) - 1;
    }
    return groups == 0;
  }

 private:
  std::vector<int> count_;
};

/// Works out the score of one draft: all but the times that depend on the order of passes at once,
/// and these by one of the two ways to finish.
class DraftTimer {
 public:
  DraftTimer(const DraftScorer& scorer, const PipelineDraft& draft)
      : scorer_(scorer), problem_(scorer.problem()), sums_(scorer.sums()), draft_(draft) {
    add_parts();
  }

  std::vector<ClockStage> clocks() const { return result_.clocks(); }

  /// A stage's gradients are summed when its last backward has ended, a table's when those of both
  /// its stages have.
  DraftScore finish(const std::vector<double>& ends) {
    const double both = std::max(ends.front(), ends.back());
    double step = 0;
    for (std::size_t s = 0; s < ends.size(); ++s) {
      // The table's holders wait for each other.
      const double ready = shares_table(s) ? both : ends[s];
      const StageScore& stage = result_.stages[s];
      const double reduced = stage.reduction_s > 0 ? ready + stage.reduction_s : ends[s];
      step = std::max(step, std::max(reduced, ends[s]) + stage.optimizer_s);
      result_.makespan_s = std::max(result_.makespan_s, ends[s]);
    }
    result_.step_time_s = step + result_.agreement_s;
    return std::move(result_);
  }

  /// A position sums its stages' gradients one after the other, each when the last of them is
  /// there; a table's when both its positions have ended. Then it updates all its stages.
  DraftScore finish_chunks(const PassOrder& order) {
    const ChunkEnds ends = chunk_ends(result_.clocks(), order);
    const std::size_t stages = result_.stages.size();
    const double both =
        std::max(ends.positions.front(), ends.positions[order.position_of(StageId(stages - 1))]);
    double step = 0;
    for (const PositionId q : ends.positions.ids()) {
      std::vector<StageId> here = order.stages_of(q);
      std::ranges::stable_sort(here, {}, [&](StageId s) { return ends.stages[s]; });
      double end = ends.positions[q], free = 0, update_s = 0;
      for (const StageId s : here) {
        const StageScore& stage = result_.stages[s.index()];
        update_s += stage.optimizer_s;
        if (stage.reduction_s == 0) continue;
        free = std::max(free, shares_table(s.index()) ? both : ends.stages[s]) + stage.reduction_s;
        end = std::max(end, free);
      }
      step = std::max(step, end + update_s);
      result_.makespan_s = std::max(result_.makespan_s, ends.positions[q]);
    }
    result_.step_time_s = step + result_.agreement_s;
    for (const PositionId q : first_ids<PositionId>(order.positions())) {
      const std::size_t first = order.stages_of(q).front().index();
      for (const ReplicaGroup& group : draft_.stages[first].groups) {
        add_memory(chunk_memory(order, q, group), group, result_.stages[first]);
      }
    }
    return std::move(result_);
  }

 private:
  /// Replicas of both stages split the micro-batch in their order: the largest overlap of any two
  /// over their link.
  double message(const DraftStage& from, const DraftStage& to, double bytes_per_sample) const {
    if (bytes_per_sample <= 0) return 0;
    double slowest = 0;
    std::size_t a = 0, b = 0;
    std::int64_t a_first = 0, b_first = 0;  // samples before the replicas at hand
    int a_done = 0, b_done = 0;             // replicas of the groups at hand
    // A pair of groups that was timed before need not be timed again.
    std::int64_t seen = 0;
    std::size_t seen_a = from.groups.size(), seen_b = 0;
    while (a < from.groups.size() && b < to.groups.size()) {
      const ReplicaGroup &x = from.groups[a], &y = to.groups[b];
      const std::int64_t a_end = a_first + x.samples, b_end = b_first + y.samples;
      const std::int64_t overlap = std::min(a_end, b_end) - std::max(a_first, b_first);
      if (a != seen_a || b != seen_b) seen = 0, seen_a = a, seen_b = b;
      if (overlap > seen) {
        seen = overlap;
        // Bytes are whole in a plan.
        const double bytes = std::ceil(bytes_per_sample * static_cast<double>(overlap));
        const LinkCurve& link = problem_.links[x.pool][y.pool];
        slowest = std::max(slowest, link.time(Bytes(static_cast<std::uint64_t>(bytes))).value());
      }
      if (a_end <= b_end) {
        a_first = a_end;
        if (++a_done == x.replicas) ++a, a_done = 0;
      }
      if (b_end <= a_end) {
        b_first = b_end;
        if (++b_done == y.replicas) ++b, b_done = 0;
      }
    }
    return slowest;
  }

  /// Ring all-reduce over the first ranks of all replicas, by its slowest link.
  double ring(const std::vector<const DraftStage*>& stages, double bytes) const {
    int replicas = 0;
    int first = -1, last = -1;
    double latency = 0, seconds_per_byte = 0;
    const auto add = [&](int a, int b) {
      const LinkCurve& link = problem_.links[a][b];
      latency = std::max(latency, link.latency().value());
      seconds_per_byte = std::max(seconds_per_byte, 1 / link.bandwidth().value());
    };
    for (const DraftStage* stage : stages) {
      for (const ReplicaGroup& group : stage->groups) {
        if (first < 0) first = group.pool;
        if (last >= 0) add(last, group.pool);
        if (group.replicas > 1) add(group.pool, group.pool);
        last = group.pool;
        replicas += group.replicas;
      }
    }
    if (replicas < 2) return 0;
    add(last, first);
    const double n = replicas;
    return 2 * (n - 1) / n * bytes * seconds_per_byte + 2 * (n - 1) * latency;
  }

  /// True for the first and the last stage where they hold one table (a tied head) in two places.
  bool shares_table(std::size_t stage) const {
    return !problem_.tied_parameters.empty() && draft_.stages.size() > 1 &&
           (stage == 0 || stage + 1 == draft_.stages.size());
  }

  /// The fullest rank's memory; a table that two stages hold is summed apart.
  double reduced_parameters(std::size_t stage) const {
    const DraftStage& s = draft_.stages[stage];
    const bool without_table = stage == 0 && shares_table(stage);
    double most = 0;
    for (const ReplicaGroup& group : s.groups) {
      double elements = sums_.parameters(group.degree, range_of(s));
      if (without_table) elements -= problem_.tied_parameters[group.degree];
      most = std::max(most, elements);
    }
    return most;
  }

  /// The sum of a shared table's gradients over all replicas of both stages; over one position's
  /// where both stages lie there.
  double tied_reduction() const {
    const DraftStage &first = draft_.stages.front(), &last = draft_.stages.back();
    const double degree = problem_.degrees[first.groups.front().degree];
    const double bytes = problem_.tied_parameters.front() / degree * problem_.master_bytes;
    const bool one_place = draft_.position_of(StageId(draft_.stages.size() - 1)) == 0;
    return one_place ? ring({&first}, bytes) : ring({&first, &last}, bytes);
  }

  /// The passes over a rank's parameters and states; with ZeRO-1 each replica updates its share
  /// alone.
  double optimizer(std::size_t stage) const {
    const DraftStage& s = draft_.stages[stage];
    double elements = reduced_parameters(stage);
    if (shares_table(stage)) {
      elements += problem_.tied_parameters.front() / problem_.degrees[s.groups.front().degree];
    }
    if (draft_.zero_stage == 1) elements /= s.replicas();
    double slowest = 0;
    for (const ReplicaGroup& group : s.groups) {
      const double rate = problem_.pools[group.pool].optimizer_rate;
      if (rate <= 0) continue;
      slowest = std::max(slowest, optimizer_words * elements * problem_.master_bytes / rate);
    }
    return slowest;
  }

  /// A tree over all ranks: as many rounds as it has levels.
  double agreement() const {
    std::vector<int> devices(problem_.pools.size(), 0);
    int ranks = 0;
    // The first chunks are on all positions.
    for (int s = 0; s < draft_.positions(); ++s) {
      for (const ReplicaGroup& group : draft_.stages[s].groups) {
        const int count = group.replicas * problem_.degrees[group.degree];
        devices[group.pool] += count;
        ranks += count;
      }
    }
    double slowest = 0;
    for (std::size_t a = 0; a < devices.size(); ++a) {
      for (std::size_t b = a; b < devices.size(); ++b) {
        if (devices[a] < (a == b ? 2 : 1) || devices[b] < 1) continue;
        slowest = std::max(slowest, problem_.links[a][b].time(Bytes(16)).value());
      }
    }
    return ranks > 1 ? slowest * std::ceil(std::log2(ranks)) : 0;
  }

  /// Keeps the numbers of the group that has the least room.
  void add_memory(double bytes, const ReplicaGroup& group, StageScore& score) const {
    const double limit = problem_.pools[group.pool].memory_bytes;
    const auto room = [](double of, double need) { return of > 0 ? of - need : infinite; };
    if (score.memory_bytes > 0 &&
        room(limit, bytes) >= room(score.limit_bytes, score.memory_bytes)) {
      return;
    }
    score.memory_bytes = bytes;
    score.limit_bytes = limit;
    score.excess_bytes = std::max(0.0, -room(limit, bytes));
  }

  /// Everything of a score but the times that depend on the order of passes.
  void add_parts() {
    const bool tied = shares_table(0);
    const double table_s = tied ? tied_reduction() : 0;
    for (std::size_t s = 0; s < draft_.stages.size(); ++s) {
      const DraftStage& stage = draft_.stages[s];
      StageScore& score = result_.stages.emplace_back();
      score.clock = scorer_.compute(stage);
      const StageId place(s);
      const bool sends = s + 1 < draft_.stages.size() &&
                         draft_.position_of(place) != draft_.position_of(place + 1);
      if (sends) {
        const std::size_t cut = stage.end - 1;
        const auto format = static_cast<std::size_t>(stage.wire);
        score.clock.activation_s =
            message(stage, draft_.stages[s + 1], problem_.activation_bytes[cut][format]);
        score.clock.gradient_s =
            message(stage, draft_.stages[s + 1], problem_.gradient_bytes[cut][format]);
      }
      score.reduction_s = ring({&stage}, reduced_parameters(s) * problem_.master_bytes);
      if (shares_table(s)) score.reduction_s += table_s;
      score.optimizer_s = optimizer(s);
      // A position's memory needs all of its chunks; finish_chunks() adds it.
      if (draft_.chunks > 1) continue;
      const LayerSums::Holding holding{
          stage.recomputation, std::min(draft_.micro_batches, stage.warm_up + 1),
          state_replicas(draft_, stage), clock_order(draft_.schedule) != ClockOrder::one_f_one_b};
      for (const ReplicaGroup& group : stage.groups) {
        add_memory(sums_.memory(group.degree, group.samples, range_of(stage), holding), group,
                   score);
      }
    }
    result_.agreement_s = agreement();
    result_.finds_nodes = finds_nodes();
  }

  /// States of all chunks, the fullest moment of what they keep, and what the largest pass and the
  /// messages of all need beside it.
  double chunk_memory(const PassOrder& order, PositionId position,
                      const ReplicaGroup& group) const {
    const std::vector<StageId>& here = order.stages_of(position);
    const DraftStage& front = draft_.stages[here.front().index()];
    const int sharing = state_replicas(draft_, front);
    double states = 0, passing = 0, messages = 0;
    std::vector<double> kept(2 * here.size(), 0);
    for (std::size_t c = 0; c < here.size(); ++c) {
      const DraftStage& stage = draft_.stages[here[c].index()];
      const LayerSums::Activations activations =
          sums_.activations(group.degree, group.samples, range_of(stage), stage.recomputation);
      states += sums_.state_memory(group.degree, range_of(stage), sharing);
      kept[c] = activations.kept;
      kept[here.size() + c] = activations.split;
      passing = std::max(passing, activations.passing);
      messages += activations.messages;
    }
    double fullest = 0;
    for (const std::vector<int>& moment : order.fullest(position)) {
      double sum = 0;
      for (std::size_t i = 0; i < moment.size(); ++i) sum += moment[i] * kept[i];
      fullest = std::max(fullest, sum);
    }
    return states + fullest + passing + messages;
  }

  bool finds_nodes() const {
    for (std::size_t p = 0; p < problem_.pools.size(); ++p) {
      std::vector<int> groups(problem_.degrees.size(), 0);
      const int per_node = problem_.pools[p].devices_per_node;
      bool even = true;
      for (int s = 0; s < draft_.positions(); ++s) {
        for (const ReplicaGroup& group : draft_.stages[s].groups) {
          if (static_cast<std::size_t>(group.pool) != p) continue;
          groups[group.degree] += group.replicas;
          even = even && per_node % problem_.degrees[group.degree] == 0;
        }
      }
      // Degrees that divide the nodes, and each other, always find room.
      const bool powers = even && (per_node & (per_node - 1)) == 0;
      // Nothing is packed in the usual case.
      if (powers) continue;
      FreeNodes nodes(problem_.pools[p].devices, per_node);
      for (std::size_t d = groups.size(); d-- > 0;) {
        if (!nodes.take(groups[d], problem_.degrees[d])) return false;
      }
    }
    return true;
  }

  const DraftScorer& scorer_;
  const PlanningProblem& problem_;
  const LayerSums& sums_;
  const PipelineDraft& draft_;
  DraftScore result_;
};

}  // namespace

bool DraftScore::fits() const {
  return finds_nodes && std::ranges::all_of(stages, [](const StageScore& stage) {
           return stage.excess_bytes <= 0;
         });
}

std::vector<ClockStage> DraftScore::clocks() const {
  std::vector<ClockStage> clocks;
  for (const StageScore& stage : stages) clocks.push_back(stage.clock);
  return clocks;
}

ClockStage DraftScorer::compute(const DraftStage& stage) const {
  ClockStage clock;
  for (const ReplicaGroup& group : stage.groups) {
    clock.raise_to(sums_.work(group, range_of(stage), stage.recomputation));
  }
  clock.warm_up = stage.warm_up;
  return clock;
}

DraftScore DraftScorer::score(const PipelineDraft& draft) const {
  if (draft.chunks > 1) {
    const PassOrder* order = order_of(draft);
    if (order != nullptr) return DraftTimer(*this, draft).finish_chunks(*order);
    DraftScore none;
    none.step_time_s = none.makespan_s = infinite;
    return none;
  }
  DraftTimer timer(*this, draft);
  return timer.finish(
      pipeline_ends(timer.clocks(), draft.micro_batches, clock_order(draft.schedule)));
}

DraftScore DraftScorer::extrapolate(const PipelineDraft& draft) const {
  const auto stages = static_cast<int>(draft.stages.size());
  int deepest = 0;
  for (const DraftStage& stage : draft.stages) deepest = std::max(deepest, stage.warm_up);
  // The first pass through the pipeline, and a few rounds of all that is under way.
  const int settled = 4 * (deepest + stages), more = deepest + stages;
  // Too few micro-batches to gain from it.
  if (draft.micro_batches < 2 * (settled + more)) return score(draft);
  DraftTimer timer(*this, draft);
  const std::vector<ClockStage> clocks = timer.clocks();
  const ClockOrder order = clock_order(draft.schedule);
  const std::vector<double> before = pipeline_ends(clocks, settled, order);
  std::vector<double> ends = pipeline_ends(clocks, settled + more, order);
  for (std::size_t s = 0; s < ends.size(); ++s) {
    ends[s] += (ends[s] - before[s]) / more * (draft.micro_batches - settled - more);
  }
  return timer.finish(ends);
}

DraftScore DraftScorer::estimate(const PipelineDraft& draft) const {
  DraftTimer timer(*this, draft);
  const std::vector<ClockStage> clocks = timer.clocks();
  std::vector<double> ends(clocks.size(), pipeline_estimate(clocks, draft.micro_batches));
  // The formula gives the end of the first position, where the last backward pass ends; each later
  // position ends sooner by the way back.
  for (std::size_t s = 1; s < ends.size(); ++s) {
    const ClockStage& before = clocks[s - 1];
    ends[s] = ends[s - 1] - before.input_gradient_s - before.weight_gradient_s - before.gradient_s;
  }
  return timer.finish(ends);
}

const PassOrder* DraftScorer::order_of(const PipelineDraft& draft) const {
  const auto key = std::tuple(draft.schedule, draft.positions(), draft.chunks, draft.micro_batches);
  // The order depends on these numbers alone, so it is made once, and refusals are remembered.
  auto known = orders_.find(key);
  if (known == orders_.end()) {
    known = orders_.emplace(key, std::nullopt).first;
    try {
      known->second.emplace(draft.schedule, draft.positions(), draft.chunks, draft.micro_batches);
    } catch (const UserError&) {
      // These numbers are not for this schedule.
    }
  }
  return known->second ? &*known->second : nullptr;
}

}  // namespace heteroperf
