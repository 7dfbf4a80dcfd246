// Schedules whose order is searched: zb-1p and zb-2p (a chain, the longest span, 1F1B's memory or
// twice that), wave (several V's per rank) and auto (any graph). A search starts from *templates*,
// the published schedules that are defined for the very same graph, so it is never worse than
// these. For a graph without ranks auto schedules every placement of its branches and keeps the one
// that ends first.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/schedule/generators/makers.hpp"
#include "runners/schedule/search/branch_placement.hpp"
#include "runners/schedule/simulate/report.hpp"

namespace heteroperf {
namespace {

constexpr int most_searched_chunks = 128;  // list scheduling more of them takes minutes

using Make = Schedule (*)(const ScheduleRequest&);

constexpr Make templates[] = {
    make_gpipe,      make_1f1b,     make_zb_h1,    make_zb_h2,  make_interleaved_1f1b,
    make_looped_bfs, make_seq1f1b,  make_zb_v,     make_v_half, make_v_min,
    make_chimera,    make_dualpipe, make_dualpipev};

/// The published schedules that have an order for this very graph. A maker that is not defined for
/// it throws.
std::vector<Schedule> templates_for(const PipelineGraph& graph, const ScheduleRequest& request) {
  ScheduleRequest same = request;
  same.graph = graph;
  same.chunks.reset();
  std::vector<Schedule> result;
  for (const Make make : templates) {
    try {
      Schedule schedule = make(same);
      if (schedule.graph == graph) result.push_back(std::move(schedule));
    } catch (const UserError&) {
      // This schedule is not defined for the graph.
    }
  }
  return result;
}

/// Chimera's two copies of the chain of all branches, merged to one stage per rank; nothing where
/// that is not defined or would drop what the graph says.
std::optional<Schedule> chimera_of(const PipelineGraph& chain) {
  const bool timed = std::any_of(chain.edges.begin(), chain.edges.end(), [](const Edge& edge) {
    return edge.activation_time > 0 || edge.gradient_time > 0;
  });
  if (timed || !chain.interactions.empty() || !chain.tied.empty() || chain.parts > 1 ||
      !chain.micro_batch_scale.empty()) {
    return std::nullopt;
  }
  ScheduleRequest merged;
  merged.ranks = chain.ranks;
  merged.micro_batches = chain.micro_batches;
  merged.costs = uniform_costs(chain.ranks, 0, 0, 0, chain.latency);
  for (const Segment& segment : chain.segments) {
    merged.costs.forward[segment.rank] += segment.forward;
    merged.costs.input_gradient[segment.rank] += segment.input_gradient;
    merged.costs.weight_gradient[segment.rank] += segment.weight_gradient;
  }
  try {
    return make_chimera(merged);
  } catch (const UserError&) {
    return std::nullopt;  // it is not defined for so many ranks or micro-batches
  }
}

SearchResult named(SearchResult result, const char* name, int chunks) {
  result.schedule.name = name;
  result.schedule.chunks = chunks;
  return result;
}

/// Searches for the longest span with at most `memory` · p micro-batches per rank, whatever the
/// request's own limit. It takes a quarter of the evaluations, since `auto` includes two such.
SearchResult zero_bubble(const ScheduleRequest& request, const char* name, int memory) {
  const RequestRules rules{name, 1, ChunkRule::fixed, PartRule::one};
  const RequestSizes sizes = check_request(request, rules);
  const PipelineGraph graph = chain_for(request, rules, sizes, ChainPlacement::looped);
  ScheduleRequest limited = request;
  limited.memory_limit = static_cast<double>(memory) * sizes.ranks;
  limited.objective = Objective::span;
  limited.most_evaluations = (affordable_evaluations(graph, request) + 3) / 4;
  const std::vector<Schedule> fixed = templates_for(graph, limited);
  return named(search_schedule(graph, limited, fixed, MemoryLadder::none), name, 1);
}

/// The results of zb-1p and zb-2p, where the graph is a chain that they are defined for.
std::vector<SearchResult> zero_bubbles(const PipelineGraph& graph, const ScheduleRequest& request) {
  ScheduleRequest same = request;
  same.graph = graph;
  same.chunks.reset();
  try {
    std::vector<SearchResult> result;
    for (const int memory : {1, 2}) result.push_back(zero_bubble(same, "zb", memory));
    return result;
  } catch (const UserError&) {
    return {};
  }
}

/// Searches on one placement, with half of the evaluations; zb-1p and zb-2p take the other half.
SearchResult search_placed(PipelineGraph graph, const ScheduleRequest& request) {
  normalise(graph);
  std::vector<Schedule> candidates = templates_for(graph, request);
  const std::vector<SearchResult> searched = zero_bubbles(graph, request);
  for (const SearchResult& result : searched) candidates.push_back(result.schedule);
  ScheduleRequest shared = request;
  shared.most_evaluations = (affordable_evaluations(graph, request) + 1) / 2;
  SearchResult result = search_schedule(graph, shared, candidates);
  for (const SearchResult& before : searched) {
    result.evaluations += before.evaluations;
    result.out_of_time = result.out_of_time || before.out_of_time;
  }
  return result;
}

/// Searches an order for every placement of the branches of a graph without ranks.
class BranchSearch {
 public:
  BranchSearch(const PipelineGraph& graph, const ScheduleRequest& request)
      : graph_(graph), request_(request), left_(affordable_evaluations(graph, request)) {}

