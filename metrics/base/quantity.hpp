#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace heteroperf {

/// A number with a unit: it is made explicitly, and arithmetic keeps its unit. `Tag` only tells
/// units apart; `Scalar` is the representation.
template <class Tag, class Scalar>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(Scalar value) : value_(value) {}
  constexpr Scalar value() const { return value_; }

  constexpr Quantity& operator+=(Quantity other) { return value_ += other.value_, *this; }
  constexpr Quantity& operator-=(Quantity other) { return value_ -= other.value_, *this; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, Scalar s) { return Quantity(a.value_ * s); }
  friend constexpr Quantity operator*(Scalar s, Quantity a) { return a * s; }
  friend constexpr Quantity operator/(Quantity a, Scalar s) { return Quantity(a.value_ / s); }
  friend constexpr double operator/(Quantity a, Quantity b) {
    return static_cast<double>(a.value_) / static_cast<double>(b.value_);
  }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;

 private:
  Scalar value_{};
};

using Seconds = Quantity<struct SecondsTag, double>;
using Bytes = Quantity<struct BytesTag, std::uint64_t>;
/// Operations per second, in the counting convention that the context names.
using OpsPerSecond = Quantity<struct OpsPerSecondTag, double>;

inline constexpr double infinite = std::numeric_limits<double>::infinity();
inline constexpr double nanosecond = 1e-9;  ///< its length in seconds
inline double seconds_of(std::int64_t ns) { return static_cast<double>(ns) * nanosecond; }

/// Reads a size such as "8", "64K", "128M" or "2G": binary multiples in either case, with an
/// optional B or iB. The result is empty for any other text and for a size beyond 64 bits.
std::optional<Bytes> parse_byte_size(std::string_view text);

/// Writes the shortest such text that is exact: "64K", "1000".
std::string byte_size_text(Bytes size);

/// Writes a size for people, rounded to four digits: "41.2 GiB", "195.3 KiB", "100 B".
std::string rounded_byte_size(double bytes);
inline std::string rounded_byte_size(Bytes size) {
  return rounded_byte_size(static_cast<double>(size.value()));
}

}  // namespace heteroperf
