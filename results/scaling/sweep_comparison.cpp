// Compares two sweeps point by point. A point is one combination of the settings that a sweep
// varies, and its text is what finds it in the other sweep. At each point the runs of both sides
// are compared like any two sets of repetitions, one workload at a time. The overall verdict is the
// gravest one of any point: one slower point makes the sweep slower, and one open point keeps it
// from being the same. The two sweeps may share no run, since a run is no evidence against itself.

#include "results/scaling/sweep_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "metrics/base/error.hpp"
#include "results/scaling/sweep_report.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// The runs of a point by workload; a point that runs a suite has several.
std::map<std::string, RunSet> by_workload(const RunSet& runs) {
  std::map<std::string, RunSet> sets;
  for (const RunDigest& run : runs.runs) sets[run.workload].runs.push_back(run);
  return sets;
}

/// The verdicts in the order of their weight; the first that any point has is the answer.
SpeedVerdict overall(const std::vector<PointComparison>& points) {
  for (const SpeedVerdict verdict :
       {SpeedVerdict::slower, SpeedVerdict::inconclusive, SpeedVerdict::faster}) {
    for (const PointComparison& compared : points) {
      if (compared.comparison.verdict == verdict) return verdict;
    }
  }
  return SpeedVerdict::same;
}

/// The runs of both sweeps at one point.
struct PointRuns {
  std::string point;
  RunSet a, b;
};

/// A workload that only one side has at this point is passed over.
void compare_point(const PointRuns& runs, double margin, SweepComparison& comparison) {
  const auto sides_b = by_workload(runs.b);
  for (const auto& [workload, side_a] : by_workload(runs.a)) {
    const auto side_b = sides_b.find(workload);
    if (side_b == sides_b.end()) continue;
    require_comparable(side_a, side_b->second, fmt::format("A at {}", runs.point),
                       fmt::format("B at {}", runs.point));
    comparison.points.push_back(
        {runs.point, workload, compare_runs(arranged(side_a, side_b->second), margin)});
  }
}

/// All points together, as a run may have been copied to another point.
void require_two_sweeps(const std::vector<PointRuns>& points) {
  RunSet a, b;
  for (const PointRuns& runs : points) {
    a.runs.insert(a.runs.end(), runs.a.runs.begin(), runs.a.runs.end());
    b.runs.insert(b.runs.end(), runs.b.runs.begin(), runs.b.runs.end());
  }
  require_disjoint(a, b, "A", "B");
}

std::string title(const PointComparison& compared) {
  return fmt::format("{}, {}", utf8_text(compared.workload), utf8_text(compared.point));
}

/// Points that could not be compared, by the side that has them.
std::string missing_text(const SweepComparison& comparison) {
  std::string text;
  for (const std::string& point : comparison.only_a)
    text += "only in A: " + utf8_text(point) + '\n';
  for (const std::string& point : comparison.only_b)
    text += "only in B: " + utf8_text(point) + '\n';
  return text;
}

}  // namespace

SweepComparison compare_sweeps(const fs::path& a, const fs::path& b, double margin) {
  SweepComparison comparison;
  std::vector<PointRuns> shared;
  std::map<std::string, std::vector<fs::path>> points_b;
  for (PointFolders& runs : complete_points(b)) points_b[runs.point] = std::move(runs.folders);
  for (const PointFolders& runs : complete_points(a)) {
    const auto in_b = points_b.find(runs.point);
    if (in_b == points_b.end()) {
      comparison.only_a.push_back(runs.point);
      continue;
    }
    shared.push_back({runs.point, require_runs(runs.folders), require_runs(in_b->second)});
    points_b.erase(in_b);
  }
  require_two_sweeps(shared);
  for (const PointRuns& runs : shared) compare_point(runs, margin, comparison);
  for (const auto& [point, folders] : points_b) comparison.only_b.push_back(point);
  if (comparison.points.empty()) {
    throw Error(ErrorKind::not_comparable,
                {{"the sweeps have no point in common",
                  fmt::format("A has {}; B has {}", fmt::join(comparison.only_a, ", "),
                              fmt::join(comparison.only_b, ", ")),
                  ""}});
  }
  comparison.verdict = overall(comparison.points);
  return comparison;
}

std::string sweep_comparison_console_text(const SweepComparison& comparison) {
  std::string text =
      fmt::format("{} points: {}\n", comparison.points.size(), to_string(comparison.verdict));
  for (const PointComparison& compared : comparison.points) {
    text += fmt::format("\n{}\n{}", title(compared), comparison_console_text(compared.comparison));
  }
  return text + missing_text(comparison);
}

std::string sweep_comparison_markdown_text(const SweepComparison& comparison) {
  std::string text =
      fmt::format("## {} points: {}\n", comparison.points.size(), to_string(comparison.verdict));
  for (const PointComparison& compared : comparison.points) {
    text += fmt::format("\n**{}**\n\n{}", markdown_cell(title(compared)),
                        comparison_markdown_text(compared.comparison));
  }
  return text + '\n' + missing_text(comparison);
}

}  // namespace heteroperf
