#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "metrics/base/name_table.hpp"
#include "results/text/document.hpp"

namespace heteroperf {

/// Exact: the same for every run of one program on one machine, so any difference counts.
enum class MetricKind { exact, statistical };
constexpr std::array<const char*, 2> value_names(MetricKind) { return {"exact", "statistical"}; }
/// Says which way is better; `equal` means that any difference is a defect.
enum class MetricDirection { higher, lower, equal };
constexpr std::array<const char*, 3> value_names(MetricDirection) {
  return {"higher", "lower", "equal"};
}

/// A number of a record.
struct RecordMetric {
  const char* name;
  Unit unit;  ///< the throughput has the unit of its record
  MetricKind kind;
  MetricDirection direction;
  const char* pointer;      ///< in record.json; of a list its largest number
  const char* family = "";  ///< its name in OpenMetrics without the unit; empty: not exported
  const char* help = "";
  bool has_interval = false;  ///< its 95 % interval stands beside it as `ci95`
};

/// All of them, in the order in which they are exported.
std::span<const RecordMetric> record_metrics();
/// The place of a metric in record_metrics(); the name is one of them.
std::size_t metric_place(std::string_view name);
/// The names of those that runs are compared by, the headline first.
std::span<const char* const> compared_metrics();
/// Finds one of those. Throws UserError that names the nearest one.
const RecordMetric& compared_metric(const std::string& name);

/// A metric's value in one record: `text` as stored (operation counts are beyond a double),
/// `number` where it is one, and its own interval.
struct MetricValue {
  std::string text;
  std::optional<double> number;
  std::optional<Interval> ci95 = {};
  friend bool operator==(const MetricValue&, const MetricValue&) = default;
};

/// True when `head` is worse than `base`: in the metric's direction, or, where the metric may only
/// be equal or a value is no number, when they differ at all.
bool is_worse(const RecordMetric& metric, const MetricValue& base, const MetricValue& head);

/// A metric's value for a document: operation counts as decimal text, exact values as they are
/// stored, medians as numbers. `kind` is what it was judged as, `unit` what the record's throughput
/// counts.
Datum metric_datum(const RecordMetric& metric, MetricKind kind, const MetricValue& value,
                   const std::string& unit);

/// head / base of an exact metric; nothing where one is no number above 0, or where they differ by
/// less than a double can tell.
std::optional<double> exact_ratio(const MetricValue& base, const MetricValue& head);
/// "equal", "+1.5 %", or "differs" where there is no percentage that could be shown.
std::string exact_change_text(const MetricValue& base, const MetricValue& head);
/// "-6.0 % [-6.9, -5.2]" of a ratio and its interval.
std::string change_with_interval(double ratio, const std::optional<Interval>& ci95);

}  // namespace heteroperf
