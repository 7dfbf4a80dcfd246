#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace heteroperf {

/// A number with a unit: explicit construction, arithmetic that keeps the unit.
/// `Tag` only tells units apart; `Scalar` is the representation.
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
/// Operations per second, in whichever convention the context names.
using OpsPerSecond = Quantity<struct OpsPerSecondTag, double>;

/// A small integer that names one thing (a rank, a node of a graph).
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::int32_t value) : value_(value) {}
  constexpr std::int32_t value() const { return value_; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  std::int32_t value_ = 0;
};

using RankId = Id<struct RankTag>;
using NodeId = Id<struct NodeTag>;

/// Numbers as places in a container; none is negative.
constexpr std::size_t at_index(std::int64_t i) { return static_cast<std::size_t>(i); }
template <class Tag>
constexpr std::size_t position(Id<Tag> id) {
  return at_index(id.value());
}

inline constexpr double infinite = std::numeric_limits<double>::infinity();
inline constexpr double nanosecond = 1e-9;  ///< in seconds

}  // namespace heteroperf
