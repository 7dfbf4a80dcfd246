#include "metrics/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"

namespace heteroperf {

double mean(std::span<const double> values) {
  HETEROPERF_EXPECT(!values.empty());
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double standard_deviation(std::span<const double> values) {
  const double centre = mean(values);
  if (values.size() == 1) return 0;
  double squares = 0;
  for (double value : values) squares += (value - centre) * (value - centre);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double relative_difference(double a, double b) {
  if (a == b) return 0;
  if (!std::isfinite(a) || !std::isfinite(b) || b == 0) return infinite;
  return std::abs(a - b) / std::abs(b);
}

double quantile(std::span<const double> values, double p) {
  HETEROPERF_EXPECT(!values.empty());
  HETEROPERF_EXPECT(p >= 0 && p <= 1);
  std::vector<double> sorted(values.begin(), values.end());
  const double position = static_cast<double>(sorted.size() - 1) * p;
  const auto lower = static_cast<std::size_t>(position);
  const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(lower);
  std::nth_element(sorted.begin(), at, sorted.end());
  const double fraction = position - static_cast<double>(lower);
  if (fraction == 0) return *at;
  const double next = *std::min_element(at + 1, sorted.end());
  return *at + fraction * (next - *at);
}

double median(std::span<const double> values) { return quantile(values, 0.5); }

double upper_median(std::vector<double> values) {
  HETEROPERF_EXPECT(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

namespace {

constexpr double tiny = 1e-300;
constexpr double converged = 1e-15;
constexpr int most_terms = 10000;

double away_from_zero(double value) { return std::fabs(value) < tiny ? tiny : value; }

/// Evaluates the continued fraction of I_x(a, b), by the modified Lentz method. It converges fast
/// for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), fraction = d;
  const auto multiply = [&](double coefficient) {
    d = 1 / away_from_zero(1 + coefficient * d);
    c = away_from_zero(1 + coefficient / c);
    fraction *= c * d;
    return std::fabs(c * d - 1);
  };
  for (int m = 1; m <= most_terms; ++m) {
    const double even = a + 2 * m;
    multiply(m * (b - m) * x / ((even - 1) * even));
    if (multiply(-(a + m) * (a + b + m) * x / (even * (even + 1))) < converged) break;
  }
  return fraction;
}

/// Returns I_x(a, b), with `y` = 1 - x given apart so that neither loses digits.
double incomplete_beta(double a, double b, double x, double y) {
  if (x <= 0) return 0;
  if (y <= 0) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log(y));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                   : 1 - front * beta_fraction(b, a, y) / b;
}

}  // namespace

double student_t_two_sided(double t, double degrees) {
  HETEROPERF_EXPECT(degrees > 0 && !std::isnan(t));
  if (std::isinf(t)) return 0;
  const double square = t * t;
  if (std::isinf(square)) return 0;
  return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + square),
                         square / (degrees + square));
}

double student_t_quantile(double coverage, double degrees) {
  HETEROPERF_EXPECT(coverage > 0 && coverage < 1 && degrees > 0);
  // The two-sided chance falls and is convex for t >= 0, so Newton's steps from 0 never go too far.
  const double peak = std::exp(std::lgamma((degrees + 1) / 2) - std::lgamma(degrees / 2)) /
                      std::sqrt(degrees * std::numbers::pi);
  double t = 0;
  for (int i = 0; i < most_terms; ++i) {
    const double above = student_t_two_sided(t, degrees) - (1 - coverage);
    const double density = peak * std::pow(1 + t * t / degrees, -(degrees + 1) / 2);
    const double step = above / (2 * density);
    if (!(step > converged * t)) break;
    t += step;
  }
  return t;
}

double even_student_t_quantile(double coverage, int degrees) {
  HETEROPERF_EXPECT(coverage > 0 && coverage < 1 && degrees >= 2);
  const int even = degrees - degrees % 2;
  // This is P(|T| <= t) in terms of s = t / sqrt(degrees + t²), and it grows with s.
  const auto chance = [even](double s) {
    const double cosine_squared = (1 - s) * (1 + s);
    double term = 1, sum = 1;
    for (int i = 1; i < even / 2; ++i) {
      term *= cosine_squared * (2 * i - 1) / (2 * i);
      sum += term;
    }
    return s * sum;
  };
  double low = 0, high = 1;
  for (double middle = 0.5; low < middle && middle < high; middle = (low + high) / 2) {
    (chance(middle) < coverage ? low : high) = middle;
  }
  return low * std::sqrt(even / ((1 - low) * (1 + low)));
}

namespace {

// These are ln 2 in two parts: the high one ends in zeros enough that exponent · high is exact.
constexpr double ln2_high = 0x1.62e42fee00000p-1;
constexpr double ln2_low = 0x1.a39ef35793c76p-33;
constexpr double sqrt_half = 0x1.6a09e667f3bcdp-1;
constexpr int series_terms = 13;  // |f| < 0.172, so the next term is below 2^-60

}  // namespace

double natural_log(double x) {
  HETEROPERF_EXPECT(x > 0 && std::isfinite(x));
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < sqrt_half) {
    mantissa *= 2;
    --exponent;
  }
  // ln m = 2 artanh f = 2 (f + f³/3 + f⁵/5 + …), f = (m − 1) / (m + 1).
  const double f = (mantissa - 1) / (mantissa + 1);
  const double square = f * f;
  double series = 0;
  for (int k = series_terms; k >= 1; --k) series = (series + 1.0 / (2 * k + 1)) * square;
  return exponent * ln2_high + (exponent * ln2_low + 2 * f * (1 + series));
}

std::vector<std::size_t> sorting_order(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  return order;
}

double draw_normal(RandomStream& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
  return radius * std::cos(2 * std::numbers::pi * random.unit());
}

namespace {

/// Fills a resample with blocks of neighbours, drawn with their starts anywhere in `values`.
void draw_blocks(std::span<const double> values, std::size_t block_length, RandomStream& random,
                 std::span<double> resample) {
  std::size_t position = 0, left_in_block = 0;
  for (double& value : resample) {
    if (left_in_block == 0) {
      position = random.below(values.size());
      left_in_block = block_length;
    }
    value = values[position];
    position = position + 1 == values.size() ? 0 : position + 1;
    --left_in_block;
  }
}

}  // namespace

Interval bootstrap_interval(std::span<const double> values, const Statistic& statistic,
                            const BootstrapSettings& settings) {
  HETEROPERF_EXPECT(!values.empty());
  HETEROPERF_EXPECT(settings.resamples > 0 && settings.block_length > 0);
  RandomStream random(settings.seed);
  std::vector<double> resample(values.size());
  std::vector<double> outcomes(settings.resamples);
  for (double& outcome : outcomes) {
    draw_blocks(values, settings.block_length, random, resample);
    outcome = statistic(resample);
  }
  constexpr double tail = (1 - 0.95) / 2;
  return {quantile(outcomes, tail), quantile(outcomes, 1 - tail)};
}

}  // namespace heteroperf
