#pragma once

#include <bit>
#include <cstdint>

namespace heteroperf {

/// A bfloat16 number is the upper half of a float32. Conversions have no branches, so that loops of
/// them become vector instructions.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  /// Rounds to the nearest number, ties to even; NaN stays NaN.
  constexpr explicit BFloat16(float value);
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  friend bool operator==(BFloat16, BFloat16) = default;
};

/// A number of IEEE 754's binary16: 1 sign bit, 5 bits of exponent, 10 of mantissa.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  /// Rounds to the nearest number, ties to even. Values beyond 65504 become infinite, NaN stays
  /// NaN, and subnormal numbers are kept.
  constexpr explicit Float16(float value);
  constexpr explicit operator float() const;
  friend bool operator==(Float16, Float16) = default;
};

namespace detail {

constexpr std::int32_t infinity_bits = 0x7f800000;  // of float32
/// The difference between the exponent fields of float32 and binary16 for the same number, shifted
/// to the place of float32's exponent.
constexpr std::int32_t half_rebias = (127 - 15) << 23;

/// Chooses without a branch: both values are computed already.
constexpr std::int32_t choose(bool condition, std::int32_t yes, std::int32_t no) {
  const std::int32_t mask = -static_cast<std::int32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

}  // namespace detail

constexpr BFloat16::BFloat16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (word + 0x7fff + (word >> 16 & 1)) >> 16;
  const bool nan = static_cast<std::int32_t>(word & 0x7fffffff) > detail::infinity_bits;
  bits = static_cast<std::uint16_t>(nan ? (word >> 16 | 0x40) : rounded);
}

constexpr Float16::operator float() const {
  const std::int32_t magnitude = (bits & 0x7fff) << 13;
  constexpr std::int32_t top = 0x7c00 << 13;
  const std::int32_t normal = magnitude + detail::half_rebias;
  const std::int32_t special = normal + ((128 - 16) << 23);
  // A subnormal number has no leading 1. The digits are put below a leading 1 of 2^-14, which a
  // subtraction then takes away.
  constexpr std::int32_t leading = 113 << 23;
  const float small = std::bit_cast<float>(magnitude + leading) - std::bit_cast<float>(leading);
  std::int32_t word = detail::choose(magnitude >= top, special, normal);
  word = detail::choose(magnitude < (1 << 23), std::bit_cast<std::int32_t>(small), word);
  return std::bit_cast<float>(static_cast<std::uint32_t>(word) |
                              static_cast<std::uint32_t>(bits & 0x8000) << 16);
}

constexpr Float16::Float16(float value) {
  const auto whole = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(whole & 0x7fffffff);
  // Rounding may carry into the exponent, all the way up to infinity, which is as it should be.
  const std::int32_t normal =
      (magnitude - detail::half_rebias + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // The last digit of a float32 near 0.5 is binary16's smallest number, so for subnormal results
  // the addition of 0.5 itself rounds.
  const std::int32_t small = std::bit_cast<std::int32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
                             std::bit_cast<std::int32_t>(0.5F);
  constexpr std::int32_t overflow = (127 + 16) << 23;
  constexpr std::int32_t least_normal = 113 << 23;
  std::int32_t half = detail::choose(magnitude < least_normal, small, normal);
  half = detail::choose(magnitude >= overflow, 0x7c00, half);
  half = detail::choose(magnitude > detail::infinity_bits, 0x7e00, half);
  bits = static_cast<std::uint16_t>(static_cast<std::uint32_t>(half) | (whole >> 16 & 0x8000));
}

}  // namespace heteroperf
