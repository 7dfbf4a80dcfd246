// Finds the scaling curves among any runs, without a sweep's index to tell which belong together.
// Two runs are points of one curve when they agree in everything but what grows. *Strong* scaling
// keeps the samples of a step, *weak* scaling the samples of a step per rank. Of a plan exactly one
// degree may grow with the ranks: data, pipeline or tensor parallelism. So each run is put into a
// *family* for every kind of scaling and every growing degree that fits it, and a family with at
// least two scales gives a chart and a table.
//
// The ideal is linear growth from the smallest run of a family, which is a parallel run itself and
// no serial program.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "results/comparison/run_digest.hpp"
#include "results/report/runs_part.hpp"
#include "results/scaling/scale_curve.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

/// The runs of one rank count in a curve.
struct ScalePoint {
  std::uint64_t ranks = 0;
  Repetitions runs = {};
  std::string threads = {};  ///< per rank; "1, 2" where runs differ
  RepeatedRate rate = {};
  std::optional<RepeatedRate> efficiency = {};  ///< rate per device against the smallest
};

enum class ScalingKind { strong, weak };

/// Ranks and their threads, and the runs with these.
using ScaleRuns = std::map<std::pair<std::uint64_t, std::string>, Repetitions>;

/// The settings that are equal in all runs of a family, by names for the reader.
using FamilyTraits = RecordLeaves;
/// The runs of each family by its label for the reader and its traits, which tell families of one
/// label apart.
using Families = std::map<std::pair<std::string, FamilyTraits>, ScaleRuns>;

/// One curve of a family, under a heading that tells it from the others.
struct ScalingCurve {
  std::string label, unit;
  std::vector<ScalePoint> points;  ///< the smallest first
};

/// Operations per second, or samples per second of modelled time where devices are emulated, as
/// their real time says nothing about real devices.
std::optional<double> rate_of(const RunDigest& run) {
  const auto rate = run.emulated ? run.modelled_samples_per_s : run.number("ops_per_second");
  return rate && *rate > 0 ? rate : std::nullopt;
}

/// Work of a step that stays the same from run to run; nothing where the record does not say.
std::optional<std::string> fixed_work(const RunDigest& run, ScalingKind kind) {
  if (!run.samples_per_step || run.ranks == 0) return std::nullopt;
  if (kind == ScalingKind::strong) return fmt::format("{} samples a step", *run.samples_per_step);
  // Samples that cannot be divided evenly have no work per rank to keep.
  if (*run.samples_per_step % run.ranks != 0) return std::nullopt;
  return fmt::format("{} samples a step and rank", *run.samples_per_step / run.ranks);
}

/// Degrees of pipeline, tensor and data parallelism, and schedule of a plan. One degree, by its
/// place, grows with the ranks of a curve.
constexpr std::size_t degree_count = 3, data_degree = 2;
struct PlanShape {
  std::array<std::string, degree_count> degrees;
  std::string schedule;
};

/// The parts of a plan's summary, "pp 2 x tp 1 x dp 1..3, zb-h1, 8 micro-batches of 4"; nothing of
/// a record without one.
std::optional<PlanShape> plan_shape(const RunDigest& run) {
  constexpr std::string_view by = " x ", part = ", ";
  const std::string summary = run.leaf("/plan_summary");
  const std::size_t tensor = summary.find(by), data = summary.find(by, tensor + by.size()),
                    schedule = summary.find(part),
                    rest = summary.find(part, schedule + part.size());
  if (data >= schedule || rest == std::string::npos) return std::nullopt;
  const auto between = [&](std::size_t from, std::size_t to) {
    return summary.substr(from, to - from);
  };
  return PlanShape{
      {between(0, tensor), between(tensor + by.size(), data), between(data + by.size(), schedule)},
      between(schedule + part.size(), rest)};
}

/// The degrees that stay, "pp 2 x tp 1"; nothing where the plan cannot be part of such a curve.
std::optional<std::string> fixed_degrees(const std::optional<PlanShape>& shape,
                                         std::size_t growing) {
  if (!shape) return growing == data_degree ? std::optional<std::string>("") : std::nullopt;
  auto fixed = shape->degrees;
  const auto end = std::remove(fixed.begin(), fixed.end(), shape->degrees[growing]);
  return fmt::format("{}", fmt::join(fixed.begin(), end, " x "));
}

