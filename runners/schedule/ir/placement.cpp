// Graphs of plain pipelines. A *chain* is the stages of one model in a row; with v chunks per rank
// each rank holds v of them. Every stage gets its share of its rank's costs, so that the sum over a
// rank is the same for any number of chunks.

#include "runners/schedule/ir/placement.hpp"

#include <fmt/format.h>

#include <string>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// The segment of a stage that holds 1/share of its rank's layers.
Segment stage_segment(SegmentId stage, int rank, int share) {
  Segment segment;
  segment.name = std::to_string(stage.value());
  segment.rank = rank;
  segment.activation = 1.0 / share;
  segment.weights = stage.value();
  return segment;
}

/// A graph with sizes but without segments.
PipelineGraph empty_graph(int ranks, int micro_batches) {
  PipelineGraph graph;
  graph.ranks = ranks;
  graph.micro_batches = micro_batches;
  return graph;
}

/// Joins `stages` segments from `first` on to a chain.
void link(PipelineGraph& graph, SegmentId first, int stages) {
  for (SegmentId stage = first; stage + 1 < first + stages; ++stage) {
    graph.edges.push_back({stage, stage + 1, 0, true});
  }
}

}  // namespace

int rank_on_chain(SegmentId stage, int ranks, ChainPlacement placement) {
  const int leg = stage.value() / ranks, step = stage.value() % ranks;
  return placement == ChainPlacement::zig_zag && leg % 2 == 1 ? ranks - 1 - step : step;
}

StageCosts uniform_costs(int ranks, double forward, double input_gradient, double weight_gradient,
                         double latency) {
  const auto all = [&](double cost) { return std::vector<double>(ranks, cost); };
  return {all(forward), all(input_gradient), all(weight_gradient), latency};
}

PipelineGraph chain_graph(int ranks, int micro_batches, int chunks, ChainPlacement placement,
                          const StageCosts& costs) {
  PipelineGraph graph = empty_graph(ranks, micro_batches);
  for (const SegmentId stage : first_ids<SegmentId>(ranks * chunks)) {
    graph.segments.push_back(stage_segment(stage, rank_on_chain(stage, ranks, placement), chunks));
  }
  link(graph, 0, ranks * chunks);
  set_costs(graph, costs);
  return graph;
}

PipelineGraph bidirectional_graph(int ranks, int micro_batches, const StageCosts& costs) {
  PipelineGraph graph = empty_graph(ranks, micro_batches);
  const int down_micro_batches = (micro_batches + 1) / 2;
  for (const bool up : {false, true}) {
    for (const SegmentId stage : first_ids<SegmentId>(ranks)) {
      Segment segment = stage_segment(stage, up ? ranks - 1 - stage.value() : stage.value(), 1);
      segment.name = (up ? "up " : "down ") + segment.name;
      segment.branch = up ? "up" : "down";
      segment.first_micro_batch = MicroBatchId(up ? down_micro_batches : 0);
      segment.micro_batches = up ? micro_batches - down_micro_batches : down_micro_batches;
      graph.segments.push_back(segment);
    }
    link(graph, SegmentId(up ? ranks : 0), ranks);
  }
  set_costs(graph, costs);
  return graph;
}

void set_costs(PipelineGraph& graph, const StageCosts& costs) {
  const std::size_t ranks = graph.ranks;
  if (costs.forward.size() != ranks || costs.input_gradient.size() != ranks ||
      costs.weight_gradient.size() != ranks) {
    throw UserError(fmt::format("costs of {}, {} and {} ranks", costs.forward.size(),
                                costs.input_gradient.size(), costs.weight_gradient.size()),
                    fmt::format("there are {} ranks", ranks), "Give one of each per rank.");
  }
  graph.latency = costs.latency;
  for (Segment& segment : graph.segments) {
    segment.forward = costs.forward[segment.rank] * segment.activation;
    segment.input_gradient = costs.input_gradient[segment.rank] * segment.activation;
    segment.weight_gradient = costs.weight_gradient[segment.rank] * segment.activation;
  }
  normalise(graph);
}

}  // namespace heteroperf
