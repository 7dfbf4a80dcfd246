// The table of metrics is the only place that says which numbers of a record runs are compared by.
// Its first row is the headline: the verdict on throughput is that of a whole comparison.
// Statistical metrics vary from run to run and need an interval; exact ones are counts or planned
// quantities that the same program gives again on the same machine, so one difference is enough.
// The direction says which way is better, and `equal` that any change is a defect. The comparison,
// the gate and the check of a baseline take their values and changes from here, so that one number
// looks alike in all of them.

#include "results/comparison/compared_metric.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "metrics/base/name_table.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

using enum MetricKind;
using enum MetricDirection;

constexpr ComparedMetric metric_table[] = {
    {"throughput", Unit::work_per_second, statistical, higher, "/metrics/throughput/value"},
    {"step_time_s", Unit::seconds, statistical, lower, "/metrics/step_time_s/median"},
    {"ops_per_second", Unit::operations_per_second, statistical, higher,
     "/metrics/ops_per_second/value"},
    {"operations_per_step", Unit::operations, exact, equal, "/operations/per_step/strict"},
    {"executed_per_step", Unit::operations, exact, lower, "/operations/per_step/executed"},
    {"predicted_step_time_s", Unit::seconds, exact, lower, "/prediction/step_time_s"},
    {"planned_memory_bytes", Unit::bytes, exact, lower,
     "/metrics/peak_memory_bytes/planned_per_rank"},
    {"peak_memory_bytes", Unit::bytes, exact, lower, "/metrics/peak_memory_bytes/max"},
    {"loss_fingerprint", Unit::none, exact, equal, "/metrics/loss_fingerprint/value"},
};

/// Orders two values. Operation counts pass 2^53, beyond which doubles skip whole numbers, so
/// counts are compared digit by digit: without leading zeros the longer text is the larger number.
bool is_less(const MetricValue& a, const MetricValue& b) {
  if (!is_whole_count(a.text) || !is_whole_count(b.text)) return *a.number < *b.number;
  return a.text.size() != b.text.size() ? a.text.size() < b.text.size() : a.text < b.text;
}

/// An exact number as the record has it: text where a reader's double would round it.
Datum stored_number(const MetricValue& value) {
  constexpr double largest_exact = 9007199254740992;  // 2^53
  if (!is_whole_count(value.text)) return *value.number;
  if (value.text.size() > 16 || *value.number >= largest_exact) return value.text;
  return std::stoull(value.text);
}

constexpr Named<MetricKind> kinds[] = {{exact, "exact"}, {statistical, "statistical"}};
constexpr Named<MetricDirection> directions[] = {
    {higher, "higher"}, {lower, "lower"}, {equal, "equal"}};

}  // namespace

std::span<const ComparedMetric> compared_metrics() { return metric_table; }

const ComparedMetric& compared_metric(const std::string& name) {
  for (const ComparedMetric& metric : metric_table) {
    if (name == metric.name) return metric;
  }
  throw unknown_name("metric", name, names_of(metric_table));
}

const char* to_string(MetricKind kind) { return name_of(kinds, kind); }
const char* to_string(MetricDirection direction) { return name_of(directions, direction); }

bool is_worse(const ComparedMetric& metric, const MetricValue& base, const MetricValue& head) {
  if (base == head) return false;
  if (metric.direction == equal || !base.number || !head.number) return true;
  return metric.direction == higher ? is_less(head, base) : is_less(base, head);
}

/// An exact count keeps its digits, and a fingerprint shows its beginning.
Datum metric_datum(const ComparedMetric& metric, MetricKind kind, const MetricValue& value,
                   const std::string& unit) {
  constexpr std::size_t fingerprint_digits = 12;
  if (!value.number) return Datum(value.text).as(value.text.substr(0, fingerprint_digits));
  if (metric.unit == Unit::operations) {
    const bool whole = is_whole_count(value.text);
    Datum count = whole ? value.text : fmt::format("{:.0f}", *value.number);
    return kind == exact ? std::move(count).as(value.text) : count;
  }
  Datum number = kind == exact ? stored_number(value) : Datum(*value.number);
  const bool by_workload = metric.unit == Unit::work_per_second;
  return std::move(number).as(by_workload ? with_prefix(*value.number, unit)
                                          : value_text(*value.number, metric.unit));
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

std::string change_with_interval(double ratio, const std::optional<Interval>& ci95) {
  const std::string text = change_text(ratio);
  if (!ci95) return text;
  return text + fmt::format(" [{:+.1f}, {:+.1f}]", 100 * (ci95->low - 1), 100 * (ci95->high - 1));
}

}  // namespace heteroperf
