#include "runners/comm/collectives/scratch.hpp"

#include <cstdint>

#include "metrics/error.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t line_bytes = 64;

}  // namespace

std::byte* Scratch::slot(std::size_t index, std::size_t bytes) {
  HETEROPERF_EXPECT(index < slots);
  Block& block = blocks_[index];
  if (!block.memory || block.bytes < bytes) {
    block.memory.reset();
    // Not initialised: pages that an algorithm never touches cost nothing.
    block.memory.reset(new std::byte[bytes + line_bytes]);
    block.bytes = bytes;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(block.memory.get());
  return block.memory.get() + (line_bytes - address % line_bytes) % line_bytes;
}

}  // namespace heteroperf
