#include "runners/comm/checked/checksum.hpp"

#include <bit>
#include <cstring>

#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

/// Four independent chains hide the latency of the multiplication.
constexpr std::size_t lanes = 4;
constexpr std::uint64_t odd_factor = 0x9e3779b97f4a7c15ULL;  // 2⁶⁴ / golden ratio

/// Bijective in `word` for a given state, and in the state for a given word.
std::uint64_t absorb(std::uint64_t state, std::uint64_t word) {
  return std::rotl((state ^ word) * odd_factor, 29);
}

}  // namespace

std::uint64_t checksum(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  std::uint64_t state[lanes] = {1, 2, 3, 4}, block[lanes];
  std::size_t left = bytes;
  for (; left >= sizeof block; left -= sizeof block, at += sizeof block) {
    std::memcpy(block, at, sizeof block);
    for (std::size_t i = 0; i < lanes; ++i) state[i] = absorb(state[i], block[i]);
  }
  if (left > 0) {
    std::memset(block, 0, sizeof block);
    std::memcpy(block, at, left);
    for (std::size_t i = 0; i < lanes; ++i) state[i] = absorb(state[i], block[i]);
  }
  std::uint64_t all = bytes;
  for (std::uint64_t one : state) all = mix64(all ^ one);
  return all;
}

}  // namespace heteroperf
