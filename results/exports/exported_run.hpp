#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "metrics/statistics.hpp"
#include "results/journal/journal.hpp"

namespace heteroperf {

inline constexpr std::int64_t nanoseconds_per_millisecond = 1'000'000;

/// A stored run as an exporter sees it: its record, and the journal that gives it.
struct ExportedRun {
  std::filesystem::path folder;
  Journal journal;
  std::string record;

  /// When the journal's clock showed `t_ns`, in nanoseconds since 1970; nothing where the start has
  /// no date.
  std::optional<std::int64_t> epoch_ns(std::int64_t t_ns) const;
};

/// Every run below `path` (a run, suite, sweep, or a folder of them), by date. Throws UserError
/// where there is none or one is unfinished, and what hold_to_journal() doubts.
std::vector<ExportedRun> read_exported_runs(const std::filesystem::path& path);

/// One number of a record.
struct ExportedMetric {
  const char* name;         ///< as in the record
  const char* unit;         ///< "op/s"; of the throughput what the record says
  const char* family;       ///< OpenMetrics name without the unit: "heteroperf_step_time"
  const char* family_unit;  ///< "seconds": the name's last part; may be empty
  const char* help;
  const char* pointer;           ///< in record.json
  const char* interval_pointer;  ///< where its 95 % interval stands; may be empty
};

struct ExportedValue {
  const ExportedMetric* metric = nullptr;
  std::string unit;
  std::string text;  ///< decimal digits: counts of operations are beyond a double
  std::optional<Interval> ci95;
};

/// The numbers that the record has, in the order of the table.
std::vector<ExportedValue> exported_values(const ExportedRun& run);

}  // namespace heteroperf
