#pragma once

#include "runners/comm/collectives/scratch.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// The type in which partial results travel: float32 for sums and averages of bf16 and f16, i64
/// for averages of i32 and u8, otherwise the type itself.
DataType partial_type(DataType type, Reduction reduction);

/// into = first and second, combined element by element; an average is summed. `into` may be
/// either of them. The order matters: of +0 and -0, min and max take `first`. One NaN is enough for
/// NaN.
void combine(ConstBuffer first, ConstBuffer second, void* into, Reduction reduction);

/// Copies or converts element by element. The same memory is allowed when the types are equal.
void convert(ConstBuffer from, MutableBuffer to);

/// Makes results of partial results: divides an average by `ranks`, rounds to the type of `result`.
/// The same memory is allowed when the types are equal.
void finish(ConstBuffer partial, MutableBuffer result, Reduction reduction, int ranks);

/// What a flat algorithm works on.
struct PartialSums {
  ConstBuffer mine;       ///< of the partial type; may be the memory of `partial`
  MutableBuffer partial;  ///< may be the memory of `result`
  MutableBuffer result;
  Reduction reduction = Reduction::sum;
  int ranks = 1;

  /// partial = theirs and mine, for elements [begin, begin + count); theirs are of lower ranks.
  void add_before(const void* theirs, std::size_t begin, std::size_t count) const;
  void finish_part(std::size_t begin, std::size_t count) const;
};

/// Converts `mine` into slot `slot` of `scratch` where the partial type is another.
PartialSums make_partial_sums(ConstBuffer mine, MutableBuffer result, Reduction reduction,
                              int ranks, Scratch& scratch, std::size_t slot);

}  // namespace heteroperf
