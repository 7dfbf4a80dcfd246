// The first part of a report of several runs shows them together. It has a table of all runs,
// their scaling, mixes against their classes alone, the trend of the throughput over time, and what
// changed in the environment from the first run to the last. Charts of runs that do not belong
// together would mislead, so each section picks the runs that are comparable by its own rule and
// says in a sentence why it shows nothing.

#include "results/report/runs_part.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"
#include "results/comparison/hetero_ratio.hpp"
#include "results/comparison/run_digest.hpp"
#include "results/history/run_history.hpp"
#include "results/record/run_folder.hpp"
#include "results/sweep/sweep_index.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// All runs by date; runs that could not be read are notices above the table.
ReportSection list_section(const RunSet& runs) {
  ReportSection section{"Runs"};
  constexpr std::size_t printed_runs = 50;
  Table table = report_table("Runs by date", {"run", "date", "workload", "ranks", "devices",
                                              "status", "validity", "OPS", "OPS, low", "OPS, high",
                                              "throughput", "step time [s]", "quality", "of peak"});
  table.rows_on_paper = printed_runs;
  for (const RunDigest& run : runs.runs) {
    const auto ops_ci95 = run.ci95("ops_per_second");
    const auto quality = run.number("quality"), throughput = run.number("throughput");
    const auto ops_text = [](const Datum& value) {
      return value_text(value, Unit::operations_per_second);
    };
    table.add({run.run_id, run.created_utc,
               fmt::format("{} {} {}", run.workload, run.size, run.precision), run.ranks,
               devices_text(run, "×") + (run.emulated ? " (emulated)" : ""), run.status,
               run.severity + (run.rankable ? "" : ", not rankable"),
               ops_text(run.number("ops_per_second")), ops_ci95 ? ops_text(ops_ci95->low) : "",
               ops_ci95 ? ops_text(ops_ci95->high) : "",
               throughput ? with_prefix(*throughput, run.unit) : "",
               number_cell(run.number("step_time_s")),
               quality ? fmt::format("{} {:.4g}", run.quality_name, *quality) : "",
               run.emulated ? "" : value_text(run.number("utilization"), Unit::fraction)});
  }
  section.tables.push_back(std::move(table));
  for (const SkippedEntry& skipped : runs.skipped) {
    section.notices.push_back(
        {NoticeLevel::bad, fmt::format("{}: {}", skipped.path.string(), skipped.reason)});
  }
  return section;
}

// ---------------------------------------------------------------- mixed against homogeneous

/// The runs of each class of `mix` alone, with as many devices; empty unless all are there.
std::vector<RunSet> alone_of(const RunDigest& mix, const RunSet& runs) {
  std::vector<RunSet> alone;
  for (const auto& wanted : mix.class_counts()) {
    RunSet set;
    const std::map only{wanted};
    for (const RunDigest& run : runs.runs) {
      const bool fits = run.graph_hash == mix.graph_hash && run.class_counts() == only;
      if (fits) set.runs.push_back(run);
    }
    if (set.runs.empty()) return {};
    alone.push_back(std::move(set));
  }
  return alone;
}

/// Bars for each class alone, for their sum, and for the mix.
ReportChart ratio_chart(const HeteroRatio& ratio, const std::string& run_id, std::size_t index) {
  ReportChart chart{fmt::format("mixed-{}", index),
                    "Mixed against homogeneous, " + run_id,
                    ChartKind::bars,
                    {"devices"},
                    {"throughput", ratio.unit}};
  ChartSeries series{"throughput"};
  const auto add = [&](const std::string& name, const SideThroughput& side) {
    chart.categories.push_back(name);
    series.y.push_back(side.throughput);
  };
  for (const SideThroughput& side : ratio.baselines) {
    add(fmt::format("{} × {} alone", side.count, side.device_class), side);
  }
  chart.categories.push_back("ideal sum");
  series.y.push_back(ratio.ideal_sum);
  add("mixed", ratio.mix);
  chart.series.push_back(std::move(series));
  chart.rules.push_back({ratio.ideal_sum, "ideal sum", false});
  chart.description =
      fmt::format("HSR {:.3f}{}, {:.2f} times {} alone.", ratio.hsr,
                  ratio.hsr_ci95 ? fmt::format(" (95 % interval {:.3f} to {:.3f})",
                                               ratio.hsr_ci95->low, ratio.hsr_ci95->high)
                                 : std::string(),
                  ratio.gain, ratio.best_class);
  return chart;
}

