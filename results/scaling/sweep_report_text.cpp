// The forms of a sweep's report. On the console and in Markdown each workload has a table of its
// own, since rates of unlike work do not belong below each other; threads per rank have a column
// only where they differ. The CSV keeps every row in one table, with the raw numbers and an empty
// cell where there is none. The JSON has the keys of sweep.json, then the results. The hash of the
// index is left out there, because it is that of the file and not of this longer document. Where a
// complete run has lost its folder, the status is "partial" whatever the index says.

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "metrics/base/strict_json.hpp"
#include "results/scaling/sweep_report.hpp"
#include "results/text/canonical_text_json.hpp"
#include "results/text/number_text.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

/// Threads are shown to people only where the points differ in them.
Audience audience_of_threads(const SweepReport& report) {
  const bool differ = std::ranges::adjacent_find(report.rows, std::not_equal_to(),
                                                 &SweepRow::threads) != report.rows.end();
  return differ ? Audience::people : Audience::spreadsheets;
}

void add_row(const SweepReport& report, const SweepRow& row, Audience threads, Table& table) {
  using enum Unit;
  const auto rate = [&](const RepeatedRate& told, const std::string& unit) {
    return Datum(told.value).as(with_interval(told.value, told.ci95, row.runs, unit));
  };
  const auto efficiency = [&] {
    return Datum(row.efficiency->value)
        .as(percent_with_interval(row.efficiency->value, row.efficiency->ci95, row.runs));
  };
  const Tone tone = row.validity == "closed" ? Tone::good : Tone::doubtful;
  table.add_cells({{"", "point", none, point_text(report.index.points[row.point])},
                   {"", "devices", count, row.devices},
                   {"", "threads", none, row.threads, threads},
                   {"", "runs", count, row.runs},
                   {"", "throughput [95 % CI]", none, rate(row.throughput, row.unit)},
                   {"", "OPS [95 % CI]", none, rate(row.ops_per_second, operations_unit)},
                   {"", "step", seconds, row.step_time_s},
                   {"", "speedup", ratio, row.speedup},
                   {"", "efficiency [95 % CI]", none, row.efficiency ? efficiency() : Datum()},
                   {"", "scaling", none, row.scaling.empty() ? Datum() : row.scaling},
                   {"", "validity", none, Datum(row.validity).judged(tone)},
                   {"", "", none, row.crowding}});
}

/// Says how much of the plan is done; a sweep whose index was made again from its runs does not
/// know the plan, so it speaks of runs that were found.
std::string heading(const SweepReport& report) {
  const SweepIndex& index = report.index;
  return fmt::format(
      "{} of {} runs{} are complete: {} point{}, {} repetition{} each, seeds {} to {}",
      report.complete, index.runs.size(), index.rebuilt() ? " that were found" : "",
      index.points.size(), index.points.size() == 1 ? "" : "s", index.repeats,
      index.repeats == 1 ? "" : "s", index.first_seed, index.first_seed + index.repeats - 1);
}

Document document_of(const SweepReport& report) {
  Document document{"heteroperf-sweep"};
  document.line(heading(report));
  const Audience threads = audience_of_threads(report);
  for (std::size_t i = 0; i < report.rows.size();) {
    const std::string& workload = report.rows[i].workload;
    Table table{"", workload};
    for (; i < report.rows.size() && report.rows[i].workload == workload; ++i) {
      add_row(report, report.rows[i], threads, table);
    }
    document.table(std::move(table));
  }
  for (const UnscoredRun& run : report.unscored) {
    document.line(fmt::format("without a score: {} ({}){}", run.folder, run.state,
                              run.reason.empty() ? "" : ": " + run.reason));
  }
  for (const std::string& fact : report.index.unknown) document.line("not known: " + fact);
  document.line("sweep " + report.folder.string());
  return document;
}

// ---------------------------------------------------------------- CSV

std::string csv_of(const SweepReport& report) {
  std::string text =
      "workload,point,devices,threads,runs,throughput,throughput_low,throughput_high,"
      "throughput_unit,ops_per_second,ops_per_second_low,ops_per_second_high,step_time_s,speedup,"
      "efficiency,efficiency_low,efficiency_high,scaling,validity,crowding\n";
  // "value,low,high"; empty where there is none.
  const auto rate_cells = [](const std::optional<RepeatedRate>& rate) {
    if (!rate) return std::string(",,");
    if (!rate->ci95) return fmt::format("{},,", rate->value);
    return fmt::format("{},{},{}", rate->value, rate->ci95->low, rate->ci95->high);
  };
  for (const SweepRow& row : report.rows) {
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", csv_cell(row.workload),
        csv_cell(point_text(report.index.points[row.point])), row.devices, csv_cell(row.threads),
        row.runs, rate_cells(row.throughput), csv_cell(row.unit), rate_cells(row.ops_per_second),
        row.step_time_s, row.speedup ? fmt::format("{}", *row.speedup) : "",
        rate_cells(row.efficiency), csv_cell(row.scaling), row.validity, csv_cell(row.crowding));
  }
  return text;
}

// ---------------------------------------------------------------- JSON

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

std::string json_of(const SweepReport& report) {
  Json json = Json::parse(sweep_json_text(report.index));
  json.erase("sha256");
  if (report.complete < report.index.runs.size()) json["status"] = "partial";
  json["folder"] = utf8_text(report.folder.string());
  json["results"] =
      json_list(report.rows, [&](const SweepRow& row) { return row_json(report, row); });
  json["unscored"] = json_list(report.unscored, [](const UnscoredRun& run) {
    return Json{
        {"folder", utf8_text(run.folder)}, {"state", run.state}, {"reason", utf8_text(run.reason)}};
  });
  return json_indented(json);
}

}  // namespace

std::string sweep_report_text(const SweepReport& report, DocumentForm form,
                              const TextStyle& style) {
  if (form == DocumentForm::csv) return csv_of(report);
  if (form == DocumentForm::json) return json_of(report);
  return document_text(document_of(report), form, style);
}

}  // namespace heteroperf
