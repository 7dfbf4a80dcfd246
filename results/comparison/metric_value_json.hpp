#pragma once

#include <nlohmann/json.hpp>

#include "results/comparison/compared_metric.hpp"

namespace heteroperf {

/// A metric's value in a document: operation counts as decimal strings, exact values as they are
/// stored, medians as numbers. `kind` is what it was judged as.
nlohmann::ordered_json metric_value_json(const ComparedMetric& metric, MetricKind kind,
                                         const MetricValue& value);

}  // namespace heteroperf