  /// A short search for each placement, then long ones for those that came out best, unless their
  /// bounds say that they cannot become better.
  SearchResult run() {
    constexpr std::size_t finalists = 3;
    search_all(left_ / 4);
    sort();
    const std::size_t longer = std::min(finalists, found_.size());
    for (std::size_t i = 0; i < longer; ++i) {
      Found& candidate = found_[i];
      const bool settled = candidate.copies || candidate.result.proven ||
                           candidate.result.lower_bound >= found_.front().result.objective;
      if (settled) continue;
      SearchResult again =
          search(candidate.result.schedule.graph, left_ / static_cast<long long>(longer - i));
      if (again.objective < candidate.result.objective) candidate.result = std::move(again);
    }
    sort();
    SearchResult best = found_.front().result;
    for (const Found& candidate : found_) {
      best.placements.push_back(
          {candidate.name, candidate.result.objective, candidate.result.lower_bound});
    }
    best.evaluations = evaluations_;
    best.out_of_time = out_of_time_;
    return best;
  }

 private:
  struct Found {
    std::string name;
    SearchResult result;
    bool copies = false;  // of the model, so that its graph is another one
  };

  /// Placements for which the memory limit admits no order are left out.
  void search_all(long long evaluations) {
    const std::vector<BranchPlacement> placements = branch_placements(graph_);
    std::optional<UserError> refusal;
    for (const BranchPlacement& placement : placements) {
      try {
        const long long share = evaluations / static_cast<long long>(placements.size());
        found_.push_back({placement.name, search(placement.graph, share)});
      } catch (const UserError& error) {
        refusal = error;
      }
    }
    if (found_.empty()) throw UserError(refusal->problems());
    add_chimera(placements.front().graph);
  }

  void add_chimera(const PipelineGraph& chain) {
    const std::optional<Schedule> schedule = chimera_of(chain);
    // A limit of the memory counts activations of a whole share, which two copies halve.
    if (!schedule || request_.memory_limit) return;
    const ScheduleReport times = report(*schedule, simulate(*schedule));
    Found& found = found_.emplace_back();
    found.name = "chimera over the chain";
    found.copies = true;
    found.result.schedule = *schedule;
    const bool makespan = request_.objective == Objective::makespan;
    found.result.objective = makespan ? times.makespan : times.longest_span;
    found.result.lower_bound = times.lower_bound;
    found.result.proven = found.result.objective <= times.lower_bound;
  }

  SearchResult search(const PipelineGraph& placed, long long evaluations) {
    ScheduleRequest part = request_;
    part.most_evaluations = std::max(1LL, evaluations);
    SearchResult result = search_schedule(placed, part, templates_for(placed, request_));
    evaluations_ += result.evaluations;
    left_ = std::max(0LL, left_ - result.evaluations);
    out_of_time_ = out_of_time_ || result.out_of_time;
    return result;
  }

  /// Best first; the earlier placement among equals.
  void sort() {
    std::ranges::stable_sort(found_, {}, [](const Found& found) { return found.result.objective; });
  }

  const PipelineGraph& graph_;
  const ScheduleRequest& request_;
  long long left_, evaluations_ = 0;
  bool out_of_time_ = false;
  std::vector<Found> found_;
};

}  // namespace

Schedule make_zb_1p(const ScheduleRequest& request) {
  return zero_bubble(request, "zb-1p", 1).schedule;
}
Schedule make_zb_2p(const ScheduleRequest& request) {
  return zero_bubble(request, "zb-2p", 2).schedule;
}

Schedule make_wave(const ScheduleRequest& request) {
  const RequestRules rules{"wave", 2, ChunkRule::free, PartRule::one, most_searched_chunks};
  const RequestSizes sizes = check_request(request, rules);
  if (sizes.chunks % 2 != 0) {
    throw UserError(
        fmt::format("wave with {} chunks per rank", sizes.chunks),
        "a wave goes down the ranks and up again: two chunks each",
        fmt::format("Give {} or {} chunks.", std::max(2, sizes.chunks - 1), sizes.chunks + 1));
  }
  const PipelineGraph graph = chain_for(request, rules, sizes, ChainPlacement::zig_zag);
  ScheduleRequest limited = request;
  limited.most_evaluations = affordable_evaluations(graph, request);
  return named(search_schedule(graph, limited, templates_for(graph, request)), "wave", sizes.chunks)
      .schedule;
}

SearchResult search_auto(const ScheduleRequest& request) {
  const RequestRules rules{"auto", 1, ChunkRule::free, PartRule::any, most_searched_chunks};
  const RequestSizes sizes = check_request(request, rules);
  if (request.graph) {
    PipelineGraph graph = *request.graph;
    graph.parts = sizes.parts;
    if (graph.unplaced) return named(BranchSearch(graph, request).run(), "auto", sizes.chunks);
    return named(search_placed(std::move(graph), request), "auto", sizes.chunks);
  }
  const auto search = [&](ChainPlacement placement) {
    return search_placed(chain_for(request, rules, sizes, placement), request);
  };
  if (sizes.chunks == 1) return named(search(ChainPlacement::looped), "auto", 1);
  SearchResult looped = search(ChainPlacement::looped);
  SearchResult zig_zag = search(ChainPlacement::zig_zag);
  SearchResult& best = zig_zag.objective < looped.objective ? zig_zag : looped;
  best.evaluations = looped.evaluations + zig_zag.evaluations;
  best.out_of_time = looped.out_of_time || zig_zag.out_of_time;
  return named(std::move(best), "auto", sizes.chunks);
}

Schedule make_auto(const ScheduleRequest& request) { return search_auto(request).schedule; }

}  // namespace heteroperf
