#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

inline constexpr std::size_t cache_line_bytes = 64;

/// The slots of a Scratch by what they hold. Algorithms that run inside one another use different
/// slots.
namespace scratch_slots {
constexpr std::size_t partial = 0, incoming = 1;
constexpr std::size_t children = 2, staging = 3, final_sums = 4;
constexpr std::size_t bridge_local = 5, bridge_arriving = 6, bridge_raw = 7;
constexpr std::size_t count = 8;
}  // namespace scratch_slots

/// Memory that the algorithms of one communicator reuse from call to call. A slot grows to its
/// largest use and stays, so that calls in a row allocate nothing and touch warm pages.
class Scratch {
 public:
  /// Returns at least `bytes` bytes, aligned to a cache line. They are not initialised, since pages
  /// that an algorithm never touches cost nothing; the slot's earlier content may be lost.
  std::byte* slot(std::size_t index, std::size_t bytes) {
    HETEROPERF_EXPECT(index < blocks_.size());
    Block& block = blocks_[index];
    if (!block.memory || block.bytes < bytes) {
      block.memory.reset();
      block.memory.reset(new std::byte[bytes + cache_line_bytes]);
      block.bytes = bytes;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(block.memory.get());
    return block.memory.get() + (cache_line_bytes - address % cache_line_bytes) % cache_line_bytes;
  }

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
  };
  std::array<Block, scratch_slots::count> blocks_;
};

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
