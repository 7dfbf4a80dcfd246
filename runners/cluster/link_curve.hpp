#pragma once

#include <vector>

#include "metrics/base/quantity.hpp"

namespace heteroperf {

/// Bytes per second, one way.
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;

/// How long a message of some size takes one way: measured points, straight lines between them,
/// the first time before the first point and the last slope beyond the last one. With one latency
/// and one bandwidth it is α + n·β. All questions require a curve that is not empty.
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
  /// Of the smallest message.
  Seconds latency() const;
  /// Slope at the large end; where the last two times are equal, last size / last time.
  BytesPerSecond bandwidth() const;
  const std::vector<Point>& points() const { return points_; }
  bool empty() const { return points_.empty(); }
  friend bool operator==(const LinkCurve&, const LinkCurve&) = default;

 private:
  std::vector<Point> points_;
};

}  // namespace heteroperf
