#pragma once

#include <array>
#include <vector>

#include "metrics/base/name_table.hpp"
#include "metrics/base/quantity.hpp"

namespace heteroperf {

/// Bytes per second, in one direction.
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;

/// The time that a message of some size takes one way: measured points with straight lines between
/// them, the first time before the first point, and the last slope beyond the last one. With one
/// latency and one bandwidth it is α + n·β. All questions require a curve that is not empty.
class LinkCurve {
 public:
  struct Point {
    Bytes size;
    Seconds time;
    friend bool operator==(const Point&, const Point&) = default;
  };

  LinkCurve() = default;
  /// Throws UserError unless sizes grow strictly and times are positive (or 0 for 0 bytes), finite
  /// and never fall.
  explicit LinkCurve(std::vector<Point> points);
  /// Throws UserError unless `bandwidth` > 0 and `latency` >= 0.
  LinkCurve(Seconds latency, BytesPerSecond bandwidth);

  Seconds time(Bytes size) const;
  /// Returns the time of the smallest message.
  Seconds latency() const;
  /// Returns the slope at the large end; where the last two times are equal, last size / last time.
  BytesPerSecond bandwidth() const;
  const std::vector<Point>& points() const { return points_; }
  bool empty() const { return points_.empty(); }
  friend bool operator==(const LinkCurve&, const LinkCurve&) = default;

 private:
  std::vector<Point> points_;
};

/// The form in which float32 values travel over a thin link. Sums are always made in float32.
enum class WireFormat {
  fp32,  ///< unchanged; the only form of other types
  bf16,  ///< rounded to nearest: the relative error is at most 2^-8 per contribution
  int8,  ///< blocks with a scale: the error is at most absmax/254 of the block per contribution
};

constexpr std::array<const char*, 3> value_names(WireFormat) { return {"fp32", "bf16", "int8"}; }

}  // namespace heteroperf
