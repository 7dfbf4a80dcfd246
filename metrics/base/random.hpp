#pragma once

#include <cstdint>

namespace heteroperf {

/// Mixes 64 bits by a bijection (SplitMix64's finaliser: Steele, Lea, Flood, OOPSLA 2014).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Makes random bits from a counter: they are a pure function of the keys, the same on every
/// machine. Any rank makes the value of (key, a, b, …) in O(1) without drawing those before it.
template <class... Keys>
constexpr std::uint64_t random_bits(std::uint64_t seed, Keys... keys) {
  std::uint64_t state = mix64(seed);
  ((state = mix64(state ^ static_cast<std::uint64_t>(keys))), ...);
  return state;
}

/// Makes a uniform number in [0, 1) from the 53 high bits.
constexpr double to_unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

/// A sequential stream of the counter-based generator; it uses integer arithmetic only.
class RandomStream {
 public:
  constexpr explicit RandomStream(std::uint64_t seed) : seed_(seed) {}

  constexpr std::uint64_t bits() { return random_bits(seed_, counter_++); }
  constexpr double unit() { return to_unit(bits()); }
  /// Draws uniformly from [0, bound), bound > 0, without modulo bias (Lemire's multiply and
  /// reject).
  constexpr std::uint64_t below(std::uint64_t bound);

 private:
  __extension__ typedef unsigned __int128 Wide;  // nvcc takes no `using` here
  std::uint64_t seed_;
  std::uint64_t counter_ = 0;
};

constexpr std::uint64_t RandomStream::below(std::uint64_t bound) {
  Wide product = static_cast<Wide>(bits()) * bound;
  if (static_cast<std::uint64_t>(product) < bound) {
    const std::uint64_t threshold = (0 - bound) % bound;
    while (static_cast<std::uint64_t>(product) < threshold) {
      product = static_cast<Wide>(bits()) * bound;
    }
  }
  return static_cast<std::uint64_t>(product >> 64);
}

/// Asks the operating system for random bits, for tokens and names that nobody else may guess. A
/// result never depends on them. Throws SystemError.
std::uint64_t unpredictable_bits();

}  // namespace heteroperf
