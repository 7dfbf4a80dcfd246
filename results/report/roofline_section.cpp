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

/// Operations that the memory's rate allows at an intensity, up to the peak.
double ceiling(const PeakEvent& peak, double ops_per_byte) {
  const auto& bytes_per_s = peak.memory_bytes_per_second;
  return bytes_per_s ? std::min(peak.ops_per_second, ops_per_byte * *bytes_per_s)
                     : peak.ops_per_second;
}

ReportChart roofline_chart(const PeakEvent& peak, const std::vector<RooflinePoint>& points,
                           const std::string& id) {
  ReportChart chart{id + "roofline",
                    "Roofline",
                    ChartKind::lines,
                    {"operations per byte that must move", "op/byte", AxisScale::logarithmic},
                    {"strict operations", "op/s", AxisScale::logarithmic}};
  const auto& bytes_per_s = peak.memory_bytes_per_second;
  const RooflinePoint& first = points.front();
  // The roof's knee, the *ridge*, is where both ceilings meet. Without a rate of the memory the
  // roof is flat. The axis reaches a factor beyond the points and the ridge on either side.
  constexpr double margin = 8;
  const double ridge = bytes_per_s ? peak.ops_per_second / *bytes_per_s : first.ops_per_byte;
  const auto [low, high] = std::minmax(first.ops_per_byte, ridge);
  ChartSeries roof{"measured ceiling"};
  for (const double x : {low / margin, ridge, high * margin}) {
    if (bytes_per_s || x != ridge) roof.add(x, ceiling(peak, x));
  }
  chart.series.push_back(std::move(roof));
  for (const RooflinePoint& point : points) {
    chart.series.push_back(
        {point.name, SeriesMark::points, {point.ops_per_byte}, {point.ops_per_s}});
  }
  chart.description = fmt::format(
      "Ceilings as measured in this run: {}{}. With its waits {} reaches {:.1f} % of its ceiling.",
      with_prefix(peak.ops_per_second, operations_unit),
      bytes_per_s ? " and " + with_prefix(*bytes_per_s, "byte/s") : std::string(), first.name,
      100 * first.ops_per_s / ceiling(peak, first.ops_per_byte));
  chart.note =
      "Bytes are the least that a step must move: activations written and read once, weights read "
      "by both passes and written, gradients and optimizer states read and written.";
  if (bytes_per_s) {
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

}  // namespace

ReportSection roofline_section(const ReportRun& run, const std::string& id) {
  ReportSection section{"Roofline"};
  const auto peak = measured_peak(run.journal);
  if (run.validity.severity == Severity::invalid) {
    section.paragraphs = {"An invalid run has no operations per second."};
  } else if (emulated_devices(run.journal) != nullptr) {
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
