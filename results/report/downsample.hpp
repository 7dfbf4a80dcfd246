#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "results/report/report_chart.hpp"

namespace heteroperf {

/// Points that a line over time keeps at most.
inline constexpr std::size_t most_chart_points = 1000;

/// Indices of at most `count` points that keep the shape of the line:
/// largest-triangle-three-buckets (Steinarsson, "Downsampling Time Series for Visual
/// Representation", 2013, §4.2). First and last are kept; ascending; `count` is at least 3. Values
/// must be finite. Linear in the points.
std::vector<std::size_t> largest_triangles(std::span<const double> x, std::span<const double> y,
                                           std::size_t count = most_chart_points);

/// The points as a line of at most most_chart_points; adds to `note` how many were left out and by
/// which method.
ChartSeries thinned_line(const std::string& name, const std::vector<double>& x,
                         const std::vector<double>& y, std::string& note);

}  // namespace heteroperf
