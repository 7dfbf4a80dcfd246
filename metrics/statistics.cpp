#include "metrics/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "metrics/base/error.hpp"

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

double coefficient_of_variation(std::span<const double> values) {
  const double centre = mean(values);
  HETEROPERF_EXPECT(centre != 0);
  return standard_deviation(values) / centre;
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

}  // namespace heteroperf
