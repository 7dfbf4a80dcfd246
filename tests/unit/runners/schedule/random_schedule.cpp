#include "tests/unit/runners/schedule/random_schedule.hpp"

#include <algorithm>

#include "runners/schedule/ir/graph_index.hpp"

namespace heteroperf {
namespace {

/// Takes tasks one by one from those that may start.
class RandomOrder {
 public:
  RandomOrder(const PipelineGraph& graph, std::mt19937_64& random)
      : graph_(graph), tasks_(graph), random_(random) {
    const auto slots = static_cast<std::size_t>(tasks_.slots());
    forward_.assign(slots, false);
    gradient_.assign(slots, false);
    weight_.assign(slots, false);
    for (const Interaction& x : graph.interactions) {
      met_.emplace_back(static_cast<std::size_t>(graph.micro_batches), false);
      every_.push_back(x.every);
    }
    programs_.resize(static_cast<std::size_t>(graph.ranks));
  }

  std::vector<std::vector<Instruction>> run() {
    while (true) {
      meet();
      std::vector<Instruction> ready = ready_tasks();
      if (ready.empty()) return programs_;
      const Instruction chosen = ready[random_() % ready.size()];
      const int rank = graph_.segments[chosen.segment].rank;
      if (chance(random_, 10)) programs_[rank].push_back({});
      if (!fuse(chosen, ready)) start(chosen);
      if (chosen.op == Op::forward && chance(random_, 5)) {
        programs_[rank].push_back(
            compute(Op::recompute, chosen.segment, chosen.micro_batch, chosen.part));
      }
    }
  }

 private:
  std::vector<Instruction> ready_tasks() const {
    std::vector<Instruction> ready;
    for (std::int32_t slot = 0; slot < tasks_.slots(); ++slot) {
      const auto add = [&](Op op) {
        ready.push_back(compute(op, tasks_.segment_of(slot), tasks_.micro_batch_of(slot),
                                tasks_.part_of(slot)));
      };
      if (!forward_[slot] && forward_ready(slot)) add(Op::forward);
      if (forward_[slot] && !gradient_[slot] && gradient_ready(slot)) {
        add(slot % 3 == 0 ? Op::backward : Op::input_gradient);
      }
      if (gradient_[slot] && !weight_[slot]) add(Op::weight_gradient);
    }
    return ready;
  }

  bool forward_ready(std::int32_t slot) const {
    bool ready = true;
    tasks_.for_each_forward_input(
        slot, [&](std::int32_t other, EdgeId) { ready = ready && forward_[other]; });
    return ready;
  }

  bool gradient_ready(std::int32_t slot) const {
    bool ready = true;
    tasks_.for_each_gradient_input(
        slot, [&](std::int32_t other, EdgeId) { ready = ready && gradient_[other]; });
    for (const int x : tasks_.interactions_of(tasks_.segment_of(slot))) {
      ready = ready && met_[x][tasks_.interaction_set(x, tasks_.micro_batch_of(slot))];
    }
    return ready;
  }

  void start(const Instruction& i) {
    const std::int32_t slot = tasks_.slot(i.segment, i.micro_batch, i.part);
    if (i.op == Op::forward) forward_[slot] = true;
    if (i.op == Op::input_gradient || i.op == Op::backward) gradient_[slot] = true;
    if (i.op == Op::weight_gradient || i.op == Op::backward) weight_[slot] = true;
    programs_[graph_.segments[i.segment].rank].push_back(i);
  }

  /// Both may start now, so neither waits for the other.
  bool fuse(const Instruction& first, const std::vector<Instruction>& ready) {
    if (first.op != Op::forward || !chance(random_, 30)) return false;
    for (const Instruction& second : ready) {
      const bool here = graph_.segments[second.segment].rank == graph_.segments[first.segment].rank;
      if (!here || (second.op != Op::backward && second.op != Op::input_gradient)) continue;
      start(first);
      programs_[graph_.segments[first.segment].rank].back().fused_with_next = true;
      start(second);
      return true;
    }
    return false;
  }

  void meet() {
    for (int x = 0; x < static_cast<int>(every_.size()); ++x) {
      const Segment& member = graph_.segments[graph_.interactions[x].members.front()];
      for (MicroBatchId k = member.first_micro_batch; k < member.end_micro_batch();
           k = k + every_[x]) {
        if (!met_[x][k] && may_meet(x, k)) meet(x, k);
      }
    }
  }

