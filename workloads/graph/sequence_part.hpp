#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace heteroperf {

/// The part of every sequence that one of several context-parallel ranks has.
///
/// A sequence of L positions is cut into 2 · parts chunks of equal length; part i has chunks i and
/// 2 · parts − 1 − i, in this order (*zig-zag*). Under a causal mask every part then has the same
/// number of pairs of a query with a key, L² / (2 · parts), which neighbouring chunks would not
/// give (Llama 3, arXiv:2407.21783, section 3.3.2).
struct SequencePart {
  std::int32_t index = 0, parts = 1;
  friend auto operator<=>(const SequencePart&, const SequencePart&) = default;

  bool whole() const { return parts == 1; }
  /// True when a sequence of so many positions can be cut.
  bool divides(std::int64_t length) const { return whole() || length % (2 * parts) == 0; }

  /// Positions [first, first + count) of the whole sequence.
  struct Chunk {
    std::int64_t first = 0, count = 0;
    std::int64_t end() const { return first + count; }
  };
  /// A part's chunks, one after another as it keeps them.
  struct Chunks {
    std::array<Chunk, 2> all;
    std::size_t number = 1;
    auto begin() const { return all.begin(); }
    auto end() const { return all.begin() + static_cast<std::ptrdiff_t>(number); }
  };
  /// The chunks of this part, which has `own` positions itself.
  Chunks chunks(std::int64_t own) const {
    if (whole()) return {{{{0, own}, {}}}, 1};
    const std::int64_t half = own / 2;
    return {{{{index * half, half}, {(2 * parts - 1 - index) * half, half}}}, 2};
  }
};

}  // namespace heteroperf
