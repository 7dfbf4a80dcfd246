#pragma once

#include <algorithm>
#include <cstddef>

#include "runners/comm/algorithm.hpp"
#include "runners/comm/collectives/partial_sums.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/slice.hpp"

namespace heteroperf {

// The flat algorithms: they treat all ranks of a group alike, whatever links lie between them, and
// use nothing but the group's point-to-point messages. all_reduce.cpp holds recursive doubling and
// Rabenseifner's algorithm, ring.cpp the rings, over_messages.cpp the trees. runners/comm/README.md
// has the formulas of their times.

struct AllReduceCall {
  Communicator& group;
  ConstBuffer input;
  MutableBuffer result;  ///< may be the memory of `input`
  Reduction reduction = Reduction::sum;
  Scratch& scratch;
  std::size_t segment_bytes = 49152;  ///< for segmented_ring and tree
};

/// Runs one flat algorithm (neither native nor leader nor split_rail) over any number of ranks and
/// elements. An average is divided once, at the end.
void all_reduce(const AllReduceCall& call, Algorithm algorithm);

/// The ring in messages of at most `segment` elements; 0 sends a block as one message.
void all_reduce_ring(const AllReduceCall& call, const PartialSums& sums, std::size_t segment);
/// Fills `all`, made of one block per rank, which already holds this rank's own block.
void all_gather_ring(Communicator& group, Counts counts, MutableBuffer all,
                     std::size_t segment_bytes);
/// `sums.input` is the whole vector, `sums.result` this rank's block of the sum; `sums.partial`
/// only says the partial type.
void reduce_scatter_ring(Communicator& group, Counts counts, const PartialSums& sums,
                         std::size_t segment_bytes, Scratch& scratch);
/// The binary tree in segments of `segment` elements.
void all_reduce_tree(const AllReduceCall& call, const PartialSums& sums, std::size_t segment);

/// The elements of a segment of so many bytes, at least one.
inline std::size_t elements_in(std::size_t segment_bytes, DataType type) {
  return std::max<std::size_t>(1, segment_bytes / size_of(type));
}

/// Block `index` of `blocks` blocks that are equal up to a cache line of 4-byte elements. A block
/// of a short vector may be empty.
inline Slice even_block(std::size_t count, std::size_t index, std::size_t blocks) {
  return even_slice(count, index, blocks, 16);
}

/// A communicator that has messages and nothing else (start_send, start_receive): every collective
/// is made of these. The tags are in collectives/message_tags.hpp.
///
/// Partial sums of bf16 and f16 travel as float32 and are rounded once; those of an i32 or u8
/// average travel as i64.
class MessageCommunicator : public Communicator {
 public:
  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;
  /// Takes recursive doubling, Rabenseifner's algorithm or the segmented ring, by size.
  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) override;
  /// Pipelined up a binary tree, or along a chain where there are many segments.
  void reduce(ConstBuffer input, MutableBuffer result, RankId root, Reduction reduction) override;
  /// Pipelined down the same tree or chain.
  void broadcast(MutableBuffer values, RankId root) override;
  /// Segmented rings.
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) override;
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                      Reduction reduction) override;
  /// Sends to every peer directly, all at once.
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override;
  /// By dissemination: in ⌈lg p⌉ rounds each rank tells the one at twice the distance.
  void barrier() override;

 protected:
  explicit MessageCommunicator(std::size_t segment_bytes = 49152) : segment_bytes_(segment_bytes) {}
  /// True while a collective runs over this communicator's own messages.
  bool in_collective() const { return in_collective_; }

 private:
  class Collective;

  std::size_t segment_bytes_;
  Scratch scratch_;
  bool in_collective_ = false;
};

}  // namespace heteroperf
