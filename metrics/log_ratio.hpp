#pragma once

#include <span>
#include <vector>

#include "metrics/bootstrap.hpp"

namespace heteroperf {

/// Of the intervals that comparisons tell.
inline constexpr double interval_coverage = 0.95;

/// Estimate of a difference of logarithms, ln(head / base), with Student's t.
struct LogRatio {
  double mean = 0;
  double standard_error = 0;
  double degrees = 1;  ///< of freedom

  /// Two-sided chance of a mean this far from 0 without any difference. Without spread: 1 for 0,
  /// else 0.
  double p_value() const;
  /// Half of the width of the interval that covers the true mean with that chance.
  double half_width(double coverage) const;
  Interval interval(double coverage) const;
};

/// Of an interval of logarithms, that of what they are of.
Interval exponential(const Interval& logs);

/// Of differences that were each measured together (paired t). At least 2.
LogRatio paired_log_ratio(std::span<const double> differences);

/// Of runs that were not measured together: Welch's t, degrees by Welch and Satterthwaite. At least
/// 2 of each.
LogRatio unpaired_log_ratio(std::span<const double> base_logs, std::span<const double> head_logs);

/// p-values times (number of them / rank), made monotone: those below α keep the expected share of
/// false ones among them below α (Benjamini and Hochberg 1995; also where tests agree in sign,
/// Benjamini and Yekutieli 2001). In the order given.
std::vector<double> benjamini_hochberg(std::span<const double> p_values);

/// Four runs in the order base, head, head, base: a drift that is linear in time falls out.
struct AbbaBlock {
  double base_first = 0, head_first = 0, head_second = 0, base_second = 0;  ///< logarithms

  /// ln(head / base). With runs of equal spread s its standard deviation is s.
  double effect() const { return (head_first + head_second - base_first - base_second) / 2; }
  /// Each program against itself: the contrast (1, −3, 3, −1) / √20 over time. Of the same spread
  /// as `effect`, 0 on average whatever the two programs do, and blind to linear and quadratic
  /// drift: what it sees is neither the programs nor drift that `effect` removes.
  double control() const;
};

}  // namespace heteroperf
