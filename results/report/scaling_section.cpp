#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "metrics/statistics.hpp"
#include "results/report/runs_part.hpp"

namespace heteroperf {
namespace {

/// The runs of one rank count.
struct ScalePoint {
  std::uint64_t ranks = 0;
  std::size_t runs = 0;
  double rate = 0;  ///< mean
  double low = 0, high = 0;
  double efficiency = 1;     ///< rate per rank against the smallest
  std::string threads = {};  ///< of a rank; "1, 2" where runs differ
};

enum class ScalingKind { strong, weak };

struct ScalingFamily {
  ScalingKind kind;
  std::string label, unit;
  std::map<std::uint64_t, std::vector<const RunDigest*>> by_ranks;
};

std::string class_names(const RunDigest& run) {
  std::vector<std::string> names;
  for (const DeviceShare& share : run.devices) names.push_back(share.device_class);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return fmt::format("{}", fmt::join(names, " + "));
}

std::optional<double> rate_of(const RunDigest& run) {
  const auto rate = run.emulated ? run.modelled_samples_per_s : run.ops_per_second;
  return rate && *rate > 0 ? rate : std::nullopt;
}

/// Work of a step that stays the same from run to run; nothing where the record does not say.
std::optional<std::string> fixed_work(const RunDigest& run, ScalingKind kind) {
  if (!run.samples_per_step || run.ranks == 0) return std::nullopt;
  if (kind == ScalingKind::strong) return fmt::format("{} samples a step", *run.samples_per_step);
  if (*run.samples_per_step % run.ranks != 0) return std::nullopt;
  return fmt::format("{} samples a step and rank", *run.samples_per_step / run.ranks);
}

using Families = std::map<std::string, ScalingFamily>;

/// Runs that differ in their number of ranks and threads alone.
Families all_families_of(const RunSet& runs) {
  Families families;
  for (const RunDigest& run : runs.runs) {
    if (!rate_of(run)) continue;
    for (const ScalingKind kind : {ScalingKind::strong, ScalingKind::weak}) {
      const auto work = fixed_work(run, kind);
      if (!work) continue;
      const std::string label =
          fmt::format("{}: {} {} {} on {}, {}", kind == ScalingKind::strong ? "strong" : "weak",
                      run.workload, run.size, run.precision, class_names(run), *work);
      ScalingFamily& family = families[label + run.graph_hash];
      family.kind = kind;
      family.label = label;
      family.unit = run.emulated ? "sample/s" : "op/s";
      family.by_ranks[run.ranks].push_back(&run);
    }
  }
  return families;
}

/// The parts of a family whose ranks have as many threads, at least two rank counts each.
std::vector<ScalingFamily> by_threads(const ScalingFamily& family) {
  std::map<std::uint64_t, ScalingFamily> parts;
  for (const auto& [ranks, runs] : family.by_ranks) {
    for (const RunDigest* run : runs) {
      ScalingFamily& part = parts[run->threads];
      part.kind = family.kind;
      part.unit = family.unit;
      part.label = fmt::format("{}, {} thread{} a rank", family.label, run->threads,
                               run->threads == 1 ? "" : "s");
      part.by_ranks[ranks].push_back(run);
    }
  }
  std::vector<ScalingFamily> list;
  for (auto& [threads, part] : parts) {
    if (part.by_ranks.size() > 1) list.push_back(std::move(part));
  }
  return list;
}

/// Families with at least two rank counts. Where ranks have different numbers of threads and none
/// are alike, all of them in one: a machine that is divided among more ranks.
std::vector<ScalingFamily> families_of(const RunSet& runs) {
  std::vector<ScalingFamily> list;
  for (auto& [key, family] : all_families_of(runs)) {
    if (family.by_ranks.size() < 2) continue;
    std::vector<ScalingFamily> parts = by_threads(family);
    if (parts.empty()) {
      family.label += ", threads a rank differ";
      list.push_back(std::move(family));
    }
    std::move(parts.begin(), parts.end(), std::back_inserter(list));
  }
  return list;
}

/// Of several runs the spread of them, of one its own interval.
ScalePoint point_of(std::uint64_t ranks, const std::vector<const RunDigest*>& runs) {
  std::vector<double> rates;
  for (const RunDigest* run : runs) rates.push_back(*rate_of(*run));
  ScalePoint point{ranks, runs.size(), mean(rates)};
  std::set<std::uint64_t> threads;
  for (const RunDigest* run : runs) threads.insert(run->threads);
  point.threads = fmt::format("{}", fmt::join(threads, ", "));
  point.low = *std::min_element(rates.begin(), rates.end());
  point.high = *std::max_element(rates.begin(), rates.end());
  const RunDigest& first = *runs.front();
  if (runs.size() == 1 && first.ops_ci95 && !first.emulated) {
    point.low = first.ops_ci95->low;
    point.high = first.ops_ci95->high;
  }
  return point;
}

std::vector<ScalePoint> points_of(const ScalingFamily& family) {
  std::vector<ScalePoint> points;
  for (const auto& [ranks, runs] : family.by_ranks) points.push_back(point_of(ranks, runs));
  const double base = points.front().rate / static_cast<double>(points.front().ranks);
  for (ScalePoint& point : points) {
    point.efficiency = point.rate / static_cast<double>(point.ranks) / base;
  }
  return points;
}

ReportChart scaling_chart(const ScalingFamily& family, const std::vector<ScalePoint>& points,
                          std::size_t index) {
  ReportChart chart;
  chart.id = fmt::format("scaling-{}", index);
  chart.title = "Scaling, " + family.label;
  chart.x = {"ranks", "", AxisScale::logarithmic};
  chart.y = {family.unit == "op/s" ? "strict operations" : "throughput in modelled time",
             family.unit, AxisScale::logarithmic};
  ChartSeries measured{"measured"}, ideal{"ideal from the smallest run", SeriesMark::dashed};
  const ScalePoint& base = points.front();
  for (const ScalePoint& point : points) {
    const auto ranks = static_cast<double>(point.ranks);
    measured.x.push_back(ranks);
    measured.y.push_back(point.rate);
    measured.low.push_back(point.low);
    measured.high.push_back(point.high);
    ideal.x.push_back(ranks);
    ideal.y.push_back(base.rate * ranks / static_cast<double>(base.ranks));
  }
  chart.series = {std::move(measured), std::move(ideal)};
  chart.description =
      fmt::format("From {} to {} ranks; {} ranks reach {:.1f} % of the ideal.", base.ranks,
                  points.back().ranks, points.back().ranks, 100 * points.back().efficiency);
  chart.note = "Bars about a point: its 95 % interval, or the range of several runs.";
  return chart;
}

ReportTable scaling_table(const ScalingFamily& family, const std::vector<ScalePoint>& points) {
  ReportTable table{
      "Efficiency, " + family.label,
      {"ranks", "threads a rank", "runs", "rate [" + family.unit + "]", "speed-up", "efficiency"},
      {}};
  for (const ScalePoint& point : points) {
    table.rows.push_back({fmt::format("{}", point.ranks), point.threads,
                          fmt::format("{}", point.runs), number_cell(point.rate),
                          number_cell(point.rate / points.front().rate),
                          fmt::format("{:.1f} %", 100 * point.efficiency)});
  }
  return table;
}

}  // namespace

ReportSection scaling_section(const RunSet& runs) {
  ReportSection section;
  section.title = "Scaling";
  const auto families = families_of(runs);
  for (std::size_t i = 0; i < families.size(); ++i) {
    const auto points = points_of(families[i]);
    section.charts.push_back(scaling_chart(families[i], points, i));
    section.tables.push_back(scaling_table(families[i], points));
  }
  section.paragraphs = {
      families.empty()
          ? "No two runs differ in their number of ranks alone, at the same work per step (strong "
            "scaling) or per rank (weak scaling)."
          : "Efficiency is the rate per rank against the smallest run of the same family, not "
            "against a serial program."};
  return section;
}

}  // namespace heteroperf
