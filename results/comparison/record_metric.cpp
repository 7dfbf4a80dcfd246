// The table of metrics is the only place that says which numbers a record holds, where they stand
// in it, and under which names they leave the program. Comparison, gate, ranking, history, exports
// and reports read them by it. Statistical metrics vary from run to run and need an interval; exact
// ones are counts or planned quantities that the same program gives again on the same machine, so
// one difference is enough. The direction says which way is better, and `equal` that any change is
// a defect. Runs are compared by some of them, of which throughput is the headline: its verdict is
// that of a whole comparison. The texts of values and changes are made here too, so that one number
// looks alike everywhere.

#include "results/comparison/run_digest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>

#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

using enum MetricKind;
using enum MetricDirection;

constexpr auto metric_table = [] {
  using enum Unit;
  return std::to_array<RecordMetric>({
      {"ops_per_second", operations_per_second, statistical, higher,
       "/metrics/ops_per_second/value", "strict",
       "Strict operations of the steady window's training steps per second", true},
      {"throughput", work_per_second, statistical, higher, "/metrics/throughput/value",
       "throughput", "Samples or tokens per second of the window", true},
      {"step_time_s", seconds, statistical, lower, "/metrics/step_time_s/median",
       "step_time_median", "Median step of the window", true},
      {"step_time_p95_s", seconds, statistical, lower, "/metrics/step_time_s/p95", "step_time_p95",
       "95th percentile of the window's steps"},
      {"regulated_score", operations_per_second, statistical, higher,
       "/metrics/regulated_score/value", "regulated_score",
       "-ln(error) times the operations per second"},
      {"utilization", fraction, statistical, higher, "/metrics/utilization/value", "utilization",
       "Share of the measured peak"},
      // An accuracy or a loss: a number without a unit, for which OpenMetrics has no word.
      {"quality", count, statistical, higher, "/metrics/quality/value", "quality",
       "Quality that the final evaluation found"},
      {"hsr", ratio, statistical, higher, "/metrics/hetero/hsr", "heterogeneous_speed",
       "Throughput of the mix over the sum of its classes alone"},
      {"measurement_overhead_fraction", fraction, statistical, lower,
       "/metrics/measurement_overhead_fraction", "measurement_overhead",
       "Share of the wall time that measuring took"},
      {"steps", count, exact, equal, "/metrics/steps", "steps", "Steps in the steady window"},
      {"total_steps", count, exact, equal, "/metrics/total_steps", "steps_of_run",
       "Steps of the whole run"},
      {"window_s", seconds, exact, equal, "/metrics/window_s", "window",
       "Length of the steady window"},
      {"wall_s", seconds, statistical, lower, "/metrics/wall_s", "wall",
       "First to last line of the journal"},
      {"peak_memory_bytes", bytes, exact, lower, "/metrics/peak_memory_bytes/max", "peak_memory",
       "Peak memory of the fullest rank"},
      {"compute_s", seconds, statistical, lower, "/time_split_s/compute", "compute",
       "Computing in the window"},
      {"communication_exposed_s", seconds, statistical, lower,
       "/time_split_s/communication_exposed", "communication_exposed",
       "Exposed communication in the window"},
      {"bubble_s", seconds, statistical, lower, "/time_split_s/bubble", "bubble",
       "Waiting for other stages in the window"},
      {"data_s", seconds, statistical, lower, "/time_split_s/data", "data",
       "Waiting for data in the window"},
      {"predicted_step_time_s", seconds, exact, lower, "/prediction/step_time_s",
       "predicted_step_time", "Step time that the simulator predicts"},
      {"operations_strict", operations, exact, equal, "/operations/strict", "strict",
       "Strict operations of all training steps"},
      {"operations_executed", operations, exact, lower, "/operations/executed", "executed",
       "Operations observed at the dispatcher"},
      {"operations_recompute", operations, exact, lower, "/operations/recompute", "recompute",
       "Operations of recomputation"},
      {"operations_per_step", operations, exact, equal, "/operations/per_step/strict", "step",
       "Strict operations of an observed step"},
      {"executed_per_step", operations, exact, lower, "/operations/per_step/executed"},
      {"planned_memory_bytes", bytes, exact, lower, "/metrics/peak_memory_bytes/planned_per_rank"},
      {"loss_fingerprint", none, exact, equal, "/metrics/loss_fingerprint/value"},
  });
}();

constexpr std::array compared_names{
    "throughput",           "step_time_s",       "ops_per_second",
    "operations_per_step",  "executed_per_step", "predicted_step_time_s",
    "planned_memory_bytes", "peak_memory_bytes", "loss_fingerprint"};

/// The metrics of operators by how their names begin.
struct OperatorMetricKind {
  std::string_view prefix;
  Unit unit;
  MetricDirection direction;
  bool has_interval;
};
constexpr OperatorMetricKind operator_kinds[] = {
    {"operator:", Unit::seconds, lower, true},
    {"efficiency:", Unit::fraction, higher, false},
    {"portability:", Unit::fraction, higher, false},
};

const OperatorMetricKind* operator_kind(std::string_view name) {
  const auto* const kind = std::ranges::find_if(
      operator_kinds, [&](const auto& known) { return name.starts_with(known.prefix); });
  return kind == std::end(operator_kinds) ? nullptr : kind;
}

/// Makes the metric at the first question for it. It stays, as reports point to their metrics.
const RecordMetric& operator_metric(const std::string& name, const OperatorMetricKind& kind) {
  static std::mutex mutex;
  static std::map<std::string, RecordMetric> metrics;
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = metrics.try_emplace(name);
  if (is_new) {
    place->second = {place->first.c_str(), kind.unit, statistical, kind.direction, "", "", "",
                     kind.has_interval};
  }
  return place->second;
}

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

}  // namespace

std::span<const RecordMetric> record_metrics() { return metric_table; }

std::size_t metric_place(std::string_view name) {
  std::size_t place = 0;
  while (name != metric_table[place].name) ++place;
  return place;
}

std::span<const char* const> compared_metrics() { return compared_names; }

bool is_operator_metric(std::string_view name) { return operator_kind(name) != nullptr; }

const RecordMetric& compared_metric(const std::string& name) {
  if (const auto* const kind = operator_kind(name)) return operator_metric(name, *kind);
  const bool known = std::ranges::find(compared_names, name) != compared_names.end();
  if (!known) throw unknown_name("metric", name, {compared_names.begin(), compared_names.end()});
  return metric_table[metric_place(name)];
}

bool is_worse(const RecordMetric& metric, const MetricValue& base, const MetricValue& head) {
  if (base == head) return false;
  if (metric.direction == equal || !base.number || !head.number) return true;
  return metric.direction == higher ? is_less(head, base) : is_less(base, head);
}

/// An exact count keeps its digits, and a fingerprint shows its beginning.
Datum metric_datum(const RecordMetric& metric, MetricKind kind, const MetricValue& value,
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
