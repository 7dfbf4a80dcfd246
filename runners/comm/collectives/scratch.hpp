#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace heteroperf {

inline constexpr std::size_t cache_line_bytes = 64;

/// Memory that algorithms reuse from call to call: it grows to the largest use and stays.
class Scratch {
 public:
  static constexpr std::size_t slots = 8;

  /// At least `bytes` bytes, aligned to a cache line; what was in the slot may be lost.
  std::byte* slot(std::size_t index, std::size_t bytes);

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
  };
  std::array<Block, slots> blocks_;
};

}  // namespace heteroperf