  bool may_meet(int x, MicroBatchId first) const {
    for (const SegmentId member : graph_.interactions[x].members) {
      for (MicroBatchId k = first; k < first + every_[x] && graph_.passes(member, k); ++k) {
        for (int part = 0; part < graph_.parts; ++part) {
          if (!forward_[tasks_.slot(member, k, part)]) return false;
        }
      }
    }
    return true;
  }

  void meet(int x, MicroBatchId first) {
    met_[x][first] = true;
    std::vector<int> ranks;
    for (const SegmentId member : graph_.interactions[x].members) {
      ranks.push_back(graph_.segments[member].rank);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    Instruction i;
    i.op = Op::interact;
    i.micro_batch = first;
    i.edge = EdgeId(x);
    for (const int rank : ranks) programs_[rank].push_back(i);
  }

  const PipelineGraph& graph_;
  TaskTable tasks_;
  std::mt19937_64& random_;
  std::vector<bool> forward_, gradient_, weight_;  // [slot]
  std::vector<IdVector<MicroBatchId, bool>> met_;  // [interaction][first micro-batch of a set]
  std::vector<int> every_;
  std::vector<std::vector<Instruction>> programs_;
};

}  // namespace

PipelineGraph random_graph(std::mt19937_64& random) {
  PipelineGraph graph;
  graph.ranks = pick(random, 1, 5);
  graph.micro_batches = pick(random, 1, 5);
  graph.parts = chance(random, 30) ? pick(random, 2, 3) : 1;
  graph.latency = chance(random, 40) ? 0 : 0.25 * pick(random, 1, 8);
  const int segments = pick(random, 1, 9);
  for (const SegmentId s : first_ids<SegmentId>(segments)) {
    Segment segment;
    segment.name = std::to_string(s.value());
    segment.rank = pick(random, 0, graph.ranks - 1);
    segment.forward = pick(random, 0, 4);
    segment.input_gradient = pick(random, 0, 4);
    segment.weight_gradient = pick(random, 0, 4);
    if (s > 0 && chance(random, 15)) segment.weights = pick(random, 0, s.value());
    graph.segments.push_back(segment);
    for (SegmentId from; from < s; ++from) {
      if (chance(random, from + 1 == s ? 70 : 15)) {
        graph.edges.push_back({from, s, 1, !chance(random, 15)});
      }
    }
  }
  const SegmentId last(segments - 1);
  if (segments > 1 && chance(random, 30)) {
    graph.interactions.push_back({"join",
                                  {last, SegmentId(pick(random, 0, segments - 2))},
                                  pick(random, 1, graph.micro_batches),
                                  1});
  }
  if (segments > 2 && chance(random, 30)) graph.tied = {{0, last}, {last, 1}};
  normalise(graph);
  return graph;
}

Schedule random_schedule(PipelineGraph graph, std::mt19937_64& random) {
  Schedule schedule;
  schedule.name = "random";
  schedule.graph = std::move(graph);
  schedule.programs = RandomOrder(schedule.graph, random).run();
  return schedule;
}

Schedule fill_and_drain(PipelineGraph graph) {
  Schedule schedule;
  schedule.graph = std::move(graph);
  std::vector<SegmentId> order = topological_order(schedule.graph);
  IdVector<SegmentId, int> depth(order.size(), 0);
  for (const SegmentId segment : order) {
    for (const Edge& edge : schedule.graph.edges) {
      if (edge.to == segment) depth[segment] = std::max(depth[segment], depth[edge.from] + 1);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](SegmentId a, SegmentId b) { return depth[a] < depth[b]; });
  schedule.programs.resize(static_cast<std::size_t>(schedule.graph.ranks));
  const auto all = [&](Op op, SegmentId segment) {
    const Segment& s = schedule.graph.segments[segment];
    for (MicroBatchId k = s.first_micro_batch; k < s.end_micro_batch(); ++k) {
      schedule.programs[s.rank].push_back(compute(op, segment, k));
    }
  };
  for (const SegmentId segment : order) all(Op::forward, segment);
  for (auto segment = order.rbegin(); segment != order.rend(); ++segment) {
    all(Op::backward, *segment);
  }
  return schedule;
}

PipelineGraph circle_graph(int ranks) {
  PipelineGraph graph;
  graph.ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    graph.segments.emplace_back().rank = rank;
    graph.segments.emplace_back().rank = (rank + 1) % ranks;
    graph.edges.push_back({SegmentId(2 * rank), SegmentId(2 * rank + 1), 1, true});
  }
  normalise(graph);
  return graph;
}

}  // namespace heteroperf
