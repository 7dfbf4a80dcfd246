#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "metrics/base/random.hpp"

namespace heteroperf {

/// Statistics of samples. All functions throw Error{internal} for an empty sample. They use plain
/// IEEE arithmetic in a fixed order; where a comment says so, equal input gives equal bits on every
/// machine, as numbers need that are stored and recomputed by `verify`.

/// These summaries give equal bits on every machine.
double mean(std::span<const double> values);

/// Returns the sample standard deviation (n − 1); 0 for a single value.
double standard_deviation(std::span<const double> values);

/// Returns a quantile of type 7 of Hyndman and Fan (1996), linear between the order statistics at
/// (n − 1) p, 0 ≤ p ≤ 1.
double quantile(std::span<const double> values, double p);

/// Returns quantile 1/2.
double median(std::span<const double> values);
/// Returns the middle value, of two middle ones the larger, so that two unlike ones are never
/// mixed.
double upper_median(std::vector<double> values);

/// Returns |a − b| / |b|: 0 for equal numbers, infinite for others where `b` is 0 or one is not
/// finite.
double relative_difference(double a, double b);

/// Returns the chance that |T| is at least |t| for Student's T with `degrees` > 0 degrees of
/// freedom: the regularised incomplete beta function I_x(degrees/2, 1/2) at x = degrees / (degrees
/// + t²), by its continued fraction (Abramowitz and Stegun 26.5.8, modified Lentz). Small chances
/// keep their digits. `t` may be infinite.
double student_t_two_sided(double t, double degrees);

/// Returns the t with P(|T| <= t) = `coverage`, 0 < coverage < 1: 2.776 for 0.95 and 4 degrees.
double student_t_quantile(double coverage, double degrees);

/// Returns the same for the largest even number of degrees up to `degrees` >= 2, where the
/// distribution is a finite sum (Abramowitz and Stegun 26.7.4): equal bits on every machine.
double even_student_t_quantile(double coverage, int degrees);

/// Returns ln x for finite x > 0, within 2 units in the last place, from +, −, ×, ÷ alone. The C
/// library's logarithm differs in the last bit between machines (it picks a variant with or without
/// FMA at run time), and a stored score must be recomputed to the same bytes anywhere.
double natural_log(double x);

/// Returns the indices that sort `values`, smallest first; equal ones keep their order.
std::vector<std::size_t> sorting_order(std::span<const double> values);

/// Returns one draw from the standard normal distribution. The method (Box and Muller) gives two,
/// but one keeps the draws per sample simple.
double draw_normal(RandomStream& random);

struct Interval {
  double low = 0, high = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

struct BootstrapSettings {
  std::uint64_t seed = 1;
  int resamples = 2000;
  int block_length = 1;  ///< values drawn together; more than 1 where neighbours are correlated
};

using Statistic = std::function<double(std::span<const double>)>;

/// Returns the 95 % percentile interval of `statistic` under the circular block bootstrap (Politis
/// and Romano 1992; with blocks of one value it is Efron's). Every resample has as many values as
/// `values`, in blocks of neighbours whose starts are drawn with equal chance and that wrap around
/// the end. Positions come from RandomStream, so equal input gives equal bits on every machine.
Interval bootstrap_interval(std::span<const double> values, const Statistic& statistic,
                            const BootstrapSettings& settings = {});

}  // namespace heteroperf
