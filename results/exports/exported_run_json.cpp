// Reads a run for the exporters and lists its numbers. The table below is the only place that says
// which numbers leave the program and under which names; CSV and OpenMetrics are made from it row
// by row. An export is believed far away from its journal, where nobody can check it, so a record
// is made again from the journal first and refused where the two disagree.

#include <ctime>
#include <nlohmann/json.hpp>

#include "metrics/base/error.hpp"
#include "results/comparison/record_doubt.hpp"
#include "results/comparison/run_set.hpp"
#include "results/exports/exported_run.hpp"
#include "results/record/record.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/stored_document_json.hpp"
#include "results/text/canonical_json.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::int64_t whole_nanoseconds_per_second = 1'000'000'000;

/// Name, unit, OpenMetrics family and its unit, help, and the places of value and interval in the
/// record. An empty unit stands for the unit that the workload counts in.
constexpr ExportedMetric metric_table[] = {
    {"ops_per_second", "op/s", "heteroperf_strict", "operations_per_second",
     "Strict operations of the steady window's training steps per second",
     "/metrics/ops_per_second/value", "/metrics/ops_per_second/ci95"},
    {"throughput", "", "heteroperf_throughput", "", "Samples or tokens per second of the window",
     "/metrics/throughput/value", "/metrics/throughput/ci95"},
    {"step_time_s", "s", "heteroperf_step_time_median", "seconds", "Median step of the window",
     "/metrics/step_time_s/median", "/metrics/step_time_s/ci95"},
    {"step_time_p95_s", "s", "heteroperf_step_time_p95", "seconds",
     "95th percentile of the window's steps", "/metrics/step_time_s/p95", ""},
    {"regulated_score", "op/s", "heteroperf_regulated_score", "operations_per_second",
     "-ln(error) times the operations per second", "/metrics/regulated_score/value", ""},
    {"utilization", "1", "heteroperf_utilization", "ratio", "Share of the measured peak",
     "/metrics/utilization/value", ""},
    {"quality", "1", "heteroperf_quality", "", "Quality that the final evaluation found",
     "/metrics/quality/value", ""},
    {"hsr", "1", "heteroperf_heterogeneous_speed", "ratio",
     "Throughput of the mix over the sum of its classes alone", "/metrics/hetero/hsr", ""},
    {"measurement_overhead_fraction", "1", "heteroperf_measurement_overhead", "ratio",
     "Share of the wall time that measuring took", "/metrics/measurement_overhead_fraction", ""},
    {"steps", "1", "heteroperf_steps", "", "Steps in the steady window", "/metrics/steps", ""},
    {"total_steps", "1", "heteroperf_steps_of_run", "", "Steps of the whole run",
     "/metrics/total_steps", ""},
    {"window_s", "s", "heteroperf_window", "seconds", "Length of the steady window",
     "/metrics/window_s", ""},
    {"wall_s", "s", "heteroperf_wall", "seconds", "First to last line of the journal",
     "/metrics/wall_s", ""},
    {"peak_memory_bytes", "byte", "heteroperf_peak_memory", "bytes",
     "Peak memory of the fullest rank", "/metrics/peak_memory_bytes/max", ""},
    {"compute_s", "s", "heteroperf_compute", "seconds", "Computing in the window",
     "/time_split_s/compute", ""},
    {"communication_exposed_s", "s", "heteroperf_communication_exposed", "seconds",
     "Exposed communication in the window", "/time_split_s/communication_exposed", ""},
    {"bubble_s", "s", "heteroperf_bubble", "seconds", "Waiting for other stages in the window",
     "/time_split_s/bubble", ""},
    {"data_s", "s", "heteroperf_data", "seconds", "Waiting for data in the window",
     "/time_split_s/data", ""},
    {"predicted_step_time_s", "s", "heteroperf_predicted_step_time", "seconds",
     "Step time that the simulator predicts", "/prediction/step_time_s", ""},
    {"operations_strict", "op", "heteroperf_strict", "operations",
     "Strict operations of all training steps", "/operations/strict", ""},
    {"operations_executed", "op", "heteroperf_executed", "operations",
     "Operations observed at the dispatcher", "/operations/executed", ""},
    {"operations_recompute", "op", "heteroperf_recompute", "operations",
     "Operations of recomputation", "/operations/recompute", ""},
    {"operations_per_step", "op", "heteroperf_step", "operations",
     "Strict operations of an observed step", "/operations/per_step/strict", ""},
};

std::optional<Interval> interval_of(const Json& record, const char* pointer) {
  const Json value = pointer[0] == '\0' ? Json() : value_at(record, pointer);
  if (value.is_null()) return std::nullopt;
  return Interval{value.at(0).get<double>(), value.at(1).get<double>()};
}

/// Counts are strings in a record, and stay as they are.
std::string number_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? json_number(value.get<double>()) : value.dump();
}

/// Throws what the journal has against the record. The digest is replaced by what the journal
/// gives.
ExportedRun read_run(RunDigest& digest) {
  if (const auto doubt = hold_to_journal(digest)) throw doubt->error(digest.record.string());
  ExportedRun run{digest.record.parent_path(), {}, {}};
  run.journal = read_journal(RunFiles{run.folder}.journal().string());
  run.record = build_record(run.journal);
  return run;
}

}  // namespace

std::optional<std::int64_t> ExportedRun::epoch_ns(std::int64_t t_ns) const {
  const auto* start = journal.first<StartEvent>();
  std::tm utc{};
  if (start == nullptr ||
      strptime(start->created_utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &utc) == nullptr) {
    return std::nullopt;
  }
  constexpr std::time_t most_s = 4'000'000'000;  // the year 2096: nanoseconds still fit
  // A date before 1970 or far in the future is no date that a clock gave.
  const std::time_t start_s = timegm(&utc);
  if (start_s < 0 || start_s > most_s) return std::nullopt;
  return start_s * whole_nanoseconds_per_second + (t_ns - journal.lines.front().t_ns);
}

std::vector<ExportedRun> read_exported_runs(const std::filesystem::path& path) {
  RunSet set = find_runs({path});
  for (const SkippedEntry& skipped : set.skipped) {
    if (!skipped.problems.empty()) throw Error(skipped.kind, skipped.problems);
    throw UserError("cannot use " + skipped.path.string(), skipped.reason);
  }
  if (set.runs.empty()) {
    throw UserError(path.string() + " holds no record",
                    "neither it nor the folders in it have a record.json");
  }
  std::vector<ExportedRun> runs;
  for (RunDigest& digest : set.runs) {
    if (!has_journal(digest)) {
      throw UserError("cannot export " + digest.record.string(), "there is no journal beside it");
    }
    runs.push_back(read_run(digest));
  }
  return runs;
}

std::vector<ExportedValue> exported_values(const ExportedRun& run) {
  const Json record = Json::parse(run.record);
  std::vector<ExportedValue> values;
  for (const ExportedMetric& metric : metric_table) {
    const Json value = value_at(record, metric.pointer);
    if (value.is_null()) continue;
    std::string unit = metric.unit;
    if (unit.empty()) unit = value_at(record, "/metrics/throughput/unit").get<std::string>();
    values.push_back({&metric, std::move(unit), number_text(value),
                      interval_of(record, metric.interval_pointer)});
  }
  return values;
}

}  // namespace heteroperf
