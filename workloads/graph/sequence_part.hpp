#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heteroperf {

/// The way in which the positions of a sequence are dealt to its parts.
enum class SequenceOrder : std::int32_t { zig_zag, blocks, patches };
constexpr std::array<std::string_view, 3> value_names(SequenceOrder) {
  return {"zig-zag", "blocks", "patches"};
}

/// The part of every sequence that one of several context-parallel ranks has.
///
/// In *zig-zag* order a sequence of L positions is cut into 2 · parts chunks of equal length; part
/// i has chunks i and 2 · parts − 1 − i, in this order. Under a causal mask every part then has the
/// same number of pairs of a query with a key, L² / (2 · parts), which neighbouring chunks would
/// not give (Llama 3, arXiv:2407.21783, section 3.3.2). In *blocks* part i has the i-th of `parts`
/// equal chunks. Both deal the positions of texts; what is made of a picture is whole on every
/// rank. *Patches* are blocks of the rows that are made of a picture, of which earlier ones may
/// have a row more than later ones, and texts are whole.
struct SequencePart {
  std::int32_t index = 0, parts = 1;
  SequenceOrder order = SequenceOrder::zig_zag;
  /// Positions of the whole sequence, where a rank's local graph names them; 0: those of equal
  /// parts.
  std::int64_t length = 0;
  friend auto operator<=>(const SequencePart&, const SequencePart&) = default;

  bool whole() const { return parts == 1; }
  /// The first of the parts, which has as many positions as any other.
  SequencePart first_part() const { return {0, parts, order, length}; }
  /// The equal chunks that a sequence is cut into.
  std::int32_t chunk_count() const {
    return whole() || order != SequenceOrder::zig_zag ? parts : 2 * parts;
  }
  /// The index of the part that has a chunk.
  std::int32_t part_of_chunk(std::int32_t chunk) const {
    return chunk < parts ? chunk : 2 * parts - 1 - chunk;
  }
  /// True when a sequence of so many positions can be cut.
  bool divides(std::int64_t positions) const {
    return order == SequenceOrder::patches ? positions >= parts : positions % chunk_count() == 0;
  }
  /// Positions of the whole sequence, of which this part has `own`.
  std::int64_t whole_length(std::int64_t own) const { return length > 0 ? length : own * parts; }
  /// The first position of a chunk, of so many in all; for the number of chunks that of none.
  std::int64_t first_of_chunk(std::int64_t chunk, std::int64_t positions) const {
    const std::int64_t count = chunk_count();
    return (chunk * positions + count - 1) / count;
  }
  /// The positions that one of the parts has, where this one has `own`.
  std::int64_t positions_of(std::int64_t one, std::int64_t own) const {
    if (order != SequenceOrder::patches) return own;
    const std::int64_t all = whole_length(own);
    return first_of_chunk(one + 1, all) - first_of_chunk(one, all);
  }

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
    if (chunk_count() == parts) {
      return {{{{first_of_chunk(index, whole_length(own)), own}, {}}}, 1};
    }
    const std::int64_t half = own / 2;
    return {{{{index * half, half}, {(2 * parts - 1 - index) * half, half}}}, 2};
  }
};

}  // namespace heteroperf
