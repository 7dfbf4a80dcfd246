#pragma once

#include <cstdint>
#include <vector>

#include "runners/engine/checkpoint/checkpoint.hpp"

namespace heteroperf {

/// The cost of moving the state of a training between ranks.
struct MoveReport {
  std::uint64_t bytes = 0;  ///< that ranks sent to one another, summed over all of them
  double seconds = 0;       ///< on this rank, waiting for the others included
};

/// Fills the pieces `wanted` of this rank from the pieces `held` of all ranks, which cover each
/// wanted tensor; where several ranks hold an element they hold the same bits. Collective. The two
/// lists do not overlap in memory. Meanwhile a rank needs as much memory again as both lists have.
/// Throws Error{internal} on every rank, before anything is moved, where a wanted element is held
/// by no rank or ranks describe a tensor differently; and what the transport's waits throw.
MoveReport move_pieces(Communicator& world, const std::vector<TensorPiece>& held,
                       const std::vector<TensorPiece>& wanted);

}  // namespace heteroperf