/// Two runs are points of one curve where they have this in common: all of the key that compare and
/// rank go by except for the scale and the work of a step, which grow, and how the plan was asked
/// to be.
FamilyTraits traits_of(const RunDigest& run) {
  constexpr const char* plan_settings[] = {"/config/plan/recompute", "/config/plan/zero_stage",
                                           "/config/plan/sequence_parallel"};
  FamilyTraits traits{{"machines", scaled_machines(run)},
                      {"data", run.data_fingerprint},
                      {"graph", run.graph_hash},
                      {"unit", run.unit},
                      {"emulated", run.emulated ? "yes" : "no"},
                      {"transport", run.leaf("/scale/transport")}};
  for (const KeyField& field : run.key) {
    if (field.name != "workload.hash" && field.name != "scale") traits[field.name] = field.value;
  }
  for (const auto& [path, value] : run.workload_leaves) {
    if (path.starts_with("/workload/config/")) traits[path] = value;
  }
  for (const char* path : plan_settings) traits[path] = run.leaf(path);
  return traits;
}

/// Does nothing for a run that cannot be part of such a curve.
void add_to_families(const RunDigest& run, ScalingKind kind, std::size_t growing,
                     Families& families) {
  const std::optional<PlanShape> shape = plan_shape(run);
  const auto work = fixed_work(run, kind);
  const auto degrees = fixed_degrees(shape, growing);
  if (!work || !degrees) return;
  FamilyTraits traits = traits_of(run);
  traits["schedule"] = shape ? shape->schedule : "";
  const std::string classes =  // every class once, in alphabetical order: "cpu + cuda"
      joined(run.class_counts(), " + ", [](const auto& entry) { return entry.first; });
  const std::string label = fmt::format(
      "{}: {} {} {} on {}, {}{}{}", kind == ScalingKind::strong ? "strong" : "weak", run.workload,
      run.size, run.precision, classes, *work, degrees->empty() ? "" : ", ", *degrees);
  families[{label, std::move(traits)}][{run.ranks, threads_text(run)}].push_back(&run);
}

/// The families of all runs with a rate, except invalid runs. A run is in several of them: alone in
/// most, and with others where they form a curve.
Families all_families_of(const RunSet& runs) {
  Families families;
  for (const RunDigest& run : runs.runs) {
    if (!rate_of(run) || run.severity == "invalid") continue;
    for (const ScalingKind kind : {ScalingKind::strong, ScalingKind::weak}) {
      for (std::size_t growing = 0; growing < degree_count; ++growing) {
        add_to_families(run, kind, growing, families);
      }
    }
  }
  return families;
}

double known_rate(const RunDigest& run) { return *rate_of(run); }

/// Several runs have the interval run to run, one run its own.
void give_rate(ScalePoint& point) {
  std::vector<double> rates;
  std::set<std::string> threads;
  for (const RunDigest* run : point.runs) {
    rates.push_back(known_rate(*run));
    threads.insert(threads_text(*run));
  }
  const RunDigest& last = *point.runs.back();
  point.rate = repeated_rate(rates, last.emulated ? std::nullopt : last.ci95("ops_per_second"));
  point.threads = fmt::format("{}", fmt::join(threads, ", "));
}

/// The points of a curve, the smallest first. Scales with equally many ranks and other threads form
/// one point of a divided curve.
std::vector<ScalePoint> points_of(const ScaleRuns& scales, const ScaleCurve& curve) {
  std::vector<ScalePoint> points;
  for (const std::size_t member : curve.members) {
    const auto& [scale, runs] = *std::next(scales.begin(), static_cast<std::ptrdiff_t>(member));
    if (points.empty() || points.back().ranks != scale.first) points.push_back({scale.first});
    points.back().runs.insert(points.back().runs.end(), runs.begin(), runs.end());
  }
  for (ScalePoint& point : points) {
    give_rate(point);
    if (curve.divided) continue;
    point.efficiency = &point == &points.front()
                           ? RepeatedRate{1, std::nullopt}
                           : efficiency_against(points.front().runs, point.runs, known_rate);
  }
  return points;
}

/// A trait in words: machines as they are, data by their description where the record of a run has
/// one and else by their hash, any other by the last part of its name and its value.
std::string trait_text(const std::string& name, const std::string& value, const RunDigest& run) {
  if (name == "machines") return value;
  if (name != "data") return fmt::format("{} {}", name.substr(name.rfind('/') + 1), value);
  const std::string described = leaf_at(run.workload_leaves, "/workload/data");
  return described.empty() ? "data " + value : described;
}

/// ", 2 x AMD EPYC 7763, 256 CPUs": what tells a family from others of its label.
std::string distinction(const Families::value_type& family, const Families& families) {
  constexpr std::size_t most_told = 3;
  const auto& [label, traits] = family.first;
  std::vector<const FamilyTraits*> alike;
  for (const auto& [key, unused] : families) {
    if (key.first == label) alike.push_back(&key.second);
  }
  std::string text;
  std::size_t count = 0;
  for (const std::string& name : differing_paths(alike)) {
    const std::string value = leaf_at(traits, name);
    if (value.empty()) continue;
    // More would make no readable heading.
    if (++count > most_told) return text + ", …";
    text += ", " + trait_text(name, value, *family.second.begin()->second.front());
  }
  return text;
}

