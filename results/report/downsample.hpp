#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace heteroperf {

/// Points that a line over time keeps at most.
inline constexpr std::size_t most_chart_points = 1000;

/// Indices of at most `count` points that keep the shape of the line:
/// largest-triangle-three-buckets (Steinarsson, "Downsampling Time Series for Visual
/// Representation", 2013, §4.2). First and last are kept; ascending; `count` is at least 3. Values
/// must be finite. Linear in the points.
std::vector<std::size_t> largest_triangles(std::span<const double> x, std::span<const double> y,
                                           std::size_t count = most_chart_points);

}  // namespace heteroperf
