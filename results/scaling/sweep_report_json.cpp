// This file writes the report of a sweep as JSON: the keys of sweep.json, then the results. The
// hash of the index is left out, because it is that of the file and not of this longer document.
// Where a complete run has lost its folder, the status is "partial" here whatever the index says.

#include <nlohmann/json.hpp>

#include "results/scaling/sweep_report.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

Json rate_json(const RepeatedRate& rate) {
  Json json{{"value", rate.value}};
  if (rate.ci95) json["ci95"] = {rate.ci95->low, rate.ci95->high};
  return json;
}

Json row_json(const SweepReport& report, const SweepRow& row) {
  Json json{{"workload", utf8_text(row.workload)},
            {"point", row.point},
            {"name", utf8_text(point_text(report.index.points[row.point]))},
            {"devices", row.devices},
            {"threads", row.threads},
            {"runs", row.runs},
            {"validity", row.validity},
            {"ops_per_second", rate_json(row.ops_per_second)},
            {"throughput", rate_json(row.throughput)}};
  json["throughput"]["unit"] = utf8_text(row.unit);
  json["step_time_s"] = row.step_time_s;
  if (row.speedup) json["speedup"] = *row.speedup;
  if (row.efficiency) json["efficiency"] = rate_json(*row.efficiency);
  if (!row.scaling.empty()) json["scaling"] = row.scaling;
  if (!row.crowding.empty()) json["crowding"] = row.crowding;
  return json;
}

}  // namespace

std::string sweep_report_json_text(const SweepReport& report) {
  Json json = Json::parse(sweep_json_text(report.index));
  json.erase("sha256");
  if (report.complete < report.index.runs.size()) json["status"] = "partial";
  json["folder"] = utf8_text(report.folder.string());
  json["results"] = Json::array();
  for (const SweepRow& row : report.rows) json["results"].push_back(row_json(report, row));
  json["unscored"] = Json::array();
  for (const UnscoredRun& run : report.unscored) {
    json["unscored"].push_back({{"folder", utf8_text(run.folder)},
                                {"state", run.state},
                                {"reason", utf8_text(run.reason)}});
  }
  return json_indented(json.dump(-1, ' ', false, Json::error_handler_t::replace),
                       "the sweep's report");
}

}  // namespace heteroperf
