#include "metrics/natural_log.hpp"

#include <cmath>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

// ln 2 in two parts: the high one has enough trailing zeros that exponent · high is exact.
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

}  // namespace heteroperf
