#include "runners/comm/collectives/scratch.hpp"

#include <cstdint>

#include "metrics/base/error.hpp"

namespace heteroperf {
std::byte* Scratch::slot(std::size_t index, std::size_t bytes) {
  HETEROPERF_EXPECT(index < slots);
  Block& block = blocks_[index];
  if (!block.memory || block.bytes < bytes) {
    block.memory.reset();
    // Not initialised: pages that an algorithm never touches cost nothing.
    block.memory.reset(new std::byte[bytes + cache_line_bytes]);
    block.bytes = bytes;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(block.memory.get());
  return block.memory.get() + (cache_line_bytes - address % cache_line_bytes) % cache_line_bytes;
}

}  // namespace heteroperf
