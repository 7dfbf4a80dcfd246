#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/comparison/run_digest.hpp"
#include "results/journal/journal.hpp"
#include "results/text/document.hpp"

namespace heteroperf {

inline constexpr std::int64_t nanoseconds_per_millisecond = 1'000'000;

/// A stored run as an exporter sees it: its record, and the journal that gives it.
struct ExportedRun {
  RunDigest digest;
  Journal journal;
  std::string record;

  /// When the journal's clock showed `t_ns`, in nanoseconds since 1970; nothing where the start has
  /// no date.
  std::optional<std::int64_t> epoch_ns(std::int64_t t_ns) const;
};

/// Names of the tables of csv_export_text(), the default first: the record's numbers, and what
/// samples.h5 holds.
std::vector<std::string> csv_table_names();
/// RFC 4180 with one line of names. Absent values are empty cells; reals that are not finite are
/// nan, inf, -inf. Operations are one decimal number. Throws UserError for an unknown table.
std::string csv_export_text(const ExportedRun& run, const std::string& table);

/// Google Benchmark's JSON, as its compare.py reads it: an entry per run, named by workload, size,
/// precision and devices, runs of one name being repetitions, then mean, median, stddev and cv of
/// those. `real_time` is the median step, `cpu_time` its share of computing.
std::string gbench_export_text(const std::vector<ExportedRun>& runs);

/// MLPerf's log lines (":::MLLOG {…}"): a block of training between evaluations. The metadata name
/// the journal's line that each comes from. A number that is not finite is null.
std::string mllog_export_text(const ExportedRun& run);

/// OpenMetrics 1.0 text: a gauge per number of the record and an info metric per run, stamped with
/// the run's end.
std::string openmetrics_export_text(const std::vector<ExportedRun>& runs);

/// The exports of a run by name.
struct RunExportFormat {
  const char* name;
  const char* summary;
};
std::span<const RunExportFormat> run_export_formats();
/// Returns the export of the runs below `path`; `table` is for csv alone. Throws UserError where
/// there are several runs and the format takes one, where one is unfinished or its journal does not
/// confirm it.
std::string run_export_text(const std::filesystem::path& path, const std::string& format,
                            const std::string& table);

/// The record (or suite) in `path`, for reading: the one table at the end of a run. `json` is the
/// stored document itself. Throws UserError when there is none or it is malformed.
std::string show(const std::filesystem::path& path, DocumentForm form, const TextStyle& style);

/// As above, of record text in memory; `folder` is the path the table names.
std::string show_record(const std::string& record_text, const std::string& folder,
                        DocumentForm form, const TextStyle& style);

}  // namespace heteroperf
