#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "metrics/base/random.hpp"

namespace heteroperf {

/// A 128-bit fingerprint of a sequence of values. It is equal on every machine and identifies
/// graphs and data; it gives no security. It keeps two chained lanes of mix64 with distinct keys.
///
/// An update absorbs whole words, and of texts and byte ranges first the length, so that
/// neighbouring fields cannot run into each other: ("ab", "c") and ("a", "bc") differ.
class Hash128 {
 public:
  constexpr Hash128() = default;
  /// Starts a domain of its own: equal updates under different labels give different hashes.
  explicit Hash128(std::string_view domain) { update(domain); }

  template <class Integer>
  requires(std::is_integral_v<Integer> ||
           std::is_enum_v<Integer>) constexpr Hash128& update(Integer value) {
    return absorb(static_cast<std::uint64_t>(value));
  }
  /// Absorbs a number by its bit pattern; both zeros count as +0.
  constexpr Hash128& update(double value) {
    return absorb(std::bit_cast<std::uint64_t>(value == 0.0 ? 0.0 : value));
  }
  Hash128& update(std::span<const std::byte> bytes) {
    return absorb_bytes(bytes.data(), bytes.size());
  }
  Hash128& update(std::string_view text) { return absorb_bytes(text.data(), text.size()); }
  Hash128& update(const char* text) { return update(std::string_view(text)); }
  constexpr Hash128& update(const Hash128& other) {
    return absorb(other.high()).absorb(other.low());
  }

  constexpr std::uint64_t high() const { return mix64(high_ ^ std::rotl(low_, 23)); }
  constexpr std::uint64_t low() const { return mix64(low_ + std::rotl(high_, 41)); }
  /// Returns 32 hexadecimal digits, the high word first.
  std::string hex() const { return hex_word(high()) + hex_word(low()); }

  friend constexpr bool operator==(const Hash128&, const Hash128&) = default;
  friend constexpr auto operator<=>(const Hash128&, const Hash128&) = default;

 private:
  constexpr Hash128& absorb(std::uint64_t word) {
    high_ = mix64(high_ ^ word);
    low_ = mix64((low_ ^ std::rotl(word, 32)) + 0xd1b54a32d192ed03ULL);
    return *this;
  }

  // Words are little-endian on every machine; zeros fill the last one.
  Hash128& absorb_bytes(const void* data, std::size_t size) {
    absorb(size);
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (std::size_t start = 0; start < size; start += 8) {
      std::uint64_t word = 0;
      for (std::size_t i = start; i < size && i < start + 8; ++i) {
        word |= static_cast<std::uint64_t>(bytes[i]) << (8 * (i - start));
      }
      absorb(word);
    }
    return *this;
  }

  static std::string hex_word(std::uint64_t word) {
    std::string digits(16, '0');
    for (int i = 15; i >= 0; --i, word >>= 4) {
      digits[static_cast<std::size_t>(i)] = "0123456789abcdef"[word & 15];
    }
    return digits;
  }

  std::uint64_t high_ = 0x243f6a8885a308d3ULL, low_ = 0x13198a2e03707344ULL;
};

}  // namespace heteroperf
