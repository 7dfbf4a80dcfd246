// This file writes the documents of `compare --json`: a comparison of two sides (A is the base, B
// the change), or the ratio of a mix to its classes alone. Keys that have no value are left out and
// never null, so that a reader tells "not measured" from a number. Texts that come from records may
// hold any bytes, so each passes utf8_text() first.

#include <nlohmann/json.hpp>

#include "results/comparison/hetero_ratio.hpp"
#include "results/comparison/metric_value_json.hpp"
#include "results/comparison/run_comparison.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

/// An interval is never written without the values that it was made of (`basis`).
void put_ratio(Json& json, const std::optional<double>& ratio,
               const std::optional<Interval>& interval, IntervalBasis basis) {
  if (ratio) json["ratio"] = *ratio;
  if (!interval) return;
  json["ci95"] = {interval->low, interval->high};
  json["basis"] = to_string(basis);
}

/// A stray byte is replaced and throws nothing: a comparison is shown whatever a record holds.
std::string text_of(const Json& json) {
  return json_indented(json.dump(-1, ' ', false, Json::error_handler_t::replace), "the comparison");
}

}  // namespace

std::string comparison_json_text(const RunComparison& comparison) {
  Json json{{"_format", "heteroperf-comparison"},
            {"_version", 1},
            {"verdict", to_string(comparison.verdict)}};
  put_ratio(json, comparison.ratio, comparison.ratio_ci95, comparison.basis);
  json["a"] = {{"run_id", utf8_text(comparison.name_a)}, {"runs", comparison.runs_a}};
  json["b"] = {{"run_id", utf8_text(comparison.name_b)}, {"runs", comparison.runs_b}};
  json["metrics"] = Json::array();
  for (const MetricComparison& one : comparison.metrics) {
    Json& entry = json["metrics"].emplace_back(
        Json{{"name", one.metric->name},
             {"kind", to_string(one.metric->kind)},
             {"direction", to_string(one.metric->direction)},
             {"unit", utf8_text(one.unit)},
             {"a", metric_value_json(*one.metric, one.metric->kind, one.a)},
             {"b", metric_value_json(*one.metric, one.metric->kind, one.b)}});
    put_ratio(entry, one.ratio, one.ratio_ci95, one.basis);
    if (one.metric->kind == MetricKind::exact) {
      entry["changed"] = one.changed;
    } else {
      entry["verdict"] = to_string(one.verdict);
    }
  }
  json["skipped"] = Json::array();
  for (const SkippedMetric& one : comparison.skipped) {
    json["skipped"].push_back({{"name", one.name}, {"reason", one.reason}});
  }
  json["differences"] = Json::array();
  for (const EnvironmentDifference& one : comparison.differences) {
    json["differences"].push_back(
        {{"path", utf8_text(one.path)}, {"a", utf8_text(one.a)}, {"b", utf8_text(one.b)}});
  }
  json["notes"] = comparison.notes;
  return text_of(json);
}

std::string hetero_ratio_json_text(const HeteroRatio& ratio) {
  Json json{{"_format", "heteroperf-hetero-ratio"},
            {"_version", 1},
            {"hsr", ratio.hsr},
            {"gain", ratio.gain},
            {"best_class", utf8_text(ratio.best_class)}};
  if (ratio.hsr_ci95) json["ci95"] = {ratio.hsr_ci95->low, ratio.hsr_ci95->high};
  json["mix"] = {{"throughput", ratio.mix.throughput}, {"runs", ratio.mix.runs}};
  json["ideal_sum"] = ratio.ideal_sum;
  json["unit"] = ratio.unit;
  json["baselines"] = Json::array();
  for (const SideThroughput& one : ratio.baselines) {
    json["baselines"].push_back({{"class", utf8_text(one.device_class)},
                                 {"count", one.count},
                                 {"throughput", one.throughput},
                                 {"runs", one.runs}});
  }
  json["notes"] = ratio.notes;
  return text_of(json);
}

}  // namespace heteroperf
