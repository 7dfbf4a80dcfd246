// This file writes the document of `gate --json`. Inside the program widths and limits are
// logarithms, because errors add up there; a reader of the document wants fractions, so they are
// converted here. A gate that ended early has `error` in place of `verdict`, so that a script
// cannot take half a measurement for a pass. Numbers that are not finite are left out, as JSON has
// none.

#include <cmath>
#include <nlohmann/json.hpp>

#include "results/comparison/metric_value_json.hpp"
#include "results/gate/gate_report.hpp"
#include "results/record/stored_document_json.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/error_object_json.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

/// A half width of a difference of logarithms as the fraction by which the larger value exceeds.
double fraction(double log_width) { return std::expm1(log_width); }

Json metric_json(const GatedMetric& gated) {
  Json json{{"name", gated.metric->name},
            {"verdict", to_string(gated.verdict)},
            {"kind", to_string(gated.kind)},
            {"direction", to_string(gated.metric->direction)},
            {"unit", utf8_text(gated.unit)},
            {"base", metric_value_json(*gated.metric, gated.kind, gated.base)},
            {"head", metric_value_json(*gated.metric, gated.kind, gated.head)}};
  put_finite(json, "ratio", gated.ratio);
  if (gated.kind == MetricKind::exact || !gated.ratio_ci95) return json;
  json["ci95"] = {gated.ratio_ci95->low, gated.ratio_ci95->high};
  json["t_ci95"] = {gated.t_ci95->low, gated.t_ci95->high};
  put_finite(json, "p_adjusted", gated.judgement.p_adjusted);
  put_finite(json, "limit", -std::expm1(-gated.judgement.limit));
  if (gated.more_blocks) json["more_blocks"] = *gated.more_blocks;
  return json;
}

/// A control that was not measured has no numbers: they would be those of the gain.
Json control_json(const NullControl& control) {
  Json json{{"measured", control.measured}};
  if (!control.measured) return json;
  json["alarm"] = control.alarm;
  put_finite(json, "noise", fraction(control.noise));
  put_finite(json, "p_adjusted", control.p_adjusted);
  return json;
}

/// The names of orders in the document; blocks are called "interleaved" there.
const char* order_name(RunOrder order) {
  switch (order) {
    case RunOrder::blocks:
      return "interleaved";
    case RunOrder::lockstep:
      return "lockstep";
    case RunOrder::apart:
      break;
  }
  return "apart";
}

}  // namespace

std::string gate_json_text(const GateReport& report) {
  Json json{{"_format", "heteroperf-gate"}, {"_version", 1}};
  if (report.error) {
    json["error"] = error_object(*report.error);
  } else {
    json["verdict"] = to_string(report.verdict);
  }
  json["threshold"] = report.threshold;
  json["blocks"] = report.blocks;
  json["order"] = order_name(report.order);
  put_finite(json, "resolution", report.resolution);
  if (report.lockstep) {
    json["lockstep"] = {{"quads", report.lockstep->quads},
                        {"steps_per_turn", report.lockstep->steps_per_turn},
                        {"process_spread", fraction(report.lockstep->process_spread)},
                        {"idle_cpu_share", report.lockstep->idle_cpu_share}};
  }
  if (report.more_blocks) json["more_blocks"] = *report.more_blocks;
  if (!report.why_inconclusive.empty()) json["why_inconclusive"] = report.why_inconclusive;
  json["null_control"] = control_json(report.control);
  json["metrics"] = Json::array();
  for (const GatedMetric& gated : report.metrics) json["metrics"].push_back(metric_json(gated));
  json["skipped"] = Json::array();
  for (const SkippedMetric& one : report.skipped) {
    json["skipped"].push_back({{"name", one.name}, {"reason", one.reason}});
  }
  json["differences"] = Json::array();
  for (const EnvironmentDifference& one : report.differences) {
    json["differences"].push_back(
        {{"path", utf8_text(one.path)}, {"a", utf8_text(one.a)}, {"b", utf8_text(one.b)}});
  }
  json["notes"] = report.notes;
  if (!report.reproduce.empty()) json["reproduce"] = utf8_text(report.reproduce);
  return json_indented(json.dump(-1, ' ', false, Json::error_handler_t::replace), "the gate");
}

}  // namespace heteroperf