/// Every mix is held against runs of its classes, if all of them are there. Runs that cannot be
/// compared are told as a sentence and do not end the report.
ReportSection mixed_section(const RunSet& runs) {
  ReportSection section{"Mixed against homogeneous"};
  std::size_t mixes = 0;
  for (const RunDigest& run : runs.runs) {
    if (run.class_counts().size() < 2) continue;
    ++mixes;
    const auto alone = alone_of(run, runs);
    if (alone.empty()) continue;
    try {
      RunSet mix;
      mix.runs = {run};
      section.charts.push_back(
          ratio_chart(hetero_ratio(mix, alone), run.run_id, section.charts.size()));
    } catch (const Error& error) {
      section.paragraphs.push_back(fmt::format("{}: {}", run.run_id, error.what()));
    }
  }
  if (mixes == 0) {
    section.paragraphs = {"No run has more than one class of devices."};
  } else if (section.charts.empty()) {
    section.paragraphs.push_back(
        "No run of each class alone is among these runs; a run's own part shows what "
        "--with-baselines measured.");
  }
  return section;
}

// ---------------------------------------------------------------- trend

/// The unit of the throughput is the workload's, which the record of a run tells.
std::string unit_of(const HistorySeries& series, const RunHistory& history, const RunSet& runs) {
  for (const RunDigest& run : runs.runs) {
    if (run.run_id == series.points.front().run_id && !run.unit.empty()) return run.unit;
  }
  return short_name(history.metric->unit);
}

/// Noise does not fill the chart: 5 % about the median, and every interval, have room.
Interval trend_range(const HistorySeries& series) {
  constexpr double least_room = 0.05;
  std::vector<double> values;
  for (const HistoryPoint& point : series.points) values.push_back(point.value);
  const double centre = median(values);
  Interval range{centre * (1 - least_room), centre * (1 + least_room)};
  for (const HistoryPoint& point : series.points) {
    const Interval bar = point.ci95.value_or(Interval{point.value, point.value});
    range = {std::min(range.low, bar.low), std::max(range.high, bar.high)};
  }
  return range;
}

/// Runs stand at equal distances in the order of their dates: dates themselves would crowd the runs
/// of one day. A change of level is a vertical line between the last run before it and the first
/// one after.
ReportChart trend_chart(const HistorySeries& series, const RunHistory& history,
                        const std::string& unit, std::size_t index) {
  ReportChart chart{fmt::format("trend-{}", index),
                    fmt::format("Trend of {}, {}", history.metric->name, series.label),
                    ChartKind::lines,
                    {"run, by date (UTC)"},
                    {history.metric->name, unit, AxisScale::linear, trend_range(series)}};
  ChartSeries values{history.metric->name}, marks{"environment changed", SeriesMark::points};
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    const HistoryPoint& point = series.points[i];
    const auto at = static_cast<double>(i + 1);
    const std::string label =
        fmt::format("{}, {}, {}", point.run_id, point.created_utc, point.git_commit);
    // A run without an interval has no bar, though the others have one.
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    const std::string& utc = point.created_utc;  // "2026-01-01T10:15:00Z"
    chart.x.places.push_back(utc.substr(0, 10) + ' ' + utc.substr(11, 5));
    values.add(at, point.value);
    values.low.push_back(point.ci95 ? point.ci95->low : none);
    values.high.push_back(point.ci95 ? point.ci95->high : none);
    values.labels.push_back(label);
    if (point.environment_changes.empty()) continue;
    marks.add(at, point.value);
    marks.labels.push_back(
        fmt::format("{}: {}", point.run_id, fmt::join(point.environment_changes, ", ")));
  }
  chart.series.push_back(std::move(values));
  if (!marks.x.empty()) chart.series.push_back(std::move(marks));
  for (const LevelChange& change : series.changes) {
    chart.rules.push_back(
        {static_cast<double>(change.index) + 0.5,
         fmt::format("{} at {}, {:.4g} to {:.4g}", change.worse ? "worse" : "better", change.commit,
                     change.before, change.after),
         true});
  }
  chart.description = fmt::format("{} runs, {} of level.", series.points.size(),
                                  plural(series.changes.size(), "lasting change"));
  chart.note =
      "The bar about a run is its own 95 % interval. The scale shows at least 5 % about the "
      "median.";
  return chart;
}

