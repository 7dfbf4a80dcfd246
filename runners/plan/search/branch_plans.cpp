// Plans that place the components of a model beside each other.
//
// The search for drafts cuts a model as one chain of layers. Here the devices are divided into
// *positions*, and the layers of each component are laid on the positions by lay_branches(): over
// all of them in either direction, on positions of their own, on the first one. A division is that
// of one of the best chains, with its replicas, or it has positions of equal numbers of devices, or
// one position for every pool. For every division, every size of a micro-batch and every choice of
// tensor-parallel degrees, each placement becomes a *draft*: a pipeline graph with the times of
// layers, messages and sums, which gets a short search for an order. Drafts whose lower bound says
// that they cannot beat the best of their placement are passed over.
//
// The best draft of each placement becomes a plan, and the exact ledger and the simulator judge it,
// as they judge the drafts of the chain. A draft keeps to the memory by its order, and by
// recomputation where that is faster than to wait; if the ledger still refuses it, more
// recomputation may help, or the next best draft does.
#include "runners/plan/search/branch_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "metrics/base/error.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "runners/plan/search/problem/layer_sums.hpp"
#include "runners/plan/search/problem/planning_problem.hpp"
#include "runners/schedule/search/branch_placement.hpp"
#include "runners/schedule/search/search.hpp"
#include "runners/schedule/simulate/report.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

constexpr int most_positions = 16;
constexpr int most_of_a_step = 128;          // micro-batches
constexpr long long draft_evaluations = 40;  // orders that a draft is timed with
constexpr std::size_t kept_drafts = 3;       // of a placement, for the exact ledger

/// Devices that run one program: some of a pool that follow each other, or those of a chain's
/// position, whose replicas are given.
struct DevicePosition {
  int pool = 0, first = 0, devices = 0;
  std::vector<ReplicaGroup> groups = {};
  IdVector<ReplicaId, StageReplica> replicas = {};
};

/// A way to divide the devices.
struct Division {
  std::vector<DevicePosition> positions;
  std::int64_t samples = 0;          // of a micro-batch, where the replicas are given
  std::vector<RankId> devices = {};  // Plan::devices
};

/// A component's layers, in runs of layers that follow each other. One that exchanges with others
/// has several.
struct ComponentLayers {
  std::string name;
  std::vector<LayerSums::Range> runs;
};

/// A stage of a draft: layers of one component on a position, with its replicas there.
struct PlacedStage {
  LayerSums::Range layers;
  std::size_t position = 0;
  std::vector<ReplicaGroup> groups;
};

/// A plan in numbers.
struct PlacedDraft {
  std::string placement;
  Division division;
  std::vector<PlacedStage> stages;
  std::int64_t samples = 1;                       // of a micro-batch
  std::vector<Recomputation> recomputation = {};  // [stage]
  double step_s = 0;

  /// The replicas of a stage share their optimizer states: that saves memory and costs nothing.
  int zero_stage() const {
    return std::ranges::any_of(stages, [](const PlacedStage& stage) {
      return stage.groups.size() > 1 || stage.groups.front().replicas > 1;
    });
  }
};

/// The drafts of a placement: the fastest ones that fit, and the one that lacks least memory.
struct PlacementDrafts {
  std::vector<PlacedDraft> best;
  std::optional<PlacedDraft> nearest;
  double lacking = infinite;  // bytes, of the nearest
};

/// A tensor that goes from one layer to a later one.
struct LayerEdge {
  int from = 0, to = 0;
  double bytes = 0;  // per sample
  bool gradient = false;
};

class BranchPlanSearch {
 public:
  BranchPlanSearch(const GraphProblem& problem, const std::vector<PipelineDraft>& chains,
                   const std::function<bool()>& stop)
      : problem_(problem),
        tables_(problem.problem()),
        sums_(tables_),
        chains_(chains),
        stop_(stop) {
    find_components();
  }

  std::vector<PlacedPlan> run() {
    if (components_.size() < 2) return {};
    find_edges();
    for (const Division& division : chain_divisions()) try_division(division, division.samples);
    for (const Division& division : even_divisions()) {
      for (const std::int64_t samples : micro_batches()) try_division(division, samples);
    }
    std::vector<PlacedPlan> plans;
    for (auto& [placement, drafts] : best_) plans.push_back(plan_of(placement, drafts));
    return plans;
  }

