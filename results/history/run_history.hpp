#pragma once

#include <optional>
#include <string>
#include <vector>

#include "metrics/change_points.hpp"
#include "results/comparison/run_set.hpp"

namespace heteroperf {

/// One run in a series.
struct HistoryPoint {
  std::string run_id, created_utc, git_commit;
  double value = 0;
  std::optional<Interval> ci95 = {};  ///< the run's own, where its record has one
  /// Leaves of system, environment, program, plan summary and configuration that differ from the
  /// point before.
  std::vector<std::string> environment_changes;
};

/// A lasting change of level.
struct LevelChange {
  std::size_t index = 0;  ///< first point of the new level
  std::string commit;     ///< at that point
  double before = 0, after = 0, p = 1;
  bool worse = false;
};

/// Runs with one key, transport and configuration, by date.
struct HistorySeries {
  std::string label;  ///< "llm nano fp32, 2 x cpu of 1 thread, plan.pipeline=2"
  std::vector<KeyField> key;
  RecordLeaves setup;  ///< settings that tell it from others labelled alike
  std::vector<HistoryPoint> points;
  std::vector<LevelChange> changes;
};

/// The series of one metric, and the files that are no point of any. `metric` is never null in a
/// history that run_history() made.
struct RunHistory {
  const RecordMetric* metric = nullptr;
  std::vector<HistorySeries> series;
  std::vector<SkippedEntry> skipped;
  std::size_t foreign = 0;
};

/// Change points are looked for in logarithms, so that levels are geometric means. Runs that were
/// asked for otherwise are another series; what the program made of the same request (its plan,
/// say) is a mark of the point. Where programs differ, a key of the configuration that only one of
/// them wrote is a mark as well. Runs that were edited, or lack the metric, are skipped with their
/// reason.
RunHistory run_history(RunSet runs, const RecordMetric& metric);

/// `heteroperf-history`.
Document history_document(const RunHistory& history);

}  // namespace heteroperf
