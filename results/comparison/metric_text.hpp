#pragma once

#include <optional>
#include <string>

#include "results/comparison/run_digest.hpp"

namespace heteroperf {

/// The unit of a metric in that run's record: the table of metrics cannot know what a workload
/// counts.
std::string metric_unit(const ComparedMetric& metric, const RunDigest& run);

/// A metric's value in a table; `kind` is what it was judged as.
std::string metric_value_text(const ComparedMetric& metric, MetricKind kind,
                              const MetricValue& value);

/// head / base of an exact metric; nothing where one is no number above 0, or where they differ by
/// less than a double can tell.
std::optional<double> exact_ratio(const MetricValue& base, const MetricValue& head);
/// "equal", "+1.5 %", or "differs" where there is no percentage that could be shown.
std::string exact_change_text(const MetricValue& base, const MetricValue& head);

}  // namespace heteroperf
