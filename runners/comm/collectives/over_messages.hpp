#pragma once

#include "runners/comm/collectives/scratch.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// All collectives made of a communicator's own messages (start_send, start_receive), for one that
/// has no better way: it holds one of these as a member and hands its collectives on. They use the
/// tags of collectives/message_tags.hpp. Arguments and errors as Communicator's.
///
/// Partial sums of bf16 and f16 travel as float32 and are rounded once; those of an i32 or u8
/// average travel as i64.
class MessageCollectives {
 public:
  /// `group` outlives this. Only its rank, size and messages are used.
  explicit MessageCollectives(Communicator& group, std::size_t segment_bytes = 49152)
      : group_(group), segment_bytes_(segment_bytes) {}

  /// Recursive doubling, Rabenseifner's algorithm or the segmented ring, by size.
  void all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction);
  /// Pipelined up a binary tree, or along a chain where there are many segments.
  void reduce(ConstBuffer mine, MutableBuffer result, RankId root, Reduction reduction);
  void broadcast(MutableBuffer values, RankId root);
  /// Segmented rings.
  void all_gather(ConstBuffer mine, MutableBuffer all, Counts counts);
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts, Reduction reduction);
  /// Every pair directly, all at once.
  void all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs, Counts from_each);
  /// By dissemination: ⌈lg p⌉ rounds.
  void barrier();

 private:
  Communicator& group_;
  std::size_t segment_bytes_;
  Scratch scratch_;
};

}  // namespace heteroperf
