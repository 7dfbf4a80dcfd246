#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace heteroperf {

/// An exact number of operations, unsigned 128-bit: 12 h at 194 Peta-OPS overflow 64 bits.
///
/// Its text form is decimal. Arithmetic that would leave the range throws Error{internal}.
class Ops {
 public:
  constexpr Ops() = default;
  constexpr explicit Ops(std::uint64_t value) : value_(value) {}
  /// Makes high * 2^64 + low.
  static constexpr Ops from_words(std::uint64_t high, std::uint64_t low);
  /// Parses decimal digits only. Throws UserError for anything else and on overflow.
  static Ops parse(std::string_view text);

  constexpr std::uint64_t high() const { return static_cast<std::uint64_t>(value_ >> 64); }
  constexpr std::uint64_t low() const { return static_cast<std::uint64_t>(value_); }
  /// Returns the nearest double; it is exact below 2^53.
  double to_double() const;
  std::string to_string() const;

  Ops& operator+=(Ops other);
  /// Throws Error{internal} when `other` is larger.
  Ops& operator-=(Ops other);
  Ops& operator*=(std::uint64_t factor);
  friend Ops operator+(Ops a, Ops b) { return a += b; }
  friend Ops operator-(Ops a, Ops b) { return a -= b; }
  friend Ops operator*(Ops a, std::uint64_t factor) { return a *= factor; }
  friend Ops operator*(std::uint64_t factor, Ops a) { return a *= factor; }
  /// Rounds towards zero.
  friend Ops operator/(Ops a, std::uint64_t divisor);
  friend constexpr bool operator==(Ops, Ops) = default;
  friend constexpr auto operator<=>(Ops, Ops) = default;

 private:
  __extension__ using Word = unsigned __int128;
  Word value_ = 0;
};

constexpr Ops Ops::from_words(std::uint64_t high, std::uint64_t low) {
  Ops ops;
  ops.value_ = (static_cast<Word>(high) << 64) | low;
  return ops;
}

}  // namespace heteroperf
