// The history of a metric: runs of the same thing in the order of their dates. Runs make one
// *series* when they have the same key (workload, size, precision, scale), and the user asked for
// the same configuration and transport. What the program made of that request, and the machine, may
// change from run to run: such a change is a *mark* of the point and no other series, so that a
// reader sees it beside a change of level. *Change points* are looked for in the logarithms of the
// values, since a change of speed is a ratio. Programs gain keys of the configuration over time: a
// key that only one of two programs writes does not part their runs, unless both come from the same
// commit.
#include "results/history/run_history.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "metrics/statistics.hpp"

namespace heteroperf {
namespace {

/// Names a series for a reader: workload, size, precision and devices.
std::string label_of(const RunDigest& run) {
  std::string text = run.workload;
  for (const std::string& part : {run.size, run.precision}) text += part.empty() ? "" : ' ' + part;
  for (const KeyField& field : run.key) {
    if (field.name == "scale" && !field.value.empty()) text += ", " + field.value;
  }
  return text;
}

/// True for a date in the one form that sorts as text.
bool is_utc(const std::string& text) {
  const std::string_view form = "dddd-dd-ddTdd:dd:ddZ";
  return std::ranges::equal(text, form, [](char c, char wanted) {
    return wanted == 'd' ? c >= '0' && c <= '9' : c == wanted;
  });
}

/// Returns why a run is no point of a history; nothing where it is one. Logarithms need a value
/// above 0.
std::optional<std::string> why_not(const RunDigest& run, const RecordMetric& metric) {
  if (!is_utc(run.created_utc)) return "its date '" + run.created_utc + "' is none";
  const auto& value = run.metric(metric.name);
  if (value && value->number && *value->number > 0) return std::nullopt;
  return fmt::format("no {} (class {}{}{})", metric.name, run.severity,
                     run.reasons.empty() ? "" : ", ",
                     run.reasons.empty() ? "" : run.reasons.front());
}

std::string or_none(const std::string& text) { return text.empty() ? "(none)" : text; }

/// True where a difference tells something: each point has its commit anyway, repetitions have
/// their own seeds, and some settings have no effect.
bool is_mark(const std::string& path) {
  return path != "/program/git_commit" && !path.starts_with("/seeds/") && !is_without_effect(path);
}

/// Lists what differs between two runs of a series as "path: before -> after".
std::vector<std::string> environment_changes(const RunDigest& before, const RunDigest& after) {
  std::vector<std::string> changes;
  for (const EnvironmentDifference& mark : environment_differences(before, after)) {
    if (!is_mark(mark.path)) continue;
    changes.push_back(fmt::format("{}: {} -> {}", mark.path, or_none(mark.a), or_none(mark.b)));
  }
  return changes;
}

/// Finds lasting changes of the level; the levels are told as values, the geometric means around
/// them.
void find_changes(HistorySeries& series, const RecordMetric& metric) {
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

/// Returns the settings that the user asked for and that no key tells. The transport is a fact of
/// the environment in a record, but the user chooses it.
RecordLeaves request_of(const RunDigest& run) {
  constexpr const char* transport = "/scale/transport";
  RecordLeaves request = configuration_of(run);
  const auto value = run.environment.find(transport);
  if (value != run.environment.end()) request.insert(*value);
  return request;
}

/// A series and its newest run.
struct OpenSeries {
  HistorySeries series;
  const RunDigest* last = nullptr;
  RecordLeaves request;  ///< that run asked for
};

/// Counts the keys that only one of two requests has. Nothing where a shared key has another value,
/// or where one program wrote both, so that a key is missing because it was asked for otherwise.
std::optional<std::size_t> foreign_keys(const OpenSeries& open, const RunDigest& run,
                                        const RecordLeaves& request) {
  std::size_t shared = 0;
  for (const auto& [path, value] : request) {
    const auto asked = open.request.find(path);
    if (asked == open.request.end()) continue;
    if (asked->second != value) return std::nullopt;
    ++shared;
  }
  const std::size_t foreign = open.request.size() + request.size() - 2 * shared;
  const bool one_program =
      open.last->program_version == run.program_version && open.last->git_commit == run.git_commit;
  if (foreign > 0 && one_program) return std::nullopt;
  return foreign;
}

/// Returns the series, among those of the run's key, that the run goes on: the one with the fewest
/// foreign keys, and of equal ones the newest. Null where the run begins a series.
OpenSeries* series_for(std::vector<OpenSeries>& open, const RunDigest& run,
                       const RecordLeaves& request) {
  OpenSeries* best = nullptr;
  std::size_t fewest = 0;
  for (OpenSeries& series : open) {
    const auto foreign = foreign_keys(series, run, request);
    if (!foreign) continue;
    const bool better = best == nullptr || *foreign < fewest ||
                        (*foreign == fewest && series.last->created_utc >= best->last->created_utc);
    if (better) best = &series, fewest = *foreign;
  }
  return best;
}

/// Runs come in the order of their dates, so a new point stands behind those of its series.
void add_point(std::vector<OpenSeries>& open, const RunDigest& run, const RecordMetric& metric) {
  const MetricValue& value = *run.metric(metric.name);
  HistoryPoint point{run.run_id, run.created_utc, run.git_commit, *value.number, value.ci95, {}};
  RecordLeaves request = request_of(run);
  OpenSeries* continued = series_for(open, run, request);
  if (continued == nullptr) {
    continued = &open.emplace_back();
    continued->series.label = label_of(run);
    continued->series.key = run.key;
  } else {
    point.environment_changes = environment_changes(*continued->last, run);
  }
  continued->series.points.push_back(std::move(point));
  continued->last = &run;
  continued->request = std::move(request);
}

/// "plan.pipeline" of "/config/plan/pipeline".
std::string short_name(const std::string& path) {
  std::string name = path.substr(path.find('/', 1) + 1);
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

/// ", plan.pipeline=2, transport=mpi".
std::string setup_text(const RecordLeaves& setup) {
  constexpr std::size_t most_named = 4, longest_value = 24;
  std::string text;
  std::size_t named = 0;
  for (const auto& [path, value] : setup) {
    if (++named > most_named) return text + ", …";
    text += fmt::format(", {}={}", short_name(path), or_none(value.substr(0, longest_value)));
  }
  return text;
}

/// Series with equal labels get the traits behind it that tell them apart: settings that were asked
/// for, and fields of the key. An absent one counts as an empty one.
void tell_apart(std::vector<OpenSeries>& open) {
  std::map<std::string, std::vector<OpenSeries*>> by_label;
  for (OpenSeries& open_series : open) by_label[open_series.series.label].push_back(&open_series);
  for (auto& [label, alike] : by_label) {
    std::vector<const RecordLeaves*> traits;
    for (OpenSeries* open_series : alike) {
      for (const KeyField& field : open_series->series.key) {
        open_series->request["/key/" + field.name] = field.value;
      }
      traits.push_back(&open_series->request);
    }
    const std::set<std::string> differing = differing_paths(traits);
    for (OpenSeries* open_series : alike) {
      HistorySeries& series = open_series->series;
      for (const std::string& path : differing) {
        series.setup[path] = leaf_at(open_series->request, path);
      }
      series.label += setup_text(series.setup);
    }
  }
}

}  // namespace

RunHistory run_history(RunSet runs, const RecordMetric& metric) {
  // Runs that their own journals do not confirm are skipped, with the reason.
  set_aside_doubtful(runs);
  RunHistory history;
  history.metric = &metric;
  history.skipped = std::move(runs.skipped);
  history.foreign = runs.foreign;
  std::map<std::string, std::vector<OpenSeries>> by_key;
  for (const RunDigest& run : runs.runs) {
    if (const auto reason = why_not(run, metric)) {
      history.skipped.push_back({run.record, *reason});
      continue;
    }
    add_point(by_key[run.key_text()], run, metric);
  }
  std::vector<OpenSeries> all;
  for (auto& [unused, open] : by_key) std::move(open.begin(), open.end(), std::back_inserter(all));
  tell_apart(all);
  for (OpenSeries& open_series : all) {
    find_changes(open_series.series, metric);
    history.series.push_back(std::move(open_series.series));
  }
  return history;
}

}  // namespace heteroperf
