// Exports runs as OpenMetrics text, which Prometheus and its relatives read. Every number is a
// *gauge*, a family of samples with one unit, whose labels say which run it is and if it is the
// value or an end of its interval. All other facts about a run are the labels of one *info* metric,
// so that they are stored once and joined by `run_id`. The format wants all samples of a family
// together, so with several runs the samples are gathered by family first. Samples are stamped with
// the end of their run, as they are usually read much later.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "results/exports/run_export.hpp"
#include "results/record/stored_document_json.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

/// A label's value has its backslashes, quotes and line feeds escaped.
std::string label_text(const std::string& value) {
  std::string text;
  for (const char c : utf8_text(value)) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? "\\n" : std::string(1, c);
  }
  return text;
}

/// The labels of the info metric of a run, and their places in its record.
constexpr std::pair<const char*, const char*> info_labels[] = {
    {"workload", "/workload/name"},
    {"size", "/workload/size"},
    {"precision", "/workload/precision"},
    {"workload_hash", "/workload/hash"},
    {"status", "/status"},
    {"validity", "/validity/class"},
    {"ruleset", "/validity/ruleset"},
    {"ranks", "/scale/ranks"},
    {"transport", "/scale/transport"},
    {"host", "/system/host/value"},
    {"version", "/program/version"},
    {"git_commit", "/program/git_commit"},
    {"throughput_unit", "/metrics/throughput/unit"},
    {"quality_name", "/metrics/quality/name"},
};

/// A run with the texts that all of its samples share.
struct RunSamples {
  const RunDigest& digest;
  std::string run_id, timestamp, info;
};

/// Labels that the record lacks are left out; a run without a date has no time stamp. That is in
/// seconds with milliseconds, after a space; whole numbers keep it exact.
RunSamples samples_of(const ExportedRun& run) {
  const Json record = Json::parse(run.record);
  RunSamples samples{run.digest, label_text(run.digest.run_id), {}, {}};
  if (const auto end = run.epoch_ns(run.journal.lines.back().t_ns)) {
    const std::int64_t ms = *end / nanoseconds_per_millisecond;
    samples.timestamp = fmt::format(" {}.{:03}", ms / 1000, ms % 1000);
  }
  samples.info = fmt::format("run_id=\"{}\"", samples.run_id);
  for (const auto& [name, pointer] : info_labels) {
    const Json value = value_at(record, pointer);
    if (value.is_null()) continue;
    samples.info +=
        fmt::format(",{}=\"{}\"", name,
                    label_text(value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return samples;
}

/// The format's words for units. Counts, and what a workload counts per second, have none.
constexpr Named<Unit> family_units[] = {{Unit::operations_per_second, "operations_per_second"},
                                        {Unit::operations, "operations"},
                                        {Unit::seconds, "seconds"},
                                        {Unit::bytes, "bytes"},
                                        {Unit::fraction, "ratio"},
                                        {Unit::ratio, "ratio"}};

/// One run's part of a family.
std::string sample_lines(const std::string& name, const RunSamples& run, const MetricValue& value) {
  const auto line = [&](const char* statistic, const std::string& number) {
    return fmt::format("{}{{run_id=\"{}\",statistic=\"{}\"}} {}{}\n", name, run.run_id, statistic,
                       number, run.timestamp);
  };
  std::string text = line("value", value.text);
  if (value.ci95) {
    text += line("ci95_low", json_number(value.ci95->low)) +
            line("ci95_high", json_number(value.ci95->high));
  }
  return text;
}

/// The lines that open a family: type, unit where there is one, help.
std::string family_head(const std::string& name, const char* type, const std::string& unit,
                        const std::string& help) {
  return fmt::format("# TYPE {} {}\n{}# HELP {} {}\n", name, type,
                     unit.empty() ? "" : fmt::format("# UNIT {} {}\n", name, unit), name, help);
}

}  // namespace

std::string openmetrics_export_text(const std::vector<ExportedRun>& runs) {
  std::vector<RunSamples> all;
  for (const ExportedRun& run : runs) all.push_back(samples_of(run));
  std::string text = family_head("heteroperf_run", "info", "", "What was run, and where");
  for (const RunSamples& run : all) text += fmt::format("heteroperf_run_info{{{}}} 1\n", run.info);
  for (const RecordMetric& metric : record_metrics()) {
    if (*metric.family == '\0') continue;
    // The unit is the last part of the name, as the format wants.
    const auto* const named = std::ranges::find(family_units, metric.unit, &Named<Unit>::value);
    const std::string unit = named == std::end(family_units) ? "" : named->name;
    const std::string name =
        std::string("heteroperf_") + metric.family + (unit.empty() ? "" : "_" + unit);
    std::string lines;
    for (const RunSamples& run : all) {
      const auto& value = run.digest.metric(metric.name);
      if (value) lines += sample_lines(name, run, *value);
    }
    if (!lines.empty()) text += family_head(name, "gauge", unit, metric.help) + lines;
  }
  return text + "# EOF\n";
}

}  // namespace heteroperf
