#include "results/history/run_history.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "metrics/natural_log.hpp"
#include "results/number_text.hpp"

namespace heteroperf {
namespace {

std::string label_of(const RunDigest& run) {
  std::string text = run.workload;
  for (const std::string& part : {run.size, run.precision}) text += part.empty() ? "" : ' ' + part;
  for (const KeyField& field : run.key) {
    if (field.name == "scale" && !field.value.empty()) text += ", " + field.value;
  }
  return text;
}

/// A stored date sorts as text only in this form.
bool is_utc(const std::string& text) {
  const std::string_view form = "dddd-dd-ddTdd:dd:ddZ";
  if (text.size() != form.size()) return false;
  for (std::size_t i = 0; i < form.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (form[i] == 'd' ? !digit : text[i] != form[i]) return false;
  }
  return true;
}

std::optional<std::string> why_not(const RunDigest& run, const std::optional<std::string>& edited,
                                   const ComparedMetric& metric) {
  if (edited) return "edited: " + *edited;
  if (!is_utc(run.created_utc)) return "its date '" + run.created_utc + "' is none";
  const auto& value = run.metric(metric.name);
  if (value && value->number && *value->number > 0) return std::nullopt;
  return fmt::format("no {} (class {}{}{})", metric.name, run.severity,
                     run.reasons.empty() ? "" : ", ",
                     run.reasons.empty() ? "" : run.reasons.front());
}

std::vector<std::string> environment_changes(const RunDigest& before, const RunDigest& after) {
  std::vector<std::string> changes;
  for (const EnvironmentDifference& one : environment_differences(before, after)) {
    if (one.path.starts_with("/system/") || one.path.starts_with("/environment/")) {
      changes.push_back(fmt::format("{}: {} -> {}", one.path, one.a, one.b));
    }
  }
  return changes;
}

void find_changes(HistorySeries& series, const ComparedMetric& metric) {
  std::vector<double> logs;
  for (const HistoryPoint& point : series.points) logs.push_back(natural_log(point.value));
  for (const ChangePoint& change : find_change_points(logs)) {
    LevelChange level{change.index,
                      series.points[change.index].git_commit,
                      std::exp(change.before),
                      std::exp(change.after),
                      change.p,
                      false};
    const bool up = change.after > change.before;
    level.worse = up != (metric.direction == MetricDirection::higher);
    series.changes.push_back(level);
  }
}

}  // namespace

RunHistory run_history(RunSet runs, const ComparedMetric& metric) {
  RunHistory history;
  history.metric = &metric;
  history.skipped = std::move(runs.skipped);
  history.foreign = runs.foreign;
  std::map<std::string, std::pair<HistorySeries, const RunDigest*>> by_key;
  const auto edited = contradictions(runs.runs);
  for (const RunDigest& run : runs.runs) {
    const auto number = static_cast<std::size_t>(&run - runs.runs.data());
    if (const auto reason = why_not(run, edited[number], metric)) {
      history.skipped.push_back({run.record, *reason});
      continue;
    }
    auto& [series, last] = by_key[run.key_text()];
    if (last == nullptr) series.label = label_of(run), series.key = run.key;
    HistoryPoint point{
        run.run_id, run.created_utc, run.git_commit, *run.metric(metric.name)->number, {}};
    if (last != nullptr) point.environment_changes = environment_changes(*last, run);
    series.points.push_back(std::move(point));
    last = &run;
  }
  for (auto& [unused, entry] : by_key) {
    find_changes(entry.first, metric);
    history.series.push_back(std::move(entry.first));
  }
  return history;
}

std::string history_console_text(const RunHistory& history) {
  const auto text_of = [&](double value) {
    return history.metric->unit == std::string("s") ? fmt::format("{:.5g} s", value)
                                                    : with_prefix(value, "");
  };
  std::string text;
  for (const HistorySeries& series : history.series) {
    text += fmt::format("{}: {} run{}, {} change{}\n", series.label, series.points.size(),
                        series.points.size() == 1 ? "" : "s", series.changes.size(),
                        series.changes.size() == 1 ? "" : "s");
    for (std::size_t i = 0; i < series.points.size(); ++i) {
      const HistoryPoint& point = series.points[i];
      for (const LevelChange& change : series.changes) {
        if (change.index != i) continue;
        text +=
            fmt::format("  ---- {}: {} -> {} ({}, p {:.2g})\n", change.worse ? "WORSE" : "better",
                        text_of(change.before), text_of(change.after),
                        change_text(change.after / change.before), change.p);
      }
      text += fmt::format(
          "  {:>4}  {}  {:>14}  {}{}\n", i, point.created_utc, text_of(point.value),
          point.git_commit.substr(0, 18),
          point.environment_changes.empty()
              ? ""
              : fmt::format("  * {} environment change{}", point.environment_changes.size(),
                            point.environment_changes.size() == 1 ? "" : "s"));
    }
  }
  for (const SkippedEntry& one : history.skipped) {
    text += fmt::format("skipped {}: {}\n", one.path.string(), one.reason);
  }
  if (history.foreign > 0) text += fmt::format("{} other files passed over\n", history.foreign);
  return text;
}

}  // namespace heteroperf
