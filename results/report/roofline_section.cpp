// The roofline model bounds the rate of a program by two ceilings of its machine: the peak rate of
// operations, and the rate of the memory times the *intensity*, the operations per byte that must
// move. On axes of logarithms the ceilings form a roof, and the gap between a point and the roof is
// what a better program could gain. Both ceilings were measured in the run itself. The bytes are
// the least that a step must move, reckoned from the model and the plan and not measured, so the
// true traffic of a program is larger and its true intensity smaller.
//
// There are two points: the run with all its waits, and the ranks while they compute.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "results/record/graph_book.hpp"
#include "results/report/report_run.hpp"
#include "results/text/number_text.hpp"
#include "workloads/graph_memory.hpp"

namespace heteroperf {
namespace {

/// The bytes that a step must move at least, over all ranks: every activation written once and read
/// once; weights read by both passes, written once; gradients and optimizer states read and
/// written.
std::optional<double> bytes_per_step(const ReportRun& run) {
  const auto* workload = run.journal.first<WorkloadEvent>();
  if (workload == nullptr || !workload->samples_per_step) return std::nullopt;
  const GraphBook graphs(run.journal);
  const ModelGraph* graph = graphs.of(std::nullopt);
  if (graph == nullptr) return std::nullopt;
  const Precision precision = parse_precision(workload->precision);
  const double activations =
      activation_bytes(*graph, *workload->samples_per_step, precision).value() * 2.0;
  double states = 0;
  for (const RankPlanEvent* plan : run.journal.all<RankPlanEvent>()) {
    states += 3.0 * static_cast<double>(plan->weights_bytes) +
              2.0 * static_cast<double>(plan->gradients_bytes + plan->optimizer_bytes);
  }
  return states > 0 ? std::optional(activations + states) : std::nullopt;
}

struct RooflinePoint {
  std::string name;
  double ops_per_byte, ops_per_s;
};

/// The second point needs the times of every rank; it is left out where one has not reported.
std::vector<RooflinePoint> points_of(const ReportRun& run, double step_bytes) {
  const RunSummary& summary = run.summary;
  const auto& per_step = summary.operations.per_step_strict;
  std::vector<RooflinePoint> points;
  if (!per_step) return points;
  const double intensity = per_step->to_double() / step_bytes;
  if (summary.ops_per_second) {
    points.push_back({"the run", intensity, summary.ops_per_second->value});
  }
  double computing = 0;
  for (const RankUse& use : summary.plan.ranks) {
    if (!use.time || use.time->split.compute_s <= 0) return points;
    computing += use.time->strict.to_double() / use.time->split.compute_s;
  }
  if (computing > 0) points.push_back({"while computing", intensity, computing});
  return points;
}

/// Operations that the memory's rate allows at each intensity, up to the peak.
/// The roof from `low` to `high`; its knee, the *ridge*, is where both ceilings meet. Without a
/// rate of the memory it is flat.
ChartSeries roof(double peak, std::optional<double> bytes_per_s, double low, double high) {
  ChartSeries series{"measured ceiling", SeriesMark::line};
  if (bytes_per_s) {
    const double ridge = peak / *bytes_per_s;
    series.x = {low, std::clamp(ridge, low, high), high};
    for (const double x : series.x) series.y.push_back(std::min(peak, x * *bytes_per_s));
  } else {
    series.x = {low, high};
    series.y = {peak, peak};
  }
  return series;
}

ReportChart roofline_chart(const PeakEvent& peak, const std::vector<RooflinePoint>& points,
                           const std::string& id) {
  ReportChart chart{id + "roofline",
                    "Roofline",
                    ChartKind::lines,
                    {"operations per byte that must move", "op/byte", AxisScale::logarithmic},
                    {"strict operations", "op/s", AxisScale::logarithmic}};
  double low = points.front().ops_per_byte, high = low;
  if (peak.memory_bytes_per_second) {
    const double ridge = peak.ops_per_second / *peak.memory_bytes_per_second;
    low = std::min(low, ridge);
    high = std::max(high, ridge);
  }
  // The axis reaches this factor beyond the points and the ridge on either side.
  constexpr double margin = 8;
  chart.series.push_back(
      roof(peak.ops_per_second, peak.memory_bytes_per_second, low / margin, high * margin));
  for (const RooflinePoint& point : points) {
    chart.series.push_back(
        {point.name, SeriesMark::points, {point.ops_per_byte}, {point.ops_per_s}});
  }
  const RooflinePoint& first = points.front();
  chart.description = fmt::format(
      "Ceilings as measured in this run: {}{}. With its waits {} reaches {:.1f} % of its ceiling.",
      with_prefix(peak.ops_per_second, operations_unit),
      peak.memory_bytes_per_second ? " and " + with_prefix(*peak.memory_bytes_per_second, "byte/s")
                                   : std::string(),
      first.name,
      100 * first.ops_per_s /
          std::min(peak.ops_per_second, peak.memory_bytes_per_second
                                            ? first.ops_per_byte * *peak.memory_bytes_per_second
                                            : peak.ops_per_second));
  chart.note =
      "Bytes are the least that a step must move: activations written and read once, weights read "
      "by both passes and written, gradients and optimizer states read and written.";
  if (peak.memory_bytes_per_second) {
    chart.note +=
        " The memory's rate is that of a triad on arrays of 4 times the last-level cache, all "
        "ranks at once.";
  } else if (!peak.memory_reason.empty()) {
    chart.note += fmt::format(" The memory's rate is not told: {}.", peak.memory_reason);
  } else {
    chart.note += " The memory's rate was not measured in this run, so only the peak is drawn.";
  }
  return chart;
}

bool emulated(const ReportRun& run) {
  const auto* scale = run.journal.last<ScaleEvent>();
  return scale != nullptr && std::any_of(scale->devices.begin(), scale->devices.end(),
                                         [](const DeviceCount& count) { return count.emulated; });
}

}  // namespace

ReportSection roofline_section(const ReportRun& run, const std::string& id) {
  ReportSection section{"Roofline"};
  const auto peak = measured_peak(run.journal);
  if (run.validity.severity == Severity::invalid) {
    section.paragraphs = {"An invalid run has no operations per second."};
  } else if (emulated(run)) {
    section.paragraphs = {"The devices are emulated: this machine's ceilings are not theirs."};
  } else if (!peak || !(peak->ops_per_second > 0)) {
    section.paragraphs = {
        "The peak was not measured (measure.peak_s is 0, or the run ended "
        "before)."};
  } else if (const auto bytes = bytes_per_step(run); !bytes) {
    section.paragraphs = {
        "The journal does not tell one model and its memory per rank, so the "
        "bytes of a step are not known."};
  } else if (const auto points = points_of(run, *bytes); points.empty()) {
    section.paragraphs = {"No step was measured."};
  } else {
    section.charts.push_back(roofline_chart(*peak, points, id));
  }
  return section;
}

}  // namespace heteroperf
