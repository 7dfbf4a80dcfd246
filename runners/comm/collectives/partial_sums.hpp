#pragma once

#include "runners/comm/collectives/scratch.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

// A *partial* sum covers some of the ranks. It travels and is added in its *partial type*, which
// may be wider than the callers' type, and becomes a *result* when all ranks are in it: an average
// is then divided by the number of ranks, and the value is rounded once.

/// The partial type: float32 for sums and averages of bf16 and f16, i64 for averages of i32 and
/// u8, otherwise the type itself.
DataType partial_type(DataType type, Reduction reduction);

/// The operation on partial sums: an average adds like a sum and is divided at the end.
inline Reduction undivided(Reduction reduction) {
  return reduction == Reduction::average ? Reduction::sum : reduction;
}

/// Combines two vectors element by element into `into`, which may be either of them; an average is
/// summed. The order matters: of +0 and -0, min and max take the one in `first`. If either element
/// is NaN, the result is NaN.
void combine(ConstBuffer first, ConstBuffer second, void* into, Reduction reduction);

/// Copies or converts element by element. The same memory is allowed when the types are equal.
void convert(ConstBuffer from, MutableBuffer to);

/// Makes results of partial sums: divides an average by `ranks` and rounds to the type of
/// `result`. The same memory is allowed when the types are equal.
void finish(ConstBuffer partial, MutableBuffer result, Reduction reduction, int ranks);

/// Returns `input` in its partial type: itself, or a copy in the scratch slot `partial`.
ConstBuffer widened(ConstBuffer input, Reduction reduction, Scratch& scratch);

/// The buffers of a flat algorithm on one rank.
struct PartialSums {
  ConstBuffer input;      ///< in the partial type; may be the memory of `partial`
  MutableBuffer partial;  ///< may be the memory of `result`
  MutableBuffer result;
  Reduction reduction = Reduction::sum;
  int ranks = 1;

  /// partial = arrived combined with input, for elements [begin, begin + count). `arrived` comes
  /// from lower ranks, so it is the first operand.
  void add_before(const void* arrived, std::size_t begin, std::size_t count) const;
  void finish_part(std::size_t begin, std::size_t count) const;
};

/// The partial sums of an all-reduce: they lie in `result` where the partial type is the callers'
/// type, and in the scratch slot `partial` otherwise.
PartialSums make_partial_sums(ConstBuffer input, MutableBuffer result, Reduction reduction,
                              int ranks, Scratch& scratch);

}  // namespace heteroperf