/// Changes that last, with their size and how likely chance is to make them.
Table changes_table(const HistorySeries& series) {
  Table table = report_table(
      "Changes of level, " + series.label,
      {"first run of the new level", "commit", "before", "after", "change", "p", "verdict"});
  for (const LevelChange& change : series.changes) {
    table.add({series.points[change.index].run_id, change.commit, number_cell(change.before),
               number_cell(change.after),
               fmt::format("{:+.1f} %", 100 * (change.after / change.before - 1)),
               number_cell(change.p), change.worse ? "worse" : "better"});
  }
  return table;
}

ReportSection trend_section(const RunSet& runs) {
  ReportSection section{"Trend"};
  const RunHistory history = run_history(runs, compared_metric("throughput"));
  for (const HistorySeries& series : history.series) {
    if (series.points.size() < 2) continue;
    section.charts.push_back(
        trend_chart(series, history, unit_of(series, history, runs), section.charts.size()));
    if (!series.changes.empty()) section.tables.push_back(changes_table(series));
  }
  if (section.charts.empty()) {
    section.paragraphs = {
        "No two runs have the same workload, rules, precision, scale, build and configuration."};
  }
  for (const SkippedEntry& skipped : history.skipped) {
    section.paragraphs.push_back(
        fmt::format("Left out: {}: {}.", skipped.path.string(), skipped.reason));
  }
  return section;
}

// ---------------------------------------------------------------- environment

/// At most 300 rows; two unlike machines differ in almost everything.
ReportSection differences_section(const RunSet& runs) {
  constexpr std::size_t most_rows = 300;
  ReportSection section{"What changed from the first run to the last"};
  if (runs.runs.size() < 2) return section;
  const RunDigest &first = runs.runs.front(), &last = runs.runs.back();
  Table table = report_table("Environment and configuration that differ",
                             {"name", first.run_id, last.run_id});
  for (const EnvironmentDifference& difference : environment_differences(first, last)) {
    if (table.rows.size() == most_rows) break;
    table.add({difference.path, difference.a, difference.b});
  }
  if (table.rows.empty()) {
    section.paragraphs = {"Nothing that the records tell."};
  } else {
    section.tables.push_back(std::move(table));
  }
  return section;
}

}  // namespace

ReportSources report_sources(const std::vector<fs::path>& paths) {
  ReportSources sources;
  std::vector<fs::path> given;
  // A file inside a run folder means the run.
  for (const fs::path& path : paths) {
    const bool inside = fs::is_regular_file(path) && fs::exists(RunFiles{home_of(path)}.journal());
    given.push_back(inside ? home_of(path) : path);
  }
  sources.records = find_runs(given);
  sources.sweep = paths.size() == 1 && sweep_folder_of(paths.front()).has_value();
  std::set<fs::path> seen;
  const auto add = [&](const fs::path& folder) {
    if (!fs::exists(RunFiles{folder}.journal())) return;
    if (seen.insert(fs::weakly_canonical(folder)).second) sources.folders.push_back(folder);
  };
  for (const RunDigest& run : sources.records.runs) add(run.record.parent_path());
  // A run whose record is doubtful leaves the table but keeps its part, which is made from its
  // journal.
  set_aside_doubtful(sources.records);
  for (const auto& skipped : sources.records.skipped) {
    add(fs::is_directory(skipped.path) ? skipped.path : skipped.path.parent_path());
  }
  if (sources.folders.empty() && sources.records.runs.empty()) {
    require_some(sources.records, given);
    throw UserError(paths.front().string() + " holds no run",
                    sources.records.skipped.front().reason,
                    "Give a run folder, or a folder of them.");
  }
  return sources;
}

ReportPart runs_part(const ReportSources& sources) {
  const RunSet& runs = sources.records;
  ReportPart part;
  part.title = fmt::format("{} runs", runs.runs.size());
  if (!runs.runs.empty()) {
    part.subtitle =
        fmt::format("{} to {}", runs.runs.front().created_utc, runs.runs.back().created_utc);
  }
  part.sections = {list_section(runs), scaling_section(runs), mixed_section(runs),
                   trend_section(runs)};
  if (!sources.sweep) part.sections.push_back(differences_section(runs));
  return part;
}

}  // namespace heteroperf
