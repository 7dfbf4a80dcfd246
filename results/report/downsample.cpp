// A run has up to millions of steps and a screen about a thousand pixels, so a line over time is
// thinned before it goes into the page. Largest-triangle-three-buckets cuts the points into as many
// *buckets* as there are points to keep and takes one point of each: the one that spans the largest
// triangle with the point kept before and the mean of the next bucket. A peak spans a large
// triangle, so it survives, where a plain mean or every n-th point would lose it. The first and the
// last point are buckets of their own.

#include "results/report/report_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ranges>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"

namespace heteroperf {
namespace {

/// Twice the area of the triangle of three points; the factor changes no comparison.
double triangle(double ax, double ay, double bx, double by, double cx, double cy) {
  return std::abs((ax - cx) * (by - ay) - (ax - bx) * (cy - ay));
}

}  // namespace

std::vector<std::size_t> largest_triangles(std::span<const double> x, std::span<const double> y,
                                           std::size_t count) {
  HETEROPERF_EXPECT(x.size() == y.size() && count >= 3);
  const std::size_t points = x.size();
  std::vector<std::size_t> kept{0};
  if (points <= count) {
    kept.resize(points);
    std::iota(kept.begin(), kept.end(), 0);
    return kept;
  }
  const std::size_t buckets = count - 2;
  const double width = static_cast<double>(points - 2) / static_cast<double>(buckets);
  // The first point of a bucket. The one after the last bucket holds the last point alone, so the
  // last triangle has a third corner.
  const auto edge = [&](std::size_t bucket) {
    return bucket >= buckets ? points - 1 + bucket - buckets
                             : 1 + static_cast<std::size_t>(static_cast<double>(bucket) * width);
  };
  for (std::size_t i = 0; i < buckets; ++i) {
    const std::size_t last = kept.back(), next = edge(i + 1), size = edge(i + 2) - next;
    const double next_x = mean(x.subspan(next, size)), next_y = mean(y.subspan(next, size));
    const auto area = [&](std::size_t k) {
      return triangle(x[last], y[last], x[k], y[k], next_x, next_y);
    };
    kept.push_back(*std::ranges::max_element(std::views::iota(edge(i), next), {}, area));
  }
  kept.push_back(points - 1);
  return kept;
}

ChartSeries thinned_line(const std::string& name, const std::vector<double>& x,
                         const std::vector<double>& y, std::string& note) {
  ChartSeries series{name, SeriesMark::line};
  const auto kept = largest_triangles(x, y);
  for (const std::size_t i : kept) {
    series.x.push_back(x[i]);
    series.y.push_back(y[i]);
  }
  if (kept.size() < x.size()) {
    note += fmt::format("{}{}: {} of {} steps, chosen by largest-triangle-three-buckets.",
                        note.empty() ? "" : " ", name, kept.size(), x.size());
  }
  return series;
}

}  // namespace heteroperf
