#pragma once

#include <vector>

#include "runners/schedule/ir/pipeline_graph.hpp"

namespace heteroperf {

/// One rank's costs of one micro-batch of its whole share of the model, in any one unit of time.
struct StageCosts {
  std::vector<double> forward, input_gradient, weight_gradient;  ///< F, B, W; [rank]
  double latency = 0;  ///< time of a message between ranks
};
StageCosts uniform_costs(int ranks, double forward, double input_gradient, double weight_gradient,
                         double latency);

/// The ranks on which the v·p stages of a chain lie.
enum class ChainPlacement {
  looped,   ///< stage s lies on rank s mod p (v = 1: stage r on rank r)
  zig_zag,  ///< stages go down the ranks and up again, v times half a zig-zag (v = 2: a V)
};

/// The rank of the segment that is one stage of a chain of ranks · chunks.
int rank_on_chain(SegmentId stage, int ranks, ChainPlacement placement);

/// A chain of ranks × chunks stages. Each stage costs 1/chunks of its rank's costs, counts
/// 1/chunks of an activation, and its segment has the stage's number.
PipelineGraph chain_graph(int ranks, int micro_batches, int chunks, ChainPlacement placement,
                          const StageCosts& costs);

/// Two copies of a chain of `ranks` stages in opposite directions, each at full cost. Segments
/// 0…p−1 go down (stage s on rank s) with the first half of the micro-batches, segments p…2p−1 go
/// up (stage s on rank p−1−s) with the second half. Copies of a stage share `weights`.
PipelineGraph bidirectional_graph(int ranks, int micro_batches, const StageCosts& costs);

/// Gives every segment its share (`activation`) of its rank's costs. Throws UserError unless there
/// is one cost per rank.
void set_costs(PipelineGraph& graph, const StageCosts& costs);

}  // namespace heteroperf
