// Drafts of placements in numbers.
//
// A draft's pipeline has a segment for each stage, with the sums of its layers' times on the
// slowest replica, and an edge for all tensors that go from one stage to another. The devices of a
// position have a *room*: their memory without the states of all stages there, the fullest pass and
// its messages. What a micro-batch keeps is told as a share of it, so that a search for an order
// can be held to the room; a device that has too little even for one micro-batch lacks bytes.
//
// To save memory for a given order, stages recompute: again and again the stage that saves most for
// the time that it takes, on a position whose devices are too full in this order.
#include "runners/plan/search/placed_draft.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "metrics/base/quantity.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "runners/plan/search/problem/planning_problem.hpp"
#include "runners/schedule/simulate/report.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {

PlacedDraftTables::PlacedDraftTables(const GraphProblem& problem)
    : problem_(problem), tables_(problem.problem()), sums_(tables_) {
  find_edges();
}

/// Data cross nowhere: every stage reads its own.
void PlacedDraftTables::find_edges() {
  const ModelGraph& graph = problem_.task().graph;
  std::vector<int> layer_of;  // [node]
  for (int layer = 0; layer < tables_.layers; ++layer) {
    layer_of.resize(problem_.ends()[layer], layer);
  }
  std::map<std::pair<int, int>, std::set<NodeId>> crossing;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    for (const NodeId input : graph.nodes()[i].inputs) {
      const bool data = std::holds_alternative<Input>(graph.node(input).attributes);
      const std::pair ends{layer_of[input.index()], layer_of[i]};
      if (!data && ends.first != ends.second) crossing[ends].insert(input);
    }
  }
  for (const auto& [ends, nodes] : crossing) {
    LayerEdge& edge = edges_.emplace_back(LayerEdge{ends.first, ends.second});
    for (const NodeId id : nodes) {
      const Node& node = graph.node(id);
      edge.bytes += static_cast<double>(element_count(node.output)) * usual_items(graph, node) *
                    tables_.master_bytes;
      edge.gradient = edge.gradient || node.differentiable;
    }
  }
  whole_step_ = contrast_of(graph) == ContrastOver::step;
}

LayerSums::Work PlacedDraftTables::work_of(const std::vector<ReplicaGroup>& groups,
                                           LayerSums::Range layers,
                                           Recomputation recomputation) const {
  LayerSums::Work most;
  for (const ReplicaGroup& group : groups) {
    most.raise_to(sums_.work(group, layers, recomputation));
  }
  return most;
}

double PlacedDraftTables::update_s(const std::vector<ReplicaGroup>& groups,
                                   LayerSums::Range layers) const {
  int replicas = 0;
  for (const ReplicaGroup& group : groups) replicas += group.replicas;
  double ring_s = 0, optimizer_s = 0;
  for (const ReplicaGroup& group : groups) {
    const double bytes = sums_.parameters(group.degree, layers) * tables_.master_bytes;
    const double rate = tables_.pools[group.pool].optimizer_rate;
    if (rate > 0) optimizer_s = std::max(optimizer_s, optimizer_words * bytes / rate);
    for (const ReplicaGroup& other : groups) {
      if (replicas == 1) continue;
      // A ring sends 2 (r − 1) parts of an r-th each.
      const auto part = Bytes(static_cast<std::uint64_t>(bytes / replicas));
      ring_s = std::max(ring_s, 2 * (replicas - 1) * link_s(group.pool, other.pool, part));
    }
  }
  return ring_s + optimizer_s;
}

/// The draft's pipeline, with the times of its layers and messages.
PipelineGraph PlacedDraftTables::timed(const PlacedDraft& draft) const {
  PipelineGraph graph;
  graph.ranks = static_cast<int>(draft.division.positions.size());
  graph.micro_batches = static_cast<int>(tables_.batch / draft.samples);
  std::vector<SegmentId> segment_of(tables_.layers);
  for (std::size_t s = 0; s < draft.stages.size(); ++s) {
    const PlacedStage& stage = draft.stages[s];
    const LayerSums::Work work = work_of(stage.groups, stage.layers, draft.recomputation[s]);
    for (int l = stage.layers.first; l < stage.layers.end; ++l) {
      segment_of[l] = SegmentId(graph.segments.size());
    }
    Segment segment;
    segment.rank = static_cast<int>(stage.position);
    segment.forward = work.forward_s;
    segment.input_gradient = work.recompute_s + work.input_gradient_s;
    segment.weight_gradient = work.weight_gradient_s;
    graph.segments.push_back(segment);
  }
  std::map<std::pair<SegmentId, SegmentId>, LayerEdge> joined;
  for (const LayerEdge& edge : edges_) {
    const std::pair ends{segment_of[edge.from], segment_of[edge.to]};
    if (ends.first == ends.second) continue;
    LayerEdge& sum = joined[ends];
    sum.bytes += edge.bytes;
    sum.gradient = sum.gradient || edge.gradient;
  }
  for (const auto& [ends, sum] : joined) {
    const double seconds = message_s(draft.stages[ends.first.index()].groups,
                                     draft.stages[ends.second.index()].groups, sum.bytes);
    graph.edges.push_back({ends.first, ends.second, sum.bytes, sum.gradient, seconds, seconds});
  }
  if (whole_step_) {
    const SegmentId last(graph.segments.size() - 1);
    graph.interactions = {{"loss", {last}, graph.micro_batches, 0}};
  }
  normalise(graph);
  return graph;
}

