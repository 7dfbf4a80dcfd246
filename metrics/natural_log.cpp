#include "metrics/natural_log.hpp"

#include <cmath>

#include "metrics/error.hpp"

namespace heteroperf {
namespace {

// ln 2 in two parts: the high one has enough trailing zeros that exponent · high is exact.
constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kSqrtHalf = 0x1.6a09e667f3bcdp-1;
constexpr int kTerms = 13;  // |f| < 0.172, so the next term is below 2^-60

}  // namespace

double natural_log(double x) {
  HETEROPERF_EXPECT(x > 0 && std::isfinite(x));
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < kSqrtHalf) {
    mantissa *= 2;
    --exponent;
  }
  // ln m = 2 artanh f = 2 (f + f³/3 + f⁵/5 + …), f = (m − 1) / (m + 1).
  const double f = (mantissa - 1) / (mantissa + 1);
  const double square = f * f;
  double series = 0;
  for (int k = kTerms; k >= 1; --k) series = (series + 1.0 / (2 * k + 1)) * square;
  return exponent * kLn2High + (exponent * kLn2Low + 2 * f * (1 + series));
}

}  // namespace heteroperf
