// Plans that place the components of a model beside each other.
//
// The search for drafts cuts a model as one chain of layers. Here the devices are divided into
// *positions*, and the layers of each component are laid on the positions by lay_branches(): over
// all of them in either direction, on positions of their own, on the first one. A division is that
// of one of the best chains, with its replicas, or it has positions of equal numbers of devices, or
// one position for every pool. For every division, every size of a micro-batch and every choice of
// tensor-parallel degrees, each placement becomes a *draft*: a pipeline graph with the times of
// layers, messages and sums, which gets a short search for an order that its memory admits. Where
// that delays micro-batches, the draft is timed again with recomputation. Drafts whose lower bound
// says that they cannot beat the best of their placement are passed over.
//
// The best draft of each placement becomes a plan, and the exact ledger and the simulator judge it,
// as they judge the drafts of the chain. A draft keeps to the memory by its order, and by
// recomputation where that is faster than to wait; if the ledger still refuses it, all its stages
// recompute more, or the next best draft does.
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
#include "runners/plan/search/placed_draft.hpp"
#include "runners/plan/search/problem/planning_problem.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/ir/placement.hpp"
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

/// A component's layers, in runs of layers that follow each other. One that exchanges with others
/// has several.
struct ComponentLayers {
  std::string name;
  std::vector<LayerSums::Range> runs;
};

/// The drafts of a placement: the fastest ones that fit, and the one that lacks least memory.
/// Without any no schedule that was asked for runs it.
struct PlacementDrafts {
  std::vector<PlacedDraft> best;
  std::optional<PlacedDraft> nearest;
  double lacking = infinite;  // bytes, of the nearest
};

/// True where the schedule has as many stages on a position as the draft, in its order.
bool runs(const DraftSchedule& schedule, const PlacedDraft& draft) {
  std::map<std::size_t, int> numbers;  // of the positions, in the order of the stages
  for (const PlacedStage& stage : draft.stages) {
    numbers.emplace(stage.position, static_cast<int>(numbers.size()));
  }
  const auto chunks = static_cast<int>(draft.stages.size() / numbers.size());
  if (draft.stages.size() % numbers.size() != 0 || chunks < schedule.least_chunks ||
      chunks > schedule.most_chunks) {
    return false;
  }
  const bool zig_zag = find_generator(schedule.name).order == StageOrder::zig_zag;
  const auto placement = zig_zag ? ChainPlacement::zig_zag : ChainPlacement::looped;
  for (std::size_t s = 0; s < draft.stages.size(); ++s) {
    const int position = rank_on_chain(SegmentId(s), static_cast<int>(numbers.size()), placement);
    if (numbers.at(draft.stages[s].position) != position) return false;
  }
  return true;
}

class BranchPlanSearch {
 public:
  BranchPlanSearch(const GraphProblem& problem, const std::vector<PipelineDraft>& chains,
                   const std::vector<std::string>& schedules, const std::function<bool()>& stop)
      : problem_(problem),
        tables_(problem.problem()),
        drafts_(problem),
        chains_(chains),
        schedules_(schedules),
        stop_(stop) {
    find_components();
  }

  std::vector<PlacedPlan> run() {
    if (components_of(problem_.task().graph).size() < 2) return {};
    if (components_.size() < 2) {
      return {{"components apart", std::nullopt,
               "layers have nodes of several components, where several tensors end one at once"}};
    }
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
      std::vector<DraftPosition>& positions = result.emplace_back().positions;
      for (int pool = 0; pool < static_cast<int>(tables_.pools.size()); ++pool) {
        for (int first = 0; first < tables_.pools[pool].devices; first += devices) {
          positions.push_back({pool, first, devices});
        }
      }
    }
    const bool alike = std::ranges::all_of(
        tables_.pools, [&](const DevicePool& pool) { return pool.devices == width; });
    if (alike) return result;
    std::vector<DraftPosition>& by_pool = result.emplace_back().positions;
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
  std::vector<ReplicaGroup> replicas_at(const DraftPosition& position, int degree,
                                        std::int64_t samples) const {
    const int size = tables_.degrees[degree];
    if (position.devices % size != 0 || !within_nodes(position, size)) return {};
    const int replicas = position.devices / size;
    const std::int64_t most = (samples + replicas - 1) / replicas;
    if (replicas > samples || !drafts_.sums().known(position.pool, degree, most)) return {};
    return {{position.pool, degree, replicas, most}};
  }

