// Compares two sweeps point by point. A point is one combination of the settings that a sweep
// varies, and its text is what finds it in the other sweep. At each point the runs of both sides
// are compared like any two sets of repetitions, one workload at a time. The overall verdict is the
// gravest one of any point: one slower point makes the sweep slower, and one open point keeps it
// from being the same. The two sweeps may share no run, since a run is no evidence against itself.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "metrics/base/strict_json.hpp"
#include "results/scaling/sweep_report.hpp"
#include "results/text/canonical_text_json.hpp"
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

/// Each point is the whole document of its comparison.
std::string json_of(const SweepComparison& comparison) {
  Json json = new_document("heteroperf-sweep-comparison");
  json["verdict"] = to_string(comparison.verdict);
  json["points"] = json_list(comparison.points, [](const PointComparison& compared) {
    Json entry{{"point", utf8_text(compared.point)}, {"workload", utf8_text(compared.workload)}};
    entry.update(Json::parse(json_text(comparison_document(compared.comparison))));
    return entry;
  });
  json["only_a"] = json_list(comparison.only_a, utf8_text);
  json["only_b"] = json_list(comparison.only_b, utf8_text);
  return json_indented(json);
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
  // All points together, as a run may have been copied to another point.
  RunSet all_a, all_b;
  for (const PointRuns& runs : shared) {
    std::ranges::copy(runs.a.runs, std::back_inserter(all_a.runs));
    std::ranges::copy(runs.b.runs, std::back_inserter(all_b.runs));
  }
  require_disjoint(all_a, all_b, "A", "B");
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

std::string sweep_comparison_text(const SweepComparison& comparison, DocumentForm form,
                                  const TextStyle& style) {
  if (form == DocumentForm::json) return json_of(comparison);
  Document document{"heteroperf-sweep-comparison"};
  document.heading(
      fmt::format("{} points: {}", comparison.points.size(), to_string(comparison.verdict)));
  for (const PointComparison& compared : comparison.points) {
    document.heading(fmt::format("{}, {}", compared.workload, compared.point));
    const Document point = comparison_document(compared.comparison);
    document.parts.insert(document.parts.end(), point.parts.begin(), point.parts.end());
  }
  for (const std::string& point : comparison.only_a) document.line("only in A: " + point);
  for (const std::string& point : comparison.only_b) document.line("only in B: " + point);
  return document_text(document, form, style);
}

}  // namespace heteroperf