/// A message from one pool to another; within a pool of one device nothing travels.
double PlacedDraftTables::link_s(int from, int to, Bytes bytes) const {
  const LinkCurve& link = tables_.links[from][to];
  return link.empty() ? 0 : link.time(bytes).value();
}

/// The time of the largest message between two replicas, of so many bytes per sample.
double PlacedDraftTables::message_s(const std::vector<ReplicaGroup>& from,
                                    const std::vector<ReplicaGroup>& to, double bytes) const {
  double most = 0;
  for (const ReplicaGroup& a : from) {
    for (const ReplicaGroup& b : to) {
      const double size = bytes * static_cast<double>(std::min(a.samples, b.samples));
      const auto whole = Bytes(static_cast<std::uint64_t>(size));
      most = std::max(most, link_s(a.pool, b.pool, whole));
    }
  }
  return most;
}

PlacedDraftTables::Pipeline PlacedDraftTables::pipeline_of(const PlacedDraft& draft) const {
  Pipeline result{timed(draft)};
  std::vector<std::vector<std::size_t>> stages_of(draft.division.positions.size());
  for (std::size_t s = 0; s < draft.stages.size(); ++s) {
    stages_of[draft.stages[s].position].push_back(s);
    result.graph.segments[SegmentId(s)].activation = 0;
  }
  for (const std::vector<std::size_t>& here : stages_of) {
    // The stages of a position have as many groups of replicas, of the same devices.
    const std::size_t groups = here.empty() ? 0 : draft.stages[here.front()].groups.size();
    for (std::size_t g = 0; g < groups; ++g) add_shares(draft, here, g, result);
  }
  return result;
}

/// Raises the shares of the stages of one position to those on the devices of a group.
void PlacedDraftTables::add_shares(const PlacedDraft& draft, const std::vector<std::size_t>& stages,
                                   std::size_t group_number, Pipeline& pipeline) const {
  const double limit =
      tables_.pools[draft.stages[stages.front()].groups[group_number].pool].memory_bytes;
  if (limit <= 0) return;
  double states = 0, passing = 0, least = 0, most_added = 0;
  std::vector<LayerSums::Activations> kept;
  for (const std::size_t s : stages) {
    const PlacedStage& stage = draft.stages[s];
    const ReplicaGroup& group = stage.groups[group_number];
    states += sums_.state_memory(group.degree, stage.layers,
                                 draft.zero_stage() == 0 ? 1 : group.replicas);
    kept.push_back(
        sums_.activations(group.degree, group.samples, stage.layers, draft.recomputation[s]));
    passing = std::max(passing, kept.back().passing + kept.back().messages);
    least += kept.back().kept;
    most_added = std::max(most_added, kept.back().split - kept.back().kept);
  }
  if (whole_step_) least *= static_cast<double>(pipeline.graph.micro_batches);
  const double room = limit - states - passing;
  pipeline.lacking = std::max(pipeline.lacking, least + most_added - room);
  for (std::size_t i = 0; i < stages.size() && room > 0; ++i) {
    Segment& segment = pipeline.graph.segments[SegmentId(stages[i])];
    const double share = kept[i].kept / room;
    if (share <= segment.activation) continue;
    segment.activation = share;
    segment.weight_part = kept[i].split / kept[i].kept;
  }
}

double PlacedDraftTables::last_update_s(const PlacedDraft& draft) const {
  std::vector<double> updates(draft.division.positions.size(), 0);
  for (const PlacedStage& stage : draft.stages) {
    updates[stage.position] += update_s(stage.groups, stage.layers);
  }
  return *std::ranges::max_element(updates);
}

void PlacedDraftTables::recompute_for(Schedule order, PlacedDraft& draft) const {
  const auto peaks_of = [&] {
    order.graph = pipeline_of(draft).graph;
    return memory_peaks(order).memory;
  };
  std::vector<double> peaks = peaks_of();
  for (std::size_t best = 0; best < draft.stages.size();) {
    best = draft.stages.size();
    double most = 0;
    Recomputation level{};
    for (std::size_t s = 0; s < draft.stages.size(); ++s) {
      const PlacedStage& stage = draft.stages[s];
      const Recomputation before = draft.recomputation[s];
      if (peaks[stage.position] <= 1) continue;
      for (const Recomputation next : recomputations) {
        if (next <= before) continue;
        draft.recomputation[s] = next;
        const double saved = peaks[stage.position] - peaks_of()[stage.position];
        const double added_s = work_of(stage.groups, stage.layers, next).total() -
                               work_of(stage.groups, stage.layers, before).total();
        const double gain = saved / std::max(added_s, 1e-12);
        if (saved > 0 && gain > most) most = gain, best = s, level = next;
      }
      draft.recomputation[s] = before;
    }
    if (best == draft.stages.size()) return;
    draft.recomputation[best] = level;
    peaks = peaks_of();
  }
}

}  // namespace heteroperf
