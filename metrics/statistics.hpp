#pragma once

#include <span>

namespace heteroperf {

/// Summaries of a sample. All throw Error{internal} on an empty one. Plain IEEE arithmetic in a
/// fixed order: equal input gives equal bits on every machine.

double mean(std::span<const double> values);

/// Sample standard deviation (n − 1); 0 for a single value.
double standard_deviation(std::span<const double> values);

/// Standard deviation / mean. The mean must not be 0.
double coefficient_of_variation(std::span<const double> values);

/// Type 7 of Hyndman and Fan (1996): linear between the order statistics at (n − 1) p. 0 ≤ p ≤ 1.
double quantile(std::span<const double> values, double p);

/// Quantile 1/2.
double median(std::span<const double> values);

}  // namespace heteroperf
