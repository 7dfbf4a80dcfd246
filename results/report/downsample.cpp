// A run has up to millions of steps and a screen about a thousand pixels, so a line over time is
// thinned before it goes into the page. Largest-triangle-three-buckets cuts the points into as many
// *buckets* as there are points to keep and takes one point of each: the one that spans the largest
// triangle with the point kept before and the mean of the next bucket. A peak spans a large
// triangle, so it survives, where a plain mean or every n-th point would lose it. The first and the
// last point are buckets of their own.

#include "results/report/report_page.hpp"

#include <fmt/format.h>

#include <cmath>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// A range of points, `end` not included.
struct Bucket {
  std::size_t begin, end;
};

struct Place {
  double x, y;
};

Place middle(std::span<const double> x, std::span<const double> y, Bucket bucket) {
  Place sum{0, 0};
  for (std::size_t i = bucket.begin; i < bucket.end; ++i) {
    sum.x += x[i];
    sum.y += y[i];
  }
  const auto count = static_cast<double>(bucket.end - bucket.begin);
  return {sum.x / count, sum.y / count};
}

/// Twice the area of a triangle; the factor changes no comparison.
double triangle(Place a, Place b, Place c) {
  return std::abs((a.x - c.x) * (b.y - a.y) - (a.x - b.x) * (c.y - a.y));
}

}  // namespace

std::vector<std::size_t> largest_triangles(std::span<const double> x, std::span<const double> y,
                                           std::size_t count) {
  HETEROPERF_EXPECT(x.size() == y.size() && count >= 3);
  const std::size_t points = x.size();
  std::vector<std::size_t> kept;
  if (points <= count) {
    for (std::size_t i = 0; i < points; ++i) kept.push_back(i);
    return kept;
  }
  const std::size_t buckets = count - 2;
  const double width = static_cast<double>(points - 2) / static_cast<double>(buckets);
  // The bucket after the last one holds the last point alone, so the last triangle has a third
  // corner.
  const auto bucket_at = [&](std::size_t i) {
    const auto edge = [&](std::size_t k) {
      return 1 + static_cast<std::size_t>(static_cast<double>(k) * width);
    };
    return i == buckets ? Bucket{points - 1, points}
                        : Bucket{edge(i), i + 1 == buckets ? points - 1 : edge(i + 1)};
  };
  kept.push_back(0);
  for (std::size_t i = 0; i < buckets; ++i) {
    const Bucket bucket = bucket_at(i);
    const Place next = middle(x, y, bucket_at(i + 1));
    const Place last{x[kept.back()], y[kept.back()]};
    std::size_t best = bucket.begin;
    // Below any area, so that points in one line still give a choice.
    double largest = -1;
    for (std::size_t k = bucket.begin; k < bucket.end; ++k) {
      const double area = triangle(last, {x[k], y[k]}, next);
      if (area > largest) {
        largest = area;
        best = k;
      }
    }
    kept.push_back(best);
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
