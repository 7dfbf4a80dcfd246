#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "metrics/base/error.hpp"

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

}  // namespace heteroperf
