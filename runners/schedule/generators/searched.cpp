// Schedules whose order is searched: zb-1p and zb-2p (a chain, the longest span, 1F1B's memory or
// twice that), wave (several V's per rank) and auto (any graph). A search starts from *templates*,
// the published schedules that are defined for the very same graph, so it is never worse than
// these.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/schedule/generators/makers.hpp"

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
