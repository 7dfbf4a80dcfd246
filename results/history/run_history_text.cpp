// The history for a terminal. Each series has a line per run (its place, date, value, commit and
// what changed around it), and a line with dashes before the first run of a new level, which says
// from which level to which, by how many percent, and with which probability chance alone would do
// so. Texts out of records are a stranger's, so each is written as one clean line.
#include <fmt/format.h>

#include "results/history/run_history.hpp"
#include "results/text/number_text.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

const char* plural(std::size_t count) { return count == 1 ? "" : "s"; }

/// A level or a point in words, with its unit.
std::string value_text(const ComparedMetric& metric, double value) {
  return metric.unit == std::string("s") ? fmt::format("{:.5g} s", value) : with_prefix(value, "");
}

/// A single change is written in full; of several the first few are named.
std::string marks_text(const std::vector<std::string>& changes) {
  constexpr std::size_t most_named = 3;
  if (changes.empty()) return "";
  if (changes.size() == 1) return "  * " + line_text(changes.front());
  std::string text = fmt::format("  * {} changes: ", changes.size());
  for (std::size_t i = 0; i < changes.size() && i < most_named; ++i) {
    text += (i == 0 ? "" : ", ") + line_text(changes[i].substr(0, changes[i].find(": ")));
  }
  return text + (changes.size() > most_named ? ", …" : "");
}

/// Writes the line that stands between two levels.
std::string change_line(const ComparedMetric& metric, const LevelChange& change) {
  return fmt::format("  ---- {}: {} -> {} ({}, p {:.2g})\n", change.worse ? "WORSE" : "better",
                     value_text(metric, change.before), value_text(metric, change.after),
                     change_text(change.after / change.before), change.p);
}

std::string series_text(const HistorySeries& series, const ComparedMetric& metric) {
  constexpr std::size_t shown_commit = 18;
  std::string text = fmt::format("{}: {} run{}, {} change{}\n", line_text(series.label),
                                 series.points.size(), plural(series.points.size()),
                                 series.changes.size(), plural(series.changes.size()));
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    const HistoryPoint& point = series.points[i];
    for (const LevelChange& change : series.changes) {
      if (change.index == i) text += change_line(metric, change);
    }
    text += fmt::format(
        "  {:>4}  {}  {:>14}  {}{}\n", i, point.created_utc, value_text(metric, point.value),
        line_text(point.git_commit.substr(0, shown_commit)), marks_text(point.environment_changes));
  }
  return text;
}

}  // namespace

std::string history_console_text(const RunHistory& history) {
  std::string text;
  for (const HistorySeries& series : history.series) text += series_text(series, *history.metric);
  for (const SkippedEntry& run : history.skipped) {
    text += fmt::format("skipped {}: {}\n", line_text(run.path.string()), line_text(run.reason));
  }
  if (history.foreign > 0) text += fmt::format("{} other files passed over\n", history.foreign);
  return text;
}

}  // namespace heteroperf