  /// Tensor-parallel groups stay within a node.
  bool within_nodes(const DraftPosition& position, int size) const {
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
    const std::vector<DraftPosition>& positions = division.positions;
    Shares fastest(components_.size());
    for (std::size_t c = 0; c < components_.size(); ++c) {
      for (const DraftPosition& position : positions) {
        fastest[c].push_back(fastest_share(position, components_[c], samples));
        if (fastest[c].back().empty()) return {};
      }
    }
    std::vector<Shares> result{fastest};
    if (!positions.front().groups.empty()) return result;
    for (int degree = 0; degree < static_cast<int>(tables_.degrees.size()); ++degree) {
      std::vector<std::vector<ReplicaGroup>> groups;
      for (const DraftPosition& position : positions) {
        groups.push_back(replicas_at(position, degree, samples));
      }
      const bool everywhere = std::ranges::none_of(groups, std::ranges::empty);
      Shares same(components_.size(), groups);
      if (everywhere && same != fastest) result.push_back(std::move(same));
    }
    return result;
  }

  std::vector<ReplicaGroup> fastest_share(const DraftPosition& position,
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
        seconds +=
            static_cast<double>(tables_.batch / samples) * drafts_.work_of(groups, run).total() +
            drafts_.update_s(groups, run);
      }
      if (seconds < least) least = seconds, best = std::move(groups);
    }
    return best;
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
            work.push_back(drafts_.work_of(groups, {l, l + 1}).total());
          }
        }
      }
    }
    for (const BranchRanks& layout : lay_branches(branches)) {
      // The search for drafts has a chain as well, in the order of a known schedule.
      const bool chain = layout.name == "chain";
      if (chain && !schedules_.empty()) continue;
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

  /// Keeps a draft among the best of its placement. Where the best order takes too much memory, it
  /// is one that the memory admits, or the one that is best for a pipeline's usual number of
  /// micro-batches under way, with recomputation in stages whose positions are too full for it.
  void try_draft(PlacedDraft draft) {
    const std::string placement = draft.placement.substr(0, draft.placement.find(", loss after"));
    PlacementDrafts& drafts = best_[placement];
    draft.schedules = schedules_of(draft);
    if (draft.schedules.empty()) return;
    draft.recomputation.assign(draft.stages.size(), Recomputation::none);
    const double update = drafts_.last_update_s(draft);
    PlacedDraftTables::Pipeline memory = drafts_.pipeline_of(draft);
    const auto is_too_slow = [&](double pipeline_s) {
      return pipeline_s + update >= limit_of(drafts);
    };
    if (is_too_slow(lower_bound(memory.graph))) return;
    const SearchResult free = search(memory.graph, std::nullopt);
    if (is_too_slow(free.objective)) return;
    const bool fits = std::ranges::max(memory_peaks(free.schedule).memory) <= 1;
    if (fits && memory.lacking <= 0) return keep(std::move(draft), free.objective + update, drafts);
    if (memory.lacking <= 0) {
      keep(draft, search_within(memory.graph).objective + update, drafts);
    }
    const SearchResult usual = search_usual(std::move(memory.graph));
    if (is_too_slow(usual.objective)) return;
    drafts_.recompute_for(usual.schedule, draft);
    memory = drafts_.pipeline_of(draft);
    if (memory.lacking <= 0) {
      keep(std::move(draft), search_within(std::move(memory.graph)).objective + update, drafts);
    } else if (memory.lacking < drafts.lacking) {
      drafts.lacking = memory.lacking;
      drafts.nearest = std::move(draft);
    }
  }

  /// Those of the asked schedules that run a draft.
  std::vector<std::string> schedules_of(const PlacedDraft& draft) const {
    if (schedules_.empty()) return {"auto"};
    std::vector<std::string> result;
    for (const DraftSchedule& schedule : draft_schedules()) {
      const bool asked = std::ranges::find(schedules_, schedule.name) != schedules_.end();
      if (asked && runs(schedule, draft)) result.emplace_back(schedule.name);
    }
    return result;
  }

  /// An order with as many micro-batches under way as there are positions, which a pipeline needs.
  static SearchResult search_usual(PipelineGraph graph) {
    std::vector<double> sums(graph.ranks, 0);
    for (const Segment& segment : graph.segments) sums[segment.rank] += segment.activation;
    for (Segment& segment : graph.segments) {
      if (sums[segment.rank] > 0) segment.activation /= sums[segment.rank] * graph.ranks;
    }
    return search_within(std::move(graph));
  }

  /// An order that keeps within the room of the positions.
  static SearchResult search_within(PipelineGraph graph) {
    const std::optional<double> limit = limit_to_room(graph);
    return search(graph, limit);
  }

  static SearchResult search(const PipelineGraph& graph, std::optional<double> limit) {
    ScheduleRequest request;
    request.most_evaluations = draft_evaluations;
    request.memory_limit = limit;
    return search_schedule(graph, request, {}, MemoryLadder::none);
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
    if (tried.empty() && !schedules_.empty()) {
      result.why_not = fmt::format("{} places stages in other ways", fmt::join(schedules_, " or "));
    }
    Bytes least(std::numeric_limits<std::uint64_t>::max());
    for (const PlacedDraft& draft : tried) {
      for (const std::string& schedule : draft.schedules) {
        try {
          ReadyPlan ready = ready_with_recomputation(problem_.task(), to_plan(draft, schedule),
                                                     problem_.cluster());
          if (!ready.prediction) throw UserError(ready.unpredicted);
          const bool faster = !result.ready ||
                              ready.prediction->step_time_s < result.ready->prediction->step_time_s;
          if (faster) result = {draft.placement, std::move(ready), ""};
        } catch (const MemoryRefusal& refusal) {
          if (result.ready || refusal.lacking >= least) continue;
          least = refusal.lacking;
          result.why_not = refusal.problems().front().text();
        } catch (const UserError& error) {
          if (!result.ready) result.why_not = error.problems().front().text();
        }
      }
      if (result.ready) break;
    }
    return result;
  }

  Plan to_plan(const PlacedDraft& draft, const std::string& schedule) const {
    const ModelGraph& graph = problem_.task().graph;
    Plan plan;
    plan.graph_hash = graph.hash();
    plan.cluster = problem_.cluster().name;
    plan.schedule = schedule;
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
      const DraftPosition& position = draft.division.positions[from.position];
      stage.replicas = position.replicas;
      if (stage.replicas.empty()) add_replicas(position, from.groups.front(), draft.samples, stage);
      for (const StageReplica& replica : stage.replicas) {
        plan.sequence_parallel = plan.sequence_parallel || replica.ranks.size() > 1;
      }
    }
    leave_out_idle(plan);
    if (schedule != "auto") {
      std::set<std::size_t> used;
      for (const PlacedStage& stage : draft.stages) used.insert(stage.position);
      plan.chunks = static_cast<int>(draft.stages.size() / used.size());
    }
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
  void add_replicas(const DraftPosition& position, const ReplicaGroup& group, std::int64_t samples,
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
  PlacedDraftTables drafts_;
  const std::vector<PipelineDraft>& chains_;
  const std::vector<std::string>& schedules_;  // empty: any order
  const std::function<bool()>& stop_;
  std::vector<ComponentLayers> components_;
  int loss_layer_ = -1;                          // −1: it belongs to the last component
  std::map<std::string, PlacementDrafts> best_;  // by placement
};

}  // namespace

std::vector<PlacedPlan> branch_plans(const GraphProblem& problem,
                                     const std::vector<PipelineDraft>& chains,
                                     const std::vector<std::string>& schedules,
                                     const std::function<bool()>& stop) {
  return BranchPlanSearch(problem, chains, schedules, stop).run();
}

}  // namespace heteroperf
