#include "metrics/log_ratio.hpp"

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"

namespace heteroperf {

double LogRatio::p_value() const {
  if (standard_error > 0) return student_t_two_sided(mean / standard_error, degrees);
  return mean == 0 ? 1 : 0;
}

double LogRatio::half_width(double coverage) const {
  return standard_error > 0 ? standard_error * student_t_quantile(coverage, degrees) : 0;
}

Interval LogRatio::interval(double coverage) const {
  const double half = half_width(coverage);
  return {mean - half, mean + half};
}

Interval exponential(const Interval& logs) { return {std::exp(logs.low), std::exp(logs.high)}; }

LogRatio paired_log_ratio(std::span<const double> differences) {
  HETEROPERF_EXPECT(differences.size() >= 2);
  const auto n = static_cast<double>(differences.size());
  return {mean(differences), standard_deviation(differences) / std::sqrt(n), n - 1};
}

LogRatio unpaired_log_ratio(std::span<const double> base_logs, std::span<const double> head_logs) {
  HETEROPERF_EXPECT(base_logs.size() >= 2 && head_logs.size() >= 2);
  const auto squared_error = [](std::span<const double> logs) {
    const double spread = standard_deviation(logs);
    return spread * spread / static_cast<double>(logs.size());
  };
  const double a = squared_error(base_logs), b = squared_error(head_logs);
  const double difference = mean(head_logs) - mean(base_logs);
  const auto free_a = static_cast<double>(base_logs.size() - 1);
  const auto free_b = static_cast<double>(head_logs.size() - 1);
  if (a + b == 0) return {difference, 0, free_a + free_b};
  return {difference, std::sqrt(a + b), (a + b) * (a + b) / (a * a / free_a + b * b / free_b)};
}

std::vector<double> benjamini_hochberg(std::span<const double> p_values) {
  const std::vector<std::size_t> order = sorting_order(p_values);
  std::vector<double> adjusted(p_values.size());
  double smallest = 1;
  for (std::size_t rank = order.size(); rank > 0; --rank) {
    const double scale = static_cast<double>(order.size()) / static_cast<double>(rank);
    smallest = std::min(smallest, p_values[order[rank - 1]] * scale);
    adjusted[order[rank - 1]] = smallest;
  }
  return adjusted;
}

double AbbaBlock::control() const {
  return (base_first - 3 * head_first + 3 * head_second - base_second) / std::sqrt(20.0);
}

}  // namespace heteroperf
