#pragma once

#include <cstddef>

#include "runners/comm/collectives/all_reduce.hpp"
#include "runners/comm/collectives/partial_sums.hpp"
#include "runners/comm/slice.hpp"

namespace heteroperf {

/// Block `index` of `blocks`, equal up to a cache line of 4-byte elements; may be empty.
inline Slice block_of(std::size_t count, std::size_t index, std::size_t blocks) {
  return even_slice(count, index, blocks, 16);
}

/// Who uses which slot of a Scratch.
namespace scratch_slots {
constexpr std::size_t partial = 0, incoming = 1;
constexpr std::size_t children = 2, staging = 3, final_sums = 4;
constexpr std::size_t bridge_own = 5, bridge_arriving = 6, bridge_raw = 7;
}  // namespace scratch_slots

/// p ranks as the next lower power of two: each of the first 2·(p - 2^k) with an odd number speaks
/// for the one before it, too.
class Folding {
 public:
  Folding(int self, int ranks);

  int active() const { return active_; }
  bool takes_part() const { return index_ >= 0; }
  /// Number among the active ranks.
  int index() const { return index_; }
  RankId rank_of(int index) const;

  /// Adds the partners' vectors. Afterwards `sums.partial` of the active holds what they speak
  /// for; returns whether it does (else that is still `sums.mine`).
  bool fold(const AllReduceCall& call, const PartialSums& sums) const;
  void unfold(const AllReduceCall& call) const;

 private:
  bool folded() const { return self_ < 2 * extra_; }

  int self_, active_ = 1, extra_ = 0, index_ = -1;
};

void all_reduce_recursive_doubling(const AllReduceCall& call, const PartialSums& sums);
/// `segment` elements travel at a time; 0: a whole block.
void all_reduce_ring(const AllReduceCall& call, const PartialSums& sums, std::size_t segment);
void all_reduce_rabenseifner(const AllReduceCall& call, const PartialSums& sums);
void all_reduce_tree(const AllReduceCall& call, const PartialSums& sums, std::size_t segment);

/// `call.result` matters on `root` alone.
void reduce_tree(const AllReduceCall& call, RankId root);
void broadcast_tree(Communicator& group, MutableBuffer values, RankId root,
                    std::size_t segment_bytes, Scratch& scratch);

struct RingCall {
  Communicator& group;
  Counts counts;  ///< elements of each rank's block
  std::size_t segment_bytes;
  Scratch& scratch;
};
/// `all` holds this rank's own block.
void all_gather_ring(const RingCall& call, MutableBuffer all);
/// `sums.mine` is the whole vector, `sums.partial` and `sums.result` this rank's block.
void reduce_scatter_ring(const RingCall& call, const PartialSums& sums);

}  // namespace heteroperf
