#pragma once

#include <string>
#include <vector>

namespace heteroperf {

/// One rank's costs of one micro-batch of its whole share of the model; any one unit of time.
struct StageCosts {
  std::vector<double> forward, input_gradient, weight_gradient;  ///< F, B, W; [rank]
  double latency = 0;                                            ///< of a message between ranks
};
StageCosts uniform_costs(int ranks, double forward, double input_gradient, double weight_gradient,
                         double latency);

/// A piece of a model on one rank. Copies of the same weights (replicas) are segments of their own
/// with the same `weights`.
struct Segment {
  std::string name;    ///< "3", or as the graph's file says
  std::string branch;  ///< empty: the only one
  int rank = 0;
  double forward = 1, input_gradient = 1, weight_gradient = 1;  ///< time per micro-batch
  double activation = 1;  ///< held from F to W or BW; in activations of a rank's whole share
  int weights = -1;       ///< names the weights; set by normalise() where −1
  int first_micro_batch = 0;
  int micro_batches = -1;  ///< how many pass here; −1: all of the graph's

  friend bool operator==(const Segment&, const Segment&) = default;
};

/// A tensor that goes from one segment to another, per micro-batch. A segment may have several
/// inputs (all are needed) and several consumers (their gradients are summed).
struct Edge {
  int from = 0, to = 0;  ///< segments
  double bytes = 0;      ///< per micro-batch, each way
  bool gradient = true;  ///< false: nothing flows back
  /// What a message takes beyond the graph's latency, between ranks.
  double activation_time = 0, gradient_time = 0;

  friend bool operator==(const Edge&, const Edge&) = default;
};

/// A collective between segments of different branches (an all-gather of embeddings, say): starts
/// when the forward of every member is done for a set of `every` consecutive micro-batches; their
/// gradients (B, BW) wait for it.
struct Interaction {
  std::string name;
  std::vector<int> members;  ///< segments
  int every = 1;             ///< micro-batches per set; all of them: a batch-wide synchronisation
  double cost = 0;           ///< time

  friend bool operator==(const Interaction&, const Interaction&) = default;
};

/// What is to be scheduled: segments with their ranks and costs, edges, micro-batches.
struct PipelineGraph {
  int ranks = 1;
  int micro_batches = 1;
  int parts = 1;  ///< of a sequence (causal: part k needs part k−1, its gradient part k+1's)
  double latency = 0;
  /// A fused F and BW cost their sum times this.
  double fused_cost_factor = 1;
  std::vector<Segment> segments;
  std::vector<Edge> edges;
  std::vector<Interaction> interactions;
  std::vector<std::vector<int>> tied;     ///< sets of segments with tied weights
  std::vector<double> micro_batch_scale;  ///< cost of micro-batch i over the mean; empty: 1

  friend bool operator==(const PipelineGraph&, const PipelineGraph&) = default;

  /// Time of a part of a micro-batch in a segment.
  double forward(int segment, int micro_batch) const;
  double input_gradient(int segment, int micro_batch) const;
  double weight_gradient(int segment, int micro_batch) const;
  /// Time from the end of the work that makes an edge's value to its arrival: 0 within a rank.
  double activation_delay(int edge) const;
  double gradient_delay(int edge) const;
  /// F, B and W of every micro-batch that passes a segment.
  double segment_work(int segment) const;
  /// Copies of the model's weights: segments over distinct `weights`.
  double weight_copies() const;
  bool passes(int segment, int micro_batch) const;
};

/// Fills defaults (`weights`, `micro_batches`) and checks everything: indices, costs that are
/// finite and not negative, edges without a cycle whose ends see the same micro-batches, sizes
/// (segments × micro-batches × parts within `most_tasks`). Throws UserError with all problems.
void normalise(PipelineGraph& graph);
constexpr int most_ranks = 1 << 16;
constexpr long long most_tasks = 1LL << 27;
constexpr int most_parts = 1 << 10;
/// Of a cost, in units of time: sums over `most_tasks` of them keep their digits.
constexpr double most_cost = 1e15;

/// Segments in an order in which every edge goes forward. The smallest index first among equals.
std::vector<int> topological_order(const PipelineGraph& graph);

}  // namespace heteroperf
