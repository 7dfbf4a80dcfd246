#pragma once

#include "runners/comm/collectives/scratch.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Every collective, made of a communicator's own messages (start_send, start_receive). A
/// communicator that has no better way holds one of these as a member and hands its collectives
/// on. Arguments and errors are those of Communicator; the tags are in
/// collectives/message_tags.hpp.
///
/// Partial sums of bf16 and f16 travel as float32 and are rounded once; those of an i32 or u8
/// average travel as i64.
class MessageCollectives {
 public:
  /// Uses only the rank, size and messages of `group`, which outlives this object.
  explicit MessageCollectives(Communicator& group, std::size_t segment_bytes = 49152)
      : group_(group), segment_bytes_(segment_bytes) {}

  /// Takes recursive doubling, Rabenseifner's algorithm or the segmented ring, by size.
  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction);
  /// Pipelined up a binary tree, or along a chain where there are many segments.
  void reduce(ConstBuffer input, MutableBuffer result, RankId root, Reduction reduction);
  /// Pipelined down the same tree or chain.
  void broadcast(MutableBuffer values, RankId root);
  /// Segmented rings.
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts);
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts, Reduction reduction);
  /// Sends to every peer directly, all at once.
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result, Counts from_each);
  /// By dissemination: in ⌈lg p⌉ rounds each rank tells the one at twice the distance.
  void barrier();

 private:
  Communicator& group_;
  std::size_t segment_bytes_;
  Scratch scratch_;
};

}  // namespace heteroperf
