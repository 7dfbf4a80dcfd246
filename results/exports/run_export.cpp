// This file lists the export formats and leads from a path to a text. Two formats take any number
// of runs, the others are about one, so a folder with several runs is refused for them. Every run
// is checked against its journal before any format sees it.

#include "results/exports/run_export.hpp"

#include <fmt/format.h>

#include <cstring>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

constexpr RunExportFormat formats[] = {
    {"csv", "the record's numbers, or with --table steps, trials, evaluations"},
    {"gbench", "Google Benchmark's JSON for its compare.py; also of a sweep"},
    {"mllog", "MLPerf's log lines"},
    {"openmetrics", "OpenMetrics text for Prometheus; also of a sweep"},
};

const ExportedRun& only(const std::vector<ExportedRun>& runs, const std::filesystem::path& path,
                        const std::string& format) {
  if (runs.size() == 1) return runs.front();
  throw UserError(fmt::format("{} holds {} runs", path.string(), runs.size()),
                  format + " is about one run", "Name one of the folders in it.");
}

}  // namespace

std::span<const RunExportFormat> run_export_formats() { return formats; }

std::string run_export_text(const std::filesystem::path& path, const std::string& format,
                            const std::string& table) {
  const std::vector<ExportedRun> runs = read_exported_runs(path);
  if (format == "gbench") return gbench_export_text(runs);
  if (format == "openmetrics") return openmetrics_export_text(runs);
  if (format == "mllog") return mllog_export_text(only(runs, path, format));
  return csv_export_text(only(runs, path, format), table);
}

}  // namespace heteroperf
