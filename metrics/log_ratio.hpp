#pragma once

#include <span>
#include <vector>

#include "metrics/statistics.hpp"

namespace heteroperf {

/// The coverage of the intervals that comparisons print.
inline constexpr double interval_coverage = 0.95;

/// An estimate of a difference of logarithms, ln(head / base), with Student's t.
struct LogRatio {
  double mean = 0;
  double standard_error = 0;
  double degrees = 1;  ///< degrees of freedom of the standard error

  /// Returns the two-sided chance of a mean this far from 0 without any difference. Without spread
  /// it is 1 for a mean of 0, else 0.
  double p_value() const;
  /// Returns half of the width of the interval that covers the true mean with that chance.
  double half_width(double coverage) const;
  Interval interval(double coverage) const;
};

/// Turns an interval of logarithms into the interval of the ratios themselves.
Interval exponential(const Interval& logs);

/// Estimates from differences that were each measured together (paired t). Takes at least 2.
LogRatio paired_log_ratio(std::span<const double> differences);

/// Estimates from runs that were not measured together: Welch's t, with the degrees of freedom by
/// Welch and Satterthwaite. Takes at least 2 of each.
LogRatio unpaired_log_ratio(std::span<const double> base_logs, std::span<const double> head_logs);

/// Adjusts p-values for being several (Benjamini and Hochberg 1995; valid also where tests agree in
/// sign, Benjamini and Yekutieli 2001): each becomes p · number / rank, made monotone. The adjusted
/// values below α keep the expected share of false alarms among them below α. The order is kept.
std::vector<double> benjamini_hochberg(std::span<const double> p_values);

/// Four runs in the order base, head, head, base: a drift that is linear in time cancels out.
struct AbbaBlock {
  double base_first = 0, head_first = 0, head_second = 0, base_second = 0;  ///< logarithms

  /// Returns ln(head / base). With runs of equal spread s its standard deviation is s.
  double effect() const { return (head_first + head_second - base_first - base_second) / 2; }
  /// Compares each program with itself, by the contrast (1, −3, 3, −1) / √20 over time. The result
  /// has the same spread as `effect` and is 0 on average whatever the two programs do. It is blind
  /// to linear and quadratic drift: so it shows disturbances other than the drift that `effect`
  /// removes.
  double control() const;
};

}  // namespace heteroperf
