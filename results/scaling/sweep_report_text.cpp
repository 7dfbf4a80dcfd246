#include <fmt/format.h>

#include "results/number_text.hpp"
#include "results/scaling/sweep_report.hpp"
#include "results/text_escapes.hpp"

namespace heteroperf {
namespace {

std::string rate_text(const RepeatedRate& rate, const std::string& unit) {
  const Scaled scaled = scale_of(rate.value);
  std::string text = fmt::format("{:.4g}", rate.value / scaled.factor);
  if (rate.ci95) {
    text += fmt::format(" ± {:.2g}", (rate.ci95->high - rate.ci95->low) / 2 / scaled.factor);
  }
  return text + ' ' + prefixed(scaled, unit);
}

std::string efficiency_text(const SweepRow& row) {
  if (!row.efficiency) return "-";
  std::string text = fmt::format("{:.1f} %", 100 * row.efficiency->value);
  if (const auto& ci95 = row.efficiency->ci95) {
    text += fmt::format(" [{:.1f}, {:.1f}]", 100 * ci95->low, 100 * ci95->high);
  }
  return text;
}

std::string row_text(const SweepReport& report, const SweepRow& row) {
  return fmt::format("  {:<28} {:>7} {:>4} {:>24} {:>26} {:>11} {:>8} {:>22}  {:<10} {}\n",
                     utf8_text(point_text(report.index.points[row.point])), row.devices, row.runs,
                     rate_text(row.throughput, row.unit),
                     rate_text(row.ops_per_second, operations_unit),
                     fmt::format("{:.4g} s", row.step_time_s),
                     row.speedup ? fmt::format("{:.3f}", *row.speedup) : "-", efficiency_text(row),
                     row.scaling.empty() ? "-" : row.scaling, row.validity);
}

}  // namespace

std::string sweep_report_console_text(const SweepReport& report) {
  const SweepIndex& index = report.index;
  std::string text =
      fmt::format("{} of {} runs are complete: {} point{}, {} repetition{} each, seeds {} to {}\n",
                  index.count(SweepRunState::complete), index.runs.size(), index.points.size(),
                  index.points.size() == 1 ? "" : "s", index.repeats, index.repeats == 1 ? "" : "s",
                  index.first_seed, index.first_seed + index.repeats - 1);
  const std::string* workload = nullptr;
  for (const SweepRow& row : report.rows) {
    if (workload == nullptr || *workload != row.workload) {
      text += fmt::format("{}\n  {:<28} {:>7} {:>4} {:>24} {:>26} {:>11} {:>8} {:>22}  {:<10} {}\n",
                          utf8_text(row.workload), "point", "devices", "runs", "throughput", "OPS",
                          "step", "speedup", "efficiency [95 % CI]", "scaling", "validity");
    }
    workload = &row.workload;
    text += row_text(report, row);
  }
  for (const UnscoredRun& one : report.unscored) {
    text += fmt::format("without a score: {} ({}){}\n", utf8_text(one.folder), one.state,
                        one.reason.empty() ? "" : ": " + utf8_text(one.reason));
  }
  return text + "sweep " + report.folder.string() + '\n';
}

}  // namespace heteroperf
