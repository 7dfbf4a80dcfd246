#pragma once

#include <string>
#include <vector>

#include "metrics/base/id.hpp"

namespace heteroperf {

using SegmentId = Id<struct SegmentTag>;
using EdgeId = Id<struct EdgeTag>;
using MicroBatchId = Id<struct MicroBatchTag>;

/// A piece of a model on one rank; a stage of a pipeline is one. Copies of the same weights
/// are segments of their own with the same `weights`.
struct Segment {
  std::string name;    ///< "3", or as the graph's file says
  std::string branch;  ///< empty where the model has only one
  int rank = 0;
  double forward = 1, input_gradient = 1, weight_gradient = 1;  ///< time per micro-batch
  double activation = 1;  ///< held from F to W or BW; in activations of a rank's whole share
  /// The part of it that is held from B to W: more than all where B makes again what W needs.
  double weight_part = 0.5;
  int weights = -1;  ///< a number for the weights; normalise() sets it where it is −1
  MicroBatchId first_micro_batch;
  int micro_batches = -1;  ///< number that pass here; −1 stands for all of the graph's

  MicroBatchId end_micro_batch() const { return first_micro_batch + micro_batches; }
  friend bool operator==(const Segment&, const Segment&) = default;
};

/// A tensor that goes from one segment to another, per micro-batch. A segment may have several
/// inputs (all are needed) and several consumers (their gradients are summed).
struct Edge {
  SegmentId from, to;
  double bytes = 0;      ///< per micro-batch, each way
  bool gradient = true;  ///< false where nothing flows back
  /// A message between ranks takes this beyond the graph's latency.
  double activation_time = 0, gradient_time = 0;

  friend bool operator==(const Edge&, const Edge&) = default;
};

/// A collective between segments of different branches, for example an all-gather of embeddings.
/// It starts when every member has done its forwards for a set of `every` consecutive
/// micro-batches; the gradients (B, BW) of the set wait for it.
struct Interaction {
  std::string name;
  std::vector<SegmentId> members;
  int every = 1;    ///< micro-batches per set; all of them synchronise the whole batch
  double cost = 0;  ///< time

  friend bool operator==(const Interaction&, const Interaction&) = default;
};

/// The work that is to be scheduled: segments with their ranks and costs, edges, micro-batches. A
/// graph says what depends on what; a Schedule adds the order on every rank.
struct PipelineGraph {
  int ranks = 1;
  int micro_batches = 1;
  int parts = 1;  ///< parts of a sequence (causal: part k needs part k−1, its gradient part k+1's)
  double latency = 0;
  double fused_cost_factor = 1;  ///< a fused F and BW cost their sum times this
  bool unplaced = false;         ///< true: the segments' ranks mean nothing yet
  IdVector<SegmentId, Segment> segments;
  IdVector<EdgeId, Edge> edges;
  std::vector<Interaction> interactions;
  std::vector<std::vector<SegmentId>> tied;  ///< sets of segments with tied weights
  IdVector<MicroBatchId, double>
      micro_batch_scale;  ///< cost of micro-batch i over the mean; empty: 1

  friend bool operator==(const PipelineGraph&, const PipelineGraph&) = default;

  /// The time of one part of a micro-batch in a segment.
  double forward(SegmentId s, MicroBatchId k) const { return part_time(segments[s].forward, k); }
  double input_gradient(SegmentId s, MicroBatchId k) const {
    return part_time(segments[s].input_gradient, k);
  }
  double weight_gradient(SegmentId s, MicroBatchId k) const {
    return part_time(segments[s].weight_gradient, k);
  }
  /// The time from the end of the work that makes an edge's activation, or its gradient, to its
  /// arrival; it is 0 within a rank.
  double delay(EdgeId edge, bool gradient) const {
    const Edge& e = edges[edge];
    if (segments[e.from].rank == segments[e.to].rank) return 0;
    return latency + (gradient ? e.gradient_time : e.activation_time);
  }
  /// The time of F, B and W of every micro-batch that passes a segment.
  double segment_work(SegmentId segment) const;
  /// The sum of segment_work() over each rank's segments; [rank].
  std::vector<double> rank_work() const;
  /// Copies of the model's weights: segments over distinct `weights`.
  double weight_copies() const;
  /// A micro-batch that passes a segment has its F, B and W there.
  bool passes(SegmentId segment, MicroBatchId micro_batch) const {
    const int index = micro_batch - segments[segment].first_micro_batch;
    return index >= 0 && index < segments[segment].micro_batches;
  }

 private:
  /// A micro-batch costs its scale, and a part of it the same share as each other part.
  double part_time(double cost, MicroBatchId micro_batch) const {
    return cost * (micro_batch_scale.empty() ? 1 : micro_batch_scale[micro_batch]) / parts;
  }
};

/// Fills defaults (`weights`, `micro_batches`) and checks everything: indices, costs that are
/// finite and not negative, edges without a cycle whose ends see the same micro-batches, sizes
/// (segments × micro-batches × parts within `most_tasks`). Throws UserError with all problems.
void normalise(PipelineGraph& graph);
constexpr int most_ranks = 1 << 16;
constexpr long long most_tasks = 1LL << 27;
constexpr int most_parts = 1 << 10;
/// The largest cost, in units of time. Sums over `most_tasks` of them keep their digits.
constexpr double most_cost = 1e15;

/// The segments in an order in which every edge goes forward; the smallest index comes first among
/// equals.
std::vector<SegmentId> topological_order(const PipelineGraph& graph);

}  // namespace heteroperf
