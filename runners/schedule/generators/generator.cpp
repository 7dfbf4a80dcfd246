// The table of generators, and the checks of a request before its maker runs. A request may ask for
// anything, so that sizes are checked before anything large is allocated, and a graph given by the
// user has to have the shape for which a schedule is defined.

#include "runners/schedule/generators/generator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "metrics/base/name_table.hpp"
#include "runners/schedule/generators/makers.hpp"

namespace heteroperf {
namespace {

constexpr int most_stages = 1 << 20;

constexpr Generator table[] = {
    {"gpipe", "all forwards, then all gradients (GPipe, arXiv 1811.06965)", StageOrder::looped,
     make_gpipe},
    {"1f1b", "one forward, one backward (PipeDream-flush, arXiv 2006.09503)", StageOrder::looped,
     make_1f1b},
    {"interleaved-1f1b", "1F1B over several chunks per rank (Megatron-LM, arXiv 2104.04473)",
     StageOrder::looped, make_interleaved_1f1b},
    {"looped-bfs", "GPipe over several chunks, chunk by chunk (arXiv 2211.05953)",
     StageOrder::looped, make_looped_bfs},
    {"zb-h1", "1F1B with delayed weight gradients, memory of 1F1B (arXiv 2401.10241)",
     StageOrder::looped, make_zb_h1},
    {"zb-h2", "as zb-h1 with twice the memory, no bubble within a step (arXiv 2401.10241)",
     StageOrder::looped, make_zb_h2},
    {"zb-1p", "zero bubble by search, memory of 1F1B (arXiv 2401.10241)", StageOrder::looped,
     make_zb_1p},
    {"zb-2p", "zero bubble by search, twice the memory of 1F1B (arXiv 2401.10241)",
     StageOrder::looped, make_zb_2p},
    {"zb-v", "zero bubble on a V placement, memory of 1F1B (arXiv 2401.10241)", StageOrder::zig_zag,
     make_zb_v},
    {"v-half", "V placement with half the memory (arXiv 2405.15362)", StageOrder::zig_zag,
     make_v_half},
    {"v-min", "V placement with the least memory (arXiv 2405.15362)", StageOrder::zig_zag,
     make_v_min},
    {"chimera", "two copies of the model in opposite directions (arXiv 2107.06925)",
     StageOrder::two_way, make_chimera},
    {"dualpipe", "two directions with fused forward and backward (arXiv 2412.19437)",
     StageOrder::two_way, make_dualpipe},
    {"dualpipev", "DualPipe cut in half on a V placement (deepseek-ai/DualPipe)",
     StageOrder::zig_zag, make_dualpipev},
    {"seq1f1b", "1F1B over parts of a sequence (arXiv 2406.03488)", StageOrder::looped,
     make_seq1f1b},
    {"wave", "several V's per rank (Hanayo, arXiv 2308.15762); order by list scheduling",
     StageOrder::zig_zag, make_wave},
    {"auto", "list scheduling and local search over any placement", StageOrder::any, make_auto},
};

/// Complains of a number outside 1 … most.
void check_within(const RequestRules& rules, const char* what, long long value, long long most,
                  ProblemList& problems) {
  if (value >= 1 && value <= most) return;
  problems.add(fmt::format("{} for {} {}", rules.name, value, what), "",
               fmt::format("Give 1 to {}.", most));
}

/// Bounds the product of all sizes, as only that is bound to fit into memory.
void check_product(const RequestRules& rules, const RequestSizes& sizes, ProblemList& problems) {
  const long long stages = static_cast<long long>(sizes.ranks) * sizes.chunks;
  if (stages > most_stages) {
    problems.add(
        fmt::format("{} for {} stages", rules.name, stages),
        fmt::format("{} ranks x {} chunks; at most {}", sizes.ranks, sizes.chunks, most_stages),
        "Use fewer ranks or chunks.");
    return;
  }
  // Each factor is below 2^31 and the first three together below 2^51: no overflow in long double.
  const long double tasks = static_cast<long double>(stages) * sizes.micro_batches * sizes.parts;
  if (tasks <= most_tasks) return;
  problems.add(fmt::format("{} for {:.0f} forwards", rules.name, tasks),
               fmt::format("{} ranks x {} chunks x {} micro-batches x {} parts; at most {}",
                           sizes.ranks, sizes.chunks, sizes.micro_batches, sizes.parts, most_tasks),
               fmt::format("Use at most {} micro-batches, or fewer ranks, chunks or parts.",
                           std::max(1LL, most_tasks / stages / sizes.parts)));
}

/// Checks the chunks and parts that the schedule's own definition allows.
void check_rules(const RequestRules& rules, const RequestSizes& sizes, ProblemList& problems) {
  if (rules.chunk_rule == ChunkRule::fixed && sizes.chunks != rules.chunks) {
    problems.add(
        fmt::format("{} with {} chunks per rank", rules.name, sizes.chunks),
        fmt::format("it has {}", rules.chunks),
        fmt::format("Give {} chunk{}, or none.", rules.chunks, rules.chunks == 1 ? "" : "s"));
  }
  if (rules.part_rule == PartRule::one && sizes.parts != 1) {
    problems.add(fmt::format("{} with {} sequence parts", rules.name, sizes.parts),
                 "it does not split sequences", "Give 1 part, or use seq1f1b.");
  }
}

/// Complains of costs that are not one per rank, or no costs.
void check_costs(const ScheduleRequest& request, ProblemList& problems) {
  const auto check = [&](const char* what, const std::vector<double>& costs) {
    if (costs.size() != static_cast<std::size_t>(request.ranks)) {
      problems.add(fmt::format("{} costs for {} ranks", what, costs.size()),
                   fmt::format("the schedule has {} ranks", request.ranks),
                   fmt::format("Give {} costs.", request.ranks));
      return;
    }
    for (std::size_t rank = 0; rank < costs.size(); ++rank) {
      if (costs[rank] >= 0 && costs[rank] <= most_cost) continue;
      problems.add(fmt::format("{} cost {} on rank {}", what, costs[rank], rank),
                   "a cost is a number from 0 to 1e15");
      return;
    }
  };
  check("forward", request.costs.forward);
  check("input-gradient", request.costs.input_gradient);
  check("weight-gradient", request.costs.weight_gradient);
  if (!(request.costs.latency >= 0 && request.costs.latency <= most_cost)) {
    problems.add(fmt::format("latency {}", request.costs.latency),
                 "a cost is a number from 0 to 1e15");
  }
}

/// The sizes of a request. A graph has its own, and where the schedule takes any number of chunks,
/// the graph's segments per rank are the default.
RequestSizes sizes_of(const ScheduleRequest& request, const RequestRules& rules) {
  if (!request.graph) {
    return {request.ranks, request.micro_batches, request.chunks.value_or(rules.chunks),
            request.parts};
  }
  const PipelineGraph& graph = *request.graph;
  const int segments = static_cast<int>(graph.segments.size());
  int chunks = rules.chunks;
  if (rules.chunk_rule == ChunkRule::free && graph.ranks > 0 && segments % graph.ranks == 0) {
    chunks = std::max(1, segments / graph.ranks);
  }
  return {graph.ranks, graph.micro_batches, request.chunks.value_or(chunks),
          graph.parts > 1 ? graph.parts : request.parts};
}

/// The first difference of `graph` from the shape of `wanted`; empty where there is none.
std::string difference(const PipelineGraph& graph, const PipelineGraph& wanted) {
  if (!graph.interactions.empty()) return "it has interactions between branches";
  if (graph.segments.size() != wanted.segments.size()) {
    return fmt::format("it has {} segments, not {}", graph.segments.size(), wanted.segments.size());
  }
  for (const SegmentId i : wanted.segments.ids()) {
    const Segment &is = graph.segments[i], &should = wanted.segments[i];
    if (is.rank != should.rank) {
      return fmt::format("its segment {} lies on rank {}, not {}", i.value(), is.rank, should.rank);
    }
    if (is.first_micro_batch != should.first_micro_batch ||
        is.micro_batches != should.micro_batches) {
      return fmt::format("its segment {} takes micro-batches {} to {}, not {} to {}", i.value(),
                         is.first_micro_batch.value(), is.end_micro_batch().value() - 1,
                         should.first_micro_batch.value(), should.end_micro_batch().value() - 1);
    }
  }
  const auto ends = [](const PipelineGraph& of) {
    std::vector<std::pair<SegmentId, SegmentId>> pairs;
    for (const Edge& edge : of.edges) pairs.emplace_back(edge.from, edge.to);
    std::sort(pairs.begin(), pairs.end());
    return pairs;
  };
  if (ends(graph) != ends(wanted)) return "its edges are not those from each segment to the next";
  return "";
}

/// The request's costs; those of a graph that is only compared do not matter.
StageCosts costs_of(const ScheduleRequest& request, const RequestSizes& sizes) {
  return request.graph ? uniform_costs(sizes.ranks, 0, 0, 0, 0) : request.costs;
}

/// The request's graph, which must have the shape of `wanted`; without one, `wanted` itself.
PipelineGraph checked_graph(const ScheduleRequest& request, const RequestRules& rules,
                            PipelineGraph wanted, const char* wanted_text) {
  if (!request.graph) return wanted;
  PipelineGraph graph = *request.graph;
  graph.parts = wanted.parts;
  normalise(graph);
  const std::string why = difference(graph, wanted);
  if (!why.empty()) {
    throw UserError(fmt::format("{} does not fit the graph", rules.name),
                    fmt::format("{}; it needs {}", why, wanted_text),
                    "Use auto, which takes any graph, or gpipe or 1f1b.");
  }
  return graph;
}

}  // namespace

std::span<const Generator> generators() { return table; }

/// Names are few, so a linear search will do.
const Generator& find_generator(std::string_view name) {
  for (const Generator& generator : table) {
    if (name == generator.name) return generator;
  }
  throw unknown_name("schedule", std::string(name), names_of(table));
}

RequestSizes check_request(const ScheduleRequest& request, const RequestRules& rules) {
  const RequestSizes sizes = sizes_of(request, rules);
  ProblemList problems;
  check_within(rules, "ranks", sizes.ranks, most_ranks, problems);
  check_within(rules, "micro-batches", sizes.micro_batches, most_tasks, problems);
  check_within(rules, "chunks per rank", sizes.chunks, rules.most_chunks, problems);
  check_within(rules, "sequence parts", sizes.parts, most_parts, problems);
  if (problems.empty()) check_product(rules, sizes, problems);
  problems.throw_if_any();
  check_rules(rules, sizes, problems);
  if (request.graph && request.graph->parts > 1 && request.parts > 1 &&
      request.parts != sizes.parts) {
    problems.add(fmt::format("{} sequence parts", request.parts),
                 fmt::format("the graph says {}", sizes.parts), "Say it once.");
  }
  if (!request.graph) check_costs(request, problems);
  if (request.graph && request.graph->unplaced && rules.name != std::string_view("auto")) {
    problems.add(fmt::format("{} for a graph without ranks", rules.name),
                 "it does not place segments", "Use auto, or give every segment a rank.");
  }
  problems.throw_if_any();
  return sizes;
}

PipelineGraph chain_for(const ScheduleRequest& request, const RequestRules& rules,
                        const RequestSizes& sizes, ChainPlacement placement) {
  PipelineGraph chain = chain_graph(sizes.ranks, sizes.micro_batches, sizes.chunks, placement,
                                    costs_of(request, sizes));
  chain.parts = sizes.parts;
  return checked_graph(
      request, rules, std::move(chain),
      placement == ChainPlacement::looped
          ? "a chain of segments, segment s on rank s mod ranks"
          : "a chain of segments down the ranks and up again, segment s on rank s, then backwards");
}

PipelineGraph bidirectional_for(const ScheduleRequest& request, const RequestRules& rules,
                                const RequestSizes& sizes) {
  return checked_graph(
      request, rules,
      bidirectional_graph(sizes.ranks, sizes.micro_batches, costs_of(request, sizes)),
      "two copies of a chain in opposite directions, half the micro-batches each");
}

}  // namespace heteroperf