 private:
  /// The replicas of each [component][position].
  using Shares = std::vector<std::vector<std::vector<ReplicaGroup>>>;

  void try_division(const Division& division, std::int64_t samples) {
    for (const Shares& shares : choices(division, samples)) {
      if (!stop_()) try_placements(division, samples, shares);
    }
  }

  /// Components are the layers of one branch. A last layer that is the loss alone follows the end
  /// of any component. Nothing is placed where a layer has nodes of several branches.
  void find_components() {
    const ModelGraph& graph = problem_.task().graph;
    std::size_t node = 0;
    for (int layer = 0; layer < tables_.layers; ++layer) {
      const std::size_t first = node;
      node = problem_.ends()[layer];
      const std::string& name = graph.nodes()[node - 1].branch;
      const bool one = std::all_of(graph.nodes().begin() + static_cast<std::ptrdiff_t>(first),
                                   graph.nodes().begin() + static_cast<std::ptrdiff_t>(node),
                                   [&](const Node& each) { return each.branch == name; });
      layer_of_.resize(node, layer);
      if (!one) return components_.clear();
      if (layer + 1 == tables_.layers && node - first == 1 && components_.size() > 1) {
        loss_layer_ = layer;
        continue;
      }
      auto known = std::ranges::find(components_, name, &ComponentLayers::name);
      if (known == components_.end()) known = components_.insert(known, {name, {}});
      if (known->runs.empty() || known->runs.back().end < layer) {
        known->runs.push_back({layer, layer});
      }
      known->runs.back().end = layer + 1;
    }
  }

