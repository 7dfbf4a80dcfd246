// This file lists the export formats and leads from a path to a text. Two formats take any number
// of runs, the others are about one, so a folder with several runs is refused for them. An export
// is believed far away from its journal, where nobody can check it, so every record is made again
// from its journal before any format sees it, and refused where the two disagree.

#include "results/exports/run_export.hpp"

#include <fmt/format.h>

#include <ctime>

#include "metrics/base/error.hpp"
#include "results/comparison/record_doubt.hpp"
#include "results/comparison/run_set.hpp"
#include "results/record/record.hpp"
#include "results/record/run_folder.hpp"

namespace heteroperf {
namespace {

constexpr RunExportFormat formats[] = {
    {"csv", "the record's numbers, or with --table steps, trials, evaluations"},
    {"gbench", "Google Benchmark's JSON for its compare.py; also of a sweep"},
    {"mllog", "MLPerf's log lines"},
    {"openmetrics", "OpenMetrics text for Prometheus; also of a sweep"},
};

/// The digest is replaced by what the journal gives.
ExportedRun exported(RunDigest digest) {
  const std::string record = digest.record.string();
  if (!has_journal(digest)) {
    throw UserError("cannot export " + record, "there is no journal beside it");
  }
  if (const auto doubt = hold_to_journal(digest)) throw doubt->error(record);
  Journal journal = read_journal(RunFiles{digest.record.parent_path()}.journal().string());
  std::string rebuilt = build_record(journal);
  return {std::move(digest), std::move(journal), std::move(rebuilt)};
}

/// Every run below `path` (a run, suite, sweep, or a folder of them), by date. Throws UserError
/// where there is none or one is unfinished, and what hold_to_journal() doubts.
std::vector<ExportedRun> exported_runs(const std::filesystem::path& path) {
  RunSet set = find_runs({path});
  for (const SkippedEntry& skipped : set.skipped) {
    throw Error(skipped.kind, skipped.problems);
  }
  require_some(set, {path});
  std::vector<ExportedRun> runs;
  for (RunDigest& digest : set.runs) runs.push_back(exported(std::move(digest)));
  return runs;
}

const ExportedRun& only(const std::vector<ExportedRun>& runs, const std::filesystem::path& path,
                        const std::string& format) {
  if (runs.size() == 1) return runs.front();
  throw UserError(fmt::format("{} holds {} runs", path.string(), runs.size()),
                  format + " is about one run", "Name one of the folders in it.");
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
  constexpr std::int64_t nanoseconds_per_second = 1'000'000'000;
  // A date before 1970 or far in the future is no date that a clock gave.
  const std::time_t start_s = timegm(&utc);
  if (start_s < 0 || start_s > most_s) return std::nullopt;
  return start_s * nanoseconds_per_second + (t_ns - journal.lines.front().t_ns);
}

std::span<const RunExportFormat> run_export_formats() { return formats; }

std::string run_export_text(const std::filesystem::path& path, const std::string& format,
                            const std::string& table) {
  const std::vector<ExportedRun> runs = exported_runs(path);
  if (format == "gbench") return gbench_export_text(runs);
  if (format == "openmetrics") return openmetrics_export_text(runs);
  if (format == "mllog") return mllog_export_text(only(runs, path, format));
  return csv_export_text(only(runs, path, format), table);
}

}  // namespace heteroperf
