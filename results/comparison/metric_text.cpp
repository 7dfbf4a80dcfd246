// The comparison, the gate and the check of a baseline share these words for values and changes of
// metrics, so that one number looks alike in all of them. A count keeps its digits, a time has its
// unit, a rate gets a decimal prefix, and a fingerprint shows its beginning.

#include "results/comparison/metric_text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "results/text/number_text.hpp"

namespace heteroperf {

std::string metric_unit(const ComparedMetric& metric, const RunDigest& run) {
  const bool by_workload = metric.name == std::string_view("throughput") && !run.unit.empty();
  return by_workload ? run.unit : metric.unit;
}

std::string metric_value_text(const ComparedMetric& metric, MetricKind kind,
                              const MetricValue& value) {
  constexpr std::size_t fingerprint_digits = 12;
  if (!value.number) return value.text.substr(0, fingerprint_digits);
  if (metric.unit == std::string("s")) return fmt::format("{:.5g} s", *value.number);
  return kind == MetricKind::exact ? value.text : with_prefix(*value.number, "");
}

std::optional<double> exact_ratio(const MetricValue& base, const MetricValue& head) {
  if (!base.number || !head.number || !(*base.number > 0)) return std::nullopt;
  // Large counts can differ by less than a double resolves; a ratio of exactly 1 would deny that.
  if (base != head && *base.number == *head.number) return std::nullopt;
  return *head.number / *base.number;
}

/// A change that would be printed as 0 % is told as "differs".
std::string exact_change_text(const MetricValue& base, const MetricValue& head) {
  constexpr double least_percent = 0.0005;
  if (base == head) return "equal";
  const auto ratio = exact_ratio(base, head);
  if (!ratio || std::abs(100 * (*ratio - 1)) < least_percent) return "differs";
  return fmt::format("{:+.3g} %", 100 * (*ratio - 1));
}

}  // namespace heteroperf
