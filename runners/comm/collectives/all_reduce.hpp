#pragma once

#include "runners/comm/algorithm.hpp"
#include "runners/comm/collectives/scratch.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// One all-reduce over the point-to-point calls of `group`.
struct AllReduceCall {
  Communicator& group;
  ConstBuffer mine;
  MutableBuffer result;  ///< may be `mine`
  Reduction reduction = Reduction::sum;
  Scratch& scratch;
  std::size_t segment_bytes = 49152;  ///< of segmented_ring and tree
};

/// Runs a flat algorithm (not leader or split_rail). Any number of ranks, any count. Averages
/// divide once, at the end. Formulas of time: runners/comm/README.md.
void all_reduce(const AllReduceCall& call, Algorithm algorithm);

}  // namespace heteroperf