  /// Data cross nowhere: every stage reads its own.
  void find_edges() {
    const ModelGraph& graph = problem_.task().graph;
    std::map<std::pair<int, int>, std::set<NodeId>> crossing;
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
      for (const NodeId input : graph.nodes()[i].inputs) {
        const bool data = std::holds_alternative<Input>(graph.node(input).attributes);
        const std::pair ends{layer_of_[input.index()], layer_of_[i]};
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

  /// The positions of the best chains, each set of replicas once.
  std::vector<Division> chain_divisions() const {
    std::vector<Division> result;
    std::set<std::vector<std::vector<ReplicaGroup>>> known;
    for (const PipelineDraft& chain : chains_) {
      std::vector<std::vector<ReplicaGroup>> groups;
      for (int q = 0; q < chain.positions(); ++q) groups.push_back(chain.stages[q].groups);
      if (!known.insert(groups).second) continue;
      const Plan plan = problem_.plan(chain);
      Division& division = result.emplace_back();
      division.samples = chain.stages.front().samples();
      division.devices = plan.devices;
      for (int q = 0; q < chain.positions(); ++q) {
        division.positions.push_back({0, 0, 0, groups[q], plan.stages[StageId(q)].replicas});
      }
    }
    return result;
  }

  /// Positions of equal numbers of devices of one pool, and a position for every pool.
  std::vector<Division> even_divisions() const {
    int width = 0;
    for (const DevicePool& pool : tables_.pools) width = std::gcd(width, pool.devices);
    std::vector<Division> result;
    for (const int devices : divisors(width)) {
      if (tables_.devices() / devices > most_positions) continue;
      std::vector<DevicePosition>& positions = result.emplace_back().positions;
      for (int pool = 0; pool < static_cast<int>(tables_.pools.size()); ++pool) {
        for (int first = 0; first < tables_.pools[pool].devices; first += devices) {
          positions.push_back({pool, first, devices});
        }
      }
    }
    const bool alike = std::ranges::all_of(
        tables_.pools, [&](const DevicePool& pool) { return pool.devices == width; });
    if (alike) return result;
    std::vector<DevicePosition>& by_pool = result.emplace_back().positions;
    for (int pool = 0; pool < static_cast<int>(tables_.pools.size()); ++pool) {
      by_pool.push_back({pool, 0, tables_.pools[pool].devices});
    }
    return result;
  }

  std::vector<std::int64_t> micro_batches() const {
    std::vector<std::int64_t> result;
    for (const std::int64_t samples : divisors(tables_.batch)) {
      if (tables_.batch / samples <= most_of_a_step) result.push_back(samples);
    }
    return result;
  }

  /// The equal replicas of a position at a degree, of which the fullest counts; empty: it has none.
  std::vector<ReplicaGroup> replicas_at(const DevicePosition& position, int degree,
                                        std::int64_t samples) const {
    const int size = tables_.degrees[degree];
    if (position.devices % size != 0 || !within_nodes(position, size)) return {};
    const int replicas = position.devices / size;
    const std::int64_t most = (samples + replicas - 1) / replicas;
    if (replicas > samples || !sums_.known(position.pool, degree, most)) return {};
    return {{position.pool, degree, replicas, most}};
  }

  /// Tensor-parallel groups stay within a node.
  bool within_nodes(const DevicePosition& position, int size) const {
    int begin = 0;
    for (const auto& node : problem_.nodes(position.pool)) {
      const int end = begin + static_cast<int>(node.size());
      const int first = std::max(begin, position.first);
      const int last = std::min(end, position.first + position.devices);
      if (last > first && ((last - first) % size != 0 || (first - position.first) % size != 0)) {
        return false;
      }
      begin = end;
    }
    return true;
  }

  /// The replicas that a division gives; else those of the fastest degree of each component on each
  /// position, sums over replicas included, then those of every degree for all components.
  std::vector<Shares> choices(const Division& division, std::int64_t samples) const {
    const std::vector<DevicePosition>& positions = division.positions;
    Shares fastest(components_.size());
    for (std::size_t c = 0; c < components_.size(); ++c) {
      for (const DevicePosition& position : positions) {
        fastest[c].push_back(fastest_share(position, components_[c], samples));
        if (fastest[c].back().empty()) return {};
      }
    }
    std::vector<Shares> result{fastest};
    if (!positions.front().groups.empty()) return result;
    for (int degree = 0; degree < static_cast<int>(tables_.degrees.size()); ++degree) {
      Shares same(1);
      for (const DevicePosition& position : positions) {
        same.front().push_back(replicas_at(position, degree, samples));
        if (same.front().back().empty()) same.clear();
        if (same.empty()) break;
      }
      if (same.empty()) continue;
      same.resize(components_.size(), same.front());
      if (same != fastest) result.push_back(std::move(same));
    }
    return result;
  }

  std::vector<ReplicaGroup> fastest_share(const DevicePosition& position,
                                          const ComponentLayers& component,
                                          std::int64_t samples) const {
    if (!position.groups.empty()) return position.groups;
    std::vector<ReplicaGroup> best;
    double least = infinite;
    for (int degree = 0; degree < static_cast<int>(tables_.degrees.size()); ++degree) {
      std::vector<ReplicaGroup> groups = replicas_at(position, degree, samples);
      if (groups.empty()) continue;
      double seconds = 0;
      for (const LayerSums::Range& run : component.runs) {
        seconds += static_cast<double>(tables_.batch / samples) * work_of(groups, run).total() +
                   update_s(groups, run);
      }
      if (seconds < least) least = seconds, best = std::move(groups);
    }
    return best;
  }

  /// The slowest replica's time for a micro-batch, pass by pass.
  LayerSums::Work work_of(const std::vector<ReplicaGroup>& groups, LayerSums::Range layers,
                          Recomputation recomputation = Recomputation::none) const {
    LayerSums::Work most;
    for (const ReplicaGroup& group : groups) {
      most.raise_to(sums_.work(group, layers, recomputation));
    }
    return most;
  }

  /// The sum of a range's gradients over all replicas, and the optimizer.
  double update_s(const std::vector<ReplicaGroup>& groups, LayerSums::Range layers) const {
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

  /// Lays the components on these positions in every way, each with the loss at every end.
  void try_placements(const Division& division, std::int64_t samples, const Shares& shares) {
    std::vector<BranchWork> branches;
    for (std::size_t c = 0; c < components_.size(); ++c) {
      BranchWork& branch = branches.emplace_back(BranchWork{components_[c].name, {}});
      for (const std::vector<ReplicaGroup>& groups : shares[c]) {
        std::vector<double>& work = branch.work.emplace_back();
        for (const LayerSums::Range& run : components_[c].runs) {
          for (int l = run.first; l < run.end; ++l) {
            work.push_back(work_of(groups, {l, l + 1}).total());
          }
        }
      }
    }
    for (const BranchRanks& layout : lay_branches(branches)) {
      // The search for drafts has a chain as well, in the order of a known schedule.
      const bool chain = layout.name == "chain";
      PlacedDraft draft{chain ? "chain, searched order" : layout.name, division, {}, samples};
      for (std::size_t c = 0; c < components_.size(); ++c) {
        auto position = layout.rank_of[c].begin();
        for (const LayerSums::Range& run : components_[c].runs) {
          for (int layer = run.first; layer < run.end; ++layer) {
            const auto q = static_cast<std::size_t>(*position++);
            const bool goes_on = layer > run.first && draft.stages.back().position == q;
            if (!goes_on) draft.stages.push_back({{layer, layer}, q, shares[c][q]});
            draft.stages.back().layers.end = layer + 1;
          }
        }
      }
      // In the order of the graph edges go forward.
      std::ranges::sort(draft.stages, {},
                        [](const PlacedStage& each) { return each.layers.first; });
      if (loss_layer_ < 0) {
        try_draft(std::move(draft));
        continue;
      }
      for (std::size_t c = 0; c < components_.size(); ++c) {
        PlacedDraft joined = draft;
        join_after(c, joined);
        try_draft(std::move(joined));
      }
    }
  }

  /// Puts the loss behind the end of a component: into its last stage where that is the last of
  /// all, else into a stage of its own.
  void join_after(std::size_t component, PlacedDraft& draft) const {
    const int end = components_[component].runs.back().end;
    if (end == loss_layer_) {
      draft.stages.back().layers.end = loss_layer_ + 1;
      return;
    }
    PlacedStage loss = *std::ranges::find_if(
        draft.stages, [&](const PlacedStage& stage) { return stage.layers.end == end; });
    loss.layers = {loss_layer_, loss_layer_ + 1};
    draft.stages.push_back(std::move(loss));
    draft.placement += fmt::format(", loss after {}", components_[component].name);
  }

  /// The draft's pipeline, with the times of its layers and messages.
  PipelineGraph pipeline_of(const PlacedDraft& draft) const {
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
  double link_s(int from, int to, Bytes bytes) const {
    const LinkCurve& link = tables_.links[from][to];
    return link.empty() ? 0 : link.time(bytes).value();
  }

  /// The time of the largest message between two replicas, of so many bytes per sample.
  double message_s(const std::vector<ReplicaGroup>& from, const std::vector<ReplicaGroup>& to,
                   double bytes) const {
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

  /// A draft's pipeline whose activations are shares of the room of its positions, and the most
  /// bytes that a device lacks for one micro-batch (for all of a step, where the loss is over it).
  struct DraftMemory {
    PipelineGraph graph;
    double lacking = 0;
  };

  DraftMemory memory_of(const PlacedDraft& draft) const {
    DraftMemory result{pipeline_of(draft)};
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
  void add_shares(const PlacedDraft& draft, const std::vector<std::size_t>& stages, std::size_t g,
                  DraftMemory& memory) const {
    const double limit = tables_.pools[draft.stages[stages.front()].groups[g].pool].memory_bytes;
    if (limit <= 0) return;
    double states = 0, passing = 0, least = 0, most_added = 0;
    std::vector<LayerSums::Activations> kept;
    for (const std::size_t s : stages) {
      const PlacedStage& stage = draft.stages[s];
      const ReplicaGroup& group = stage.groups[g];
      states += sums_.state_memory(group.degree, stage.layers,
                                   draft.zero_stage() == 0 ? 1 : group.replicas);
      kept.push_back(
          sums_.activations(group.degree, group.samples, stage.layers, draft.recomputation[s]));
      passing = std::max(passing, kept.back().passing + kept.back().messages);
      least += kept.back().kept;
      most_added = std::max(most_added, kept.back().split - kept.back().kept);
    }
    if (whole_step_) least *= static_cast<double>(memory.graph.micro_batches);
    const double room = limit - states - passing;
    memory.lacking = std::max(memory.lacking, least + most_added - room);
    for (std::size_t i = 0; i < stages.size() && room > 0; ++i) {
      Segment& segment = memory.graph.segments[SegmentId(stages[i])];
      const double share = kept[i].kept / room;
      if (share <= segment.activation) continue;
      segment.activation = share;
      segment.weight_part = kept[i].split / kept[i].kept;
    }
  }

  /// The seconds that the last sums over replicas and the optimizer take.
  double last_update_s(const PlacedDraft& draft) const {
    std::vector<double> updates(draft.division.positions.size(), 0);
    for (const PlacedStage& stage : draft.stages) {
      updates[stage.position] += update_s(stage.groups, stage.layers);
    }
    return *std::ranges::max_element(updates);
  }

  /// Keeps a draft among the best of its placement: as it is, in an order that its memory admits,
  /// and in the order that is best for a pipeline's usual number of micro-batches under way, with
  /// recomputation in those stages whose positions have too little memory for it.
  void try_draft(PlacedDraft draft) {
    const std::string placement = draft.placement.substr(0, draft.placement.find(", loss after"));
    PlacementDrafts& drafts = best_[placement];
    draft.recomputation.assign(draft.stages.size(), Recomputation::none);
    const double update = last_update_s(draft);
    const DraftMemory memory = memory_of(draft);
    if (lower_bound(memory.graph) + update >= limit_of(drafts)) return;
    PipelineGraph whole = memory.graph;
    const std::optional<double> limit = limit_to_room(whole);
    if (memory.lacking <= 0) {
      keep(draft, search(whole, limit).objective + update, drafts);
      if (!limit || *limit >= memory.graph.micro_batches) return;
    }
    const SearchResult usual = search_usual(memory.graph);
    if (usual.objective + update >= limit_of(drafts)) return;
    recompute_for(usual.schedule, draft);
    DraftMemory saved = memory_of(draft);
    if (saved.lacking > 0) {
      if (saved.lacking >= drafts.lacking) return;
      drafts.lacking = saved.lacking;
      drafts.nearest = std::move(draft);
      return;
    }
    const std::optional<double> saved_limit = limit_to_room(saved.graph);
    keep(draft, search(saved.graph, saved_limit).objective + update, drafts);
  }

  /// An order with as many micro-batches under way as there are positions, which a pipeline needs.
  static SearchResult search_usual(PipelineGraph graph) {
    std::vector<double> sums(graph.ranks, 0);
    for (const Segment& segment : graph.segments) sums[segment.rank] += segment.activation;
    for (Segment& segment : graph.segments) {
      if (sums[segment.rank] > 0) segment.activation /= sums[segment.rank] * graph.ranks;
    }
    const std::optional<double> limit = limit_to_room(graph);
    return search(graph, limit);
  }

  static SearchResult search(const PipelineGraph& graph, std::optional<double> limit) {
    ScheduleRequest request;
    request.most_evaluations = draft_evaluations;
    request.memory_limit = limit;
    return search_schedule(graph, request, {}, MemoryLadder::none);
  }

  /// Raises the recomputation of stages until their positions have the memory for an order, those
  /// first that save most for the time that they take.
  void recompute_for(Schedule order, PlacedDraft& draft) const {
    const auto peaks_of = [&] {
      order.graph = memory_of(draft).graph;
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

  static double limit_of(const PlacementDrafts& drafts) {
    return drafts.best.size() < kept_drafts ? infinite : drafts.best.back().step_s;
  }

  static void keep(PlacedDraft draft, double step_s, PlacementDrafts& drafts) {
    if (step_s >= limit_of(drafts)) return;
    draft.step_s = step_s;
    const auto place = std::ranges::upper_bound(drafts.best, step_s, {}, &PlacedDraft::step_s);
    drafts.best.insert(place, std::move(draft));
    if (drafts.best.size() > kept_drafts) drafts.best.pop_back();
  }

  /// The first of a placement's drafts that fits, or what the nearest one lacks.
  PlacedPlan plan_of(const std::string& placement, const PlacementDrafts& drafts) const {
    PlacedPlan result{placement, std::nullopt, "no division of the devices holds it"};
    std::vector<PlacedDraft> tried = drafts.best;
    if (tried.empty() && drafts.nearest) tried.push_back(*drafts.nearest);
    Bytes least = Bytes(std::numeric_limits<std::uint64_t>::max());
    for (const PlacedDraft& draft : tried) {
      try {
        ReadyPlan ready =
            ready_with_recomputation(problem_.task(), to_plan(draft), problem_.cluster());
        if (!ready.prediction) throw UserError(ready.unpredicted);
        return {draft.placement, std::move(ready), ""};
      } catch (const MemoryRefusal& refusal) {
        if (refusal.lacking >= least) continue;
        least = refusal.lacking;
        result.why_not = refusal.problems().front().text();
      } catch (const UserError& error) {
        result.why_not = error.problems().front().text();
      }
    }
    return result;
  }

  Plan to_plan(const PlacedDraft& draft) const {
    const ModelGraph& graph = problem_.task().graph;
    Plan plan;
    plan.graph_hash = graph.hash();
    plan.cluster = problem_.cluster().name;
    plan.schedule = "auto";
    plan.micro_batches = static_cast<int>(tables_.batch / draft.samples);
    plan.zero_stage = draft.zero_stage();
    plan.devices = draft.division.devices;
    const std::vector<std::size_t>& ends = problem_.ends();
    for (std::size_t s = 0; s < draft.stages.size(); ++s) {
      const PlacedStage& from = draft.stages[s];
      PlanStage& stage = plan.stages.emplace_back();
      stage.recomputation = draft.recomputation[s];
      std::size_t node = from.layers.first > 0 ? ends[from.layers.first - 1] : 0;
      for (; node < ends[from.layers.end - 1]; ++node) {
        stage.nodes.push_back(graph.nodes()[node].name);
      }
      const DevicePosition& position = draft.division.positions[from.position];
      stage.replicas = position.replicas;
      if (stage.replicas.empty()) add_replicas(position, from.groups.front(), draft.samples, stage);
      for (const StageReplica& replica : stage.replicas) {
        plan.sequence_parallel = plan.sequence_parallel || replica.ranks.size() > 1;
      }
    }
    leave_out_idle(plan);
    return plan;
  }

  /// Numbers the ranks anew where positions have no stage, so that their devices stay idle.
  static void leave_out_idle(Plan& plan) {
    std::set<RankId> used;
    for (const PlanStage& stage : plan.stages) {
      for (const StageReplica& replica : stage.replicas) {
        used.insert(replica.ranks.begin(), replica.ranks.end());
      }
    }
    if (static_cast<int>(used.size()) == plan.ranks()) return;
    std::map<RankId, RankId> number;
    std::vector<RankId> devices;
    for (const RankId rank : used) {
      number.emplace(rank, RankId(devices.size()));
      devices.push_back(plan.devices.empty() ? rank : plan.devices[rank.index()]);
    }
    plan.devices = devices;
    for (PlanStage& stage : plan.stages) {
      for (StageReplica& replica : stage.replicas) {
        for (RankId& rank : replica.ranks) rank = number.at(rank);
      }
    }
  }

  /// Deals the samples evenly; the first replicas take one more.
  void add_replicas(const DevicePosition& position, const ReplicaGroup& group, std::int64_t samples,
                    PlanStage& stage) const {
    std::vector<RankId> ranks;
    for (const auto& node : problem_.nodes(position.pool)) {
      ranks.insert(ranks.end(), node.begin(), node.end());
    }
    const int degree = tables_.degrees[group.degree];
    for (int r = 0; r < group.replicas; ++r) {
      StageReplica& replica = stage.replicas.emplace_back();
      const auto first = ranks.begin() + position.first + r * degree;
      replica.ranks.assign(first, first + degree);
      replica.micro_batch = samples / group.replicas + (r < samples % group.replicas ? 1 : 0);
      replica.device_class = tables_.pools[position.pool].device_class;
    }
  }

  const GraphProblem& problem_;
  const PlanningProblem& tables_;
  LayerSums sums_;
  const std::vector<PipelineDraft>& chains_;
  const std::function<bool()>& stop_;
  std::vector<ComponentLayers> components_;
  int loss_layer_ = -1;        // −1: it belongs to the last component
  std::vector<int> layer_of_;  // [node]
  std::vector<LayerEdge> edges_;
  bool whole_step_ = false;                      // the loss is over all micro-batches
  std::map<std::string, PlacementDrafts> best_;  // by placement
};

}  // namespace

std::vector<PlacedPlan> branch_plans(const GraphProblem& problem,
                                     const std::vector<PipelineDraft>& chains,
                                     const std::function<bool()>& stop) {
  return BranchPlanSearch(problem, chains, stop).run();
}

}  // namespace heteroperf
