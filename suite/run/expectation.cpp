// Says before the first step how long a run will take, while the user can still change --duration.
// A plan's prediction gives the modelled seconds of a step. Emulated devices sleep out the rest of
// their modelled time, so they need real cores for only a part of it; where the machine is too slow
// even for that, modelled time is stretched until it keeps up, and the estimate stretches with it.
//
// The numbers here are rough by intention: they choose between "20 s" and "5 min", and nothing is
// derived from them.
#include "suite/run/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "results/text/number_text.hpp"
#include "suite/training/group_trainer.hpp"
#include "suite/training/measure_phases.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

constexpr double enough_steps = 20;  // for an interval over sub-windows
/// Training reaches about this share of the rate of large products; emulated devices may use this
/// share of the cores.
constexpr double usual_share = 0.6, emulation_share = 0.5;

std::string duration_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  const auto whole = std::llround(seconds);
  return fmt::format("{} min {} s", whole / 60, whole % 60);
}

/// Rounded up to two digits.
double round_up(double seconds) {
  const double unit = std::pow(10, std::floor(std::log10(seconds)) - 1);
  return std::ceil(seconds / unit) * unit;
}

/// Wall seconds of a step: emulated devices stretch modelled time until the machine keeps up.
double wall_step_s(const PreparedRun& run, double mm_ops_per_second) {
  const double modelled_s = run.plan->prediction->step_time_s;
  if (!run.plan->emulated) return modelled_s;
  if (run.config.pace.dilation > 0) return modelled_s * run.config.pace.dilation;
  if (mm_ops_per_second <= 0) return modelled_s;
  const std::uint64_t samples = run.plan->plan.samples_per_step();
  const double needed_s =
      strict_train_ops(run.workload.graph, usual_extent(run.workload.graph, samples)).to_double() /
      (usual_share * mm_ops_per_second);
  return std::max(modelled_s, needed_s / emulation_share);
}

}  // namespace

std::string course_text(const PreparedRun& run) {
  const MeasureConfig& measure = run.config.measure;
  const std::string length =
      measure.steps > 0 ? plural(measure.steps, "step") : duration_text(measure.duration_s);
  std::string text = fmt::format("{} {} on {}: set-up", run.workload.name, run.workload.size,
                                 plural(run.placement.ranks, "rank"));
  if (run.groups > 0) return text + fmt::format(", a search of {}", length);
  if (measure.steps == 0) text += fmt::format(", {} steps of warm-up", measure.warmup_steps);
  return text + fmt::format(", {} measured, {} evaluated", length,
                            samples_text(final_extent(run.config, run.workload, &*run.plan)));
}

std::vector<std::string> prediction_lines(const PreparedRun& run, double mm_ops_per_second) {
  if (!run.plan || !run.plan->prediction) return {};
  const double step_s = wall_step_s(run, mm_ops_per_second);
  const MeasureConfig& measure = run.config.measure;
  const auto warmup = static_cast<double>(warmup_steps_of(run.config));
  const auto before = static_cast<double>(steps_before(run.config));
  // A run by time does as many steps as begin within it.
  const double measured = measure.steps == 0 ? std::ceil(measure.duration_s / step_s)
                                             : static_cast<double>(measure.steps) - before - warmup;
  std::vector<std::string> lines{fmt::format(
      "one step takes about {} (predicted): {:.0f} of warm-up and {:.0f} measured take about {}",
      duration_text(step_s), warmup, measured, duration_text(step_s * (warmup + measured)))};
  if (measured < enough_steps) {
    lines.push_back(fmt::format(
        "{:.0f} measured of {:.0f} that tell enough: --duration {:g} has them, or --steps {:.0f}",
        measured, enough_steps, round_up(step_s * enough_steps),
        before + enough_steps + static_cast<double>(measure.warmup_steps)));
  }
  return lines;
}

}  // namespace heteroperf
