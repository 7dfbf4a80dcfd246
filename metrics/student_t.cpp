#include "metrics/student_t.hpp"

#include <cmath>
#include <numbers>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

constexpr double tiny = 1e-300;
constexpr double converged = 1e-15;
constexpr int most_terms = 10000;

double away_from_zero(double value) { return std::fabs(value) < tiny ? tiny : value; }

/// The continued fraction of I_x(a, b); converges fast for x < (a + 1) / (a + b + 2).
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

/// I_x(a, b), with `y` = 1 - x given apart so that neither loses digits.
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
  // The two-sided chance falls and is convex in t >= 0, so Newton's steps from 0 never go too far.
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
  // P(|T| <= t) in terms of s = t / sqrt(degrees + t²), which grows with s.
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

}  // namespace heteroperf