/// All curves of all families.
std::vector<ScalingCurve> curves_of(const RunSet& runs) {
  std::vector<ScalingCurve> list;
  const Families families = all_families_of(runs);
  for (const auto& family : families) {
    const ScaleRuns& scales = family.second;
    std::vector<ScaleMember> members;
    for (const auto& [scale, unused] : scales) members.push_back({scale.first, scale.second});
    for (const ScaleCurve& curve : scale_curves(members)) {
      std::vector<ScalePoint> points = points_of(scales, curve);
      const std::string& threads = points.front().threads;
      const std::string divided =
          curve.divided ? ", threads a rank differ"
                        : fmt::format(", {} thread{} a rank", threads, threads == "1" ? "" : "s");
      const bool emulated = points.front().runs.front()->emulated;
      list.push_back({family.first.first + distinction(family, families) + divided,
                      emulated ? "sample/s" : "op/s", std::move(points)});
    }
  }
  return list;
}

/// The range of a point's bar; none where there is no useful interval.
Interval bar_of(const RepeatedRate& rate) {
  return rate.ci95 && is_useful(*rate.ci95) ? *rate.ci95 : Interval{rate.value, rate.value};
}

/// Both axes are logarithmic, so ideal scaling is a straight line and curves of any size compare.
ReportChart scaling_chart(const ScalingCurve& curve, std::size_t index) {
  const std::vector<ScalePoint>& points = curve.points;
  ReportChart chart{fmt::format("scaling-{}", index),
                    "Scaling, " + curve.label,
                    ChartKind::lines,
                    {"ranks", "", AxisScale::logarithmic},
                    {curve.unit == "op/s" ? "strict operations" : "throughput in modelled time",
                     curve.unit, AxisScale::logarithmic}};
  ChartSeries measured{"measured"}, ideal{"ideal from the smallest run", SeriesMark::dashed};
  const ScalePoint& base = points.front();
  for (const ScalePoint& point : points) {
    const auto ranks = static_cast<double>(point.ranks);
    measured.add(ranks, point.rate.value);
    measured.low.push_back(bar_of(point.rate).low);
    measured.high.push_back(bar_of(point.rate).high);
    ideal.add(ranks, base.rate.value * ranks / static_cast<double>(base.ranks));
  }
  chart.series = {std::move(measured)};
  chart.description = fmt::format("From {} to {} ranks, {:.2f} times as fast", base.ranks,
                                  points.back().ranks, points.back().rate.value / base.rate.value);
  if (const auto& efficiency = points.back().efficiency) {
    chart.series.push_back(std::move(ideal));
    chart.description += fmt::format(": {:.1f} % of the ideal", 100 * efficiency->value);
  }
  chart.description += '.';
  chart.note =
      "A point is the geometric mean of its runs, the bar about it its 95 % interval, run to run; "
      "of a single run that run's own. No bar: no useful interval.";
  return chart;
}

/// The values of the chart with their intervals, and a note where ranks share CPUs.
Table scaling_table(const ScalingCurve& curve) {
  Table table = report_table("Efficiency, " + curve.label,
                             {"ranks", "threads a rank", "runs", "rate [95 % CI]", "speed-up",
                              "note", "efficiency [95 % CI]"});
  const double base = curve.points.front().rate.value;
  for (const ScalePoint& point : curve.points) {
    const std::size_t runs = point.runs.size();
    const auto& efficiency = point.efficiency;
    table.rows.push_back(
        {fmt::format("{}", point.ranks), point.threads, fmt::format("{}", runs),
         with_interval(point.rate.value, point.rate.ci95, runs, curve.unit),
         number_cell(point.rate.value / base), crowding_text(*point.runs.back()),
         efficiency ? percent_with_interval(efficiency->value, efficiency->ci95, runs) : "-"});
  }
  return table;
}

}  // namespace

ReportSection scaling_section(const RunSet& runs) {
  ReportSection section{"Scaling"};
  for (const ScalingCurve& curve : curves_of(runs)) {
    section.charts.push_back(scaling_chart(curve, section.charts.size()));
    section.tables.push_back(scaling_table(curve));
  }
  section.paragraphs = {
      section.charts.empty()
          ? "No two runs on the same machines differ in their number of ranks alone, at the same "
            "work per step (strong scaling) or per rank (weak scaling)."
          : "Efficiency is the rate per rank against the smallest run of the same family, not "
            "against a serial program. Where no two rank counts have equally many threads a rank, "
            "a machine is divided otherwise, and there is a speed-up alone."};
  return section;
}

}  // namespace heteroperf
