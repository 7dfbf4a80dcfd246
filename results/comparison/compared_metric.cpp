// The table of metrics is the only place that says which numbers of a record runs are compared by.
// Its first row is the headline: the verdict on throughput is that of a whole comparison.
// Statistical metrics vary from run to run and need an interval; exact ones are counts or planned
// quantities that the same program gives again on the same machine, so one difference is enough.
// The direction says which way is better, and `equal` that any change is a defect.

#include "results/comparison/compared_metric.hpp"

#include <array>

#include "metrics/base/name_table.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

using enum MetricKind;
using enum MetricDirection;

constexpr ComparedMetric metric_table[] = {
    {"throughput", "unit/s", statistical, higher, "/metrics/throughput/value"},
    {"step_time_s", "s", statistical, lower, "/metrics/step_time_s/median"},
    {"ops_per_second", "op/s", statistical, higher, "/metrics/ops_per_second/value"},
    {"operations_per_step", "op", exact, equal, "/operations/per_step/strict"},
    {"executed_per_step", "op", exact, lower, "/operations/per_step/executed"},
    {"predicted_step_time_s", "s", exact, lower, "/prediction/step_time_s"},
    {"planned_memory_bytes", "byte", exact, lower, "/metrics/peak_memory_bytes/planned_per_rank"},
    {"peak_memory_bytes", "byte", exact, lower, "/metrics/peak_memory_bytes/max"},
    {"loss_fingerprint", "", exact, equal, "/metrics/loss_fingerprint/value"},
};

/// Orders two values. Operation counts pass 2^53, beyond which doubles skip whole numbers, so
/// counts are compared digit by digit: without leading zeros the longer text is the larger number.
bool is_less(const MetricValue& a, const MetricValue& b) {
  if (!is_whole_count(a.text) || !is_whole_count(b.text)) return *a.number < *b.number;
  return a.text.size() != b.text.size() ? a.text.size() < b.text.size() : a.text < b.text;
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

}  // namespace heteroperf
