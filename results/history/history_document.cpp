// The document of `history`. People read a table per series with a row per run: its place, date,
// value and commit; where a new level begins, from which level to which, by how many percent, and
// with which probability chance alone would do so; and what changed around the run. Programs find
// the points by series, and all changes in one list, where each names its series and its first
// point by index.
#include <fmt/format.h>

#include "results/history/run_history.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

/// A single change is written in full; of several the first few are named.
std::string marks_text(const std::vector<std::string>& changes) {
  constexpr std::size_t most_named = 3;
  if (changes.size() <= 1) return changes.empty() ? "" : "* " + changes.front();
  std::string text = fmt::format("* {} changes: ", changes.size());
  for (std::size_t i = 0; i < changes.size() && i < most_named; ++i) {
    text += (i == 0 ? "" : ", ") + changes[i].substr(0, changes[i].find(": "));
  }
  return text + (changes.size() > most_named ? ", …" : "");
}

/// The change of level that begins at a point; nothing at all other points.
Datum level_at(const HistorySeries& series, std::size_t index, Unit unit) {
  for (const LevelChange& change : series.changes) {
    if (change.index != index) continue;
    return Datum(fmt::format("{}: {} -> {} ({}, p {:.2g})", change.worse ? "WORSE" : "better",
                             value_text(change.before, unit), value_text(change.after, unit),
                             change_text(change.after / change.before), change.p))
        .judged(change.worse ? Tone::bad : Tone::good);
  }
  return "";
}

/// The points as people and as programs read them.
Table points_table(const HistorySeries& series, const RecordMetric& metric) {
  using enum Unit;
  using enum Audience;
  constexpr std::size_t shown_commit = 18;
  Table table{"", fmt::format("{}: {}, {}", series.label, plural(series.points.size(), "run"),
                              plural(series.changes.size(), "change"))};
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    const HistoryPoint& point = series.points[i];
    const Datum commit = Datum(point.git_commit).as(point.git_commit.substr(0, shown_commit));
    Datum changes = point.environment_changes.empty() ? Datum() : point.environment_changes;
    changes.shown = marks_text(point.environment_changes);
    table.add_cells({{"", "#", count, i, people},
                     {"run_id", "run", none, point.run_id, programs},
                     {"created_utc", "date", none, point.created_utc},
                     {"value", metric.name, metric.unit, point.value},
                     {"commit", "commit", none, commit},
                     {"", "level", none, level_at(series, i, metric.unit), people},
                     {"environment_changes", "what else changed", none, changes}});
  }
  return table;
}

/// Settings and key fields are data: their names come from the records.
Table series_table(const RunHistory& history) {
  using enum Unit;
  Table table{"series", "", {}, {}, Audience::programs};
  for (const HistorySeries& series : history.series) {
    std::vector<Member> key, setup;
    for (const KeyField& field : series.key) key.push_back({field.name, field.value});
    for (const auto& [path, value] : series.setup) setup.push_back({path, value});
    table.add_cells({{"label", "series", none, series.label},
                     {"key", "what must be equal to be compared", none, std::move(key)},
                     {"setup", "settings that tell it from others", none,
                      setup.empty() ? Datum() : std::move(setup)},
                     {"points", "runs", none, points_table(series, *history.metric)}});
  }
  return table;
}

Table changes_table(const RunHistory& history) {
  using enum Unit;
  const Unit unit = history.metric->unit;
  Table table{"change_points", "", {}, {}, Audience::programs};
  for (std::size_t i = 0; i < history.series.size(); ++i) {
    for (const LevelChange& change : history.series[i].changes) {
      table.add_cells({{"series", "series", count, i},
                       {"index", "first point of the new level", count, change.index},
                       {"commit", "commit", none, change.commit},
                       {"before", "level before", unit, change.before},
                       {"after", "level after", unit, change.after},
                       {"p", "probability by chance", ratio, change.p},
                       {"worse", "worse", none, change.worse}});
    }
  }
  return table;
}

}  // namespace

Document history_document(const RunHistory& history) {
  Document document{"heteroperf-history"};
  document.data("metric", "metric", Unit::none, history.metric->name);
  document.data("unit", "unit", Unit::none, short_name(history.metric->unit));
  document.table(series_table(history));
  for (const HistorySeries& series : history.series) {
    Table points = points_table(series, *history.metric);
    points.audience = Audience::people;
    document.table(std::move(points));
  }
  document.table(changes_table(history));
  Table skipped{"skipped"};
  for (const SkippedEntry& run : history.skipped) {
    skipped.add_cells({{"record", "skipped", Unit::none, run.path.string()},
                       {"reason", "reason", Unit::none, run.reason}});
  }
  document.table(std::move(skipped));
  document.data("foreign", "files passed over", Unit::count, history.foreign);
  if (history.foreign > 0) {
    document.line(fmt::format("{} other files passed over", history.foreign));
  }
  return document;
}

}  // namespace heteroperf
