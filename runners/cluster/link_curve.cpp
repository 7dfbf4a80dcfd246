#include "runners/cluster/link_curve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// So far away that the subtraction which gives the slope back loses no digits.
constexpr Bytes far_size{std::uint64_t{1} << 40};

/// Writes a point for messages.
std::string text_of(const LinkCurve::Point& point) {
  return fmt::format("{} B in {} s", point.size.value(), point.time.value());
}

/// Notes a time that is not positive; 0 bytes may take no time.
void check_point(const LinkCurve::Point& point, ProblemList& problems) {
  const double time_s = point.time.value();
  const bool is_zero_at_zero = time_s == 0 && point.size == Bytes(0);
  if (std::isfinite(time_s) && (time_s > 0 || is_zero_at_zero)) return;
  problems.add(fmt::format("a link takes {} s for {} B", time_s, point.size.value()),
               "must be a positive time");
}

/// Notes points that are out of order, and times that fall.
void check_step(const LinkCurve::Point& a, const LinkCurve::Point& b, ProblemList& problems) {
  const std::string points = fmt::format("{}, then {}", text_of(a), text_of(b));
  if (b.size <= a.size) {
    problems.add("the points of a link are not in order", points, "List them by growing size");
  } else if (b.time < a.time) {
    problems.add("a link takes less time for a larger message", points);
  }
}

/// Returns seconds per byte beyond the last point. Noise can leave the last step level; then all of
/// the last message counts.
double end_slope(const std::vector<LinkCurve::Point>& points) {
  const LinkCurve::Point& last = points.back();
  if (points.size() > 1) {
    const LinkCurve::Point& before = points[points.size() - 2];
    if (last.time > before.time)
      return (last.time - before.time).value() / (last.size.value() - before.size.value());
  }
  return last.time.value() / static_cast<double>(last.size.value());
}

}  // namespace

LinkCurve::LinkCurve(std::vector<Point> points) : points_(std::move(points)) {
  ProblemList problems;
  if (points_.empty()) problems.add("a link has no points");
  for (const Point& point : points_) check_point(point, problems);
  for (std::size_t i = 1; i < points_.size(); ++i) {
    check_step(points_[i - 1], points_[i], problems);
  }
  if (problems.empty() && points_.back().size == Bytes(0)) {
    problems.add("a link has no bandwidth", "its only point is that of 0 B");
  }
  problems.throw_if_any();
}

LinkCurve::LinkCurve(Seconds latency, BytesPerSecond bandwidth) {
  ProblemList problems;
  if (!std::isfinite(latency.value()) || latency < Seconds(0)) {
    problems.add(fmt::format("the latency of a link is {} s", latency.value()),
                 "must be 0 or more");
  }
  const Seconds transfer(static_cast<double>(far_size.value()) / bandwidth.value());
  if (!std::isfinite(transfer.value()) || !(transfer > Seconds(0))) {
    problems.add(fmt::format("the bandwidth of a link is {} B/s", bandwidth.value()),
                 "must be positive");
  }
  problems.throw_if_any();
  points_ = {{Bytes(0), latency}, {far_size, latency + transfer}};
}

Seconds LinkCurve::time(Bytes size) const {
  HETEROPERF_EXPECT(!empty());
  if (size <= points_.front().size) return latency();
  const auto after = std::lower_bound(points_.begin(), points_.end(), size,
                                      [](const Point& p, Bytes n) { return p.size < n; });
  if (after == points_.end()) {
    const Point& last = points_.back();
    return last.time +
           Seconds(end_slope(points_) * static_cast<double>((size - last.size).value()));
  }
  const Point& before = *(after - 1);
  const double part = (size - before.size) / (after->size - before.size);
  return before.time + (after->time - before.time) * part;
}

Seconds LinkCurve::latency() const {
  HETEROPERF_EXPECT(!empty());
  return points_.front().time;
}

BytesPerSecond LinkCurve::bandwidth() const {
  HETEROPERF_EXPECT(!empty());
  return BytesPerSecond(1 / end_slope(points_));
}

}  // namespace heteroperf
