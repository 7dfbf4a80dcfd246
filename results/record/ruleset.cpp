// The ruleset: one table of rules by which a run is judged. A rule is a predicate that returns a
// *finding* (the expected and the actual state) where the run breaks it, and nothing where it
// holds. Each rule has a severity, and a run's class is the worst of its broken rules: without any
// it is `closed` and may be ranked, else `review` (somebody must look at it first), `open` (sound,
// but not comparable, as a quick run) or `invalid` (it has no score). The rules use the journal and
// the summary alone, so that a reader of a stranger's folder comes to the same verdict. A rule that
// changes needs a new version of the ruleset, which every record names.
#include "results/record/ruleset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "results/record/line_rules.hpp"

namespace heteroperf {
namespace {

constexpr double closed_measured_s = 300;
constexpr double steady_share = 0.5;  // a share of the measured phase
constexpr double peak_tolerance = 1.05;
constexpr double largest_overhead = 0.01;
constexpr double split_tolerance = 0.01;  // a share of a rank's wall time
constexpr double largest_late_share = 0.01;
constexpr double largest_substituted_share = 0.01;
constexpr double floor_tolerance = 0.02;     // a share of a known floor
constexpr double floor_standard_errors = 4;  // a search chose the best of many trials

/// A run that met an error has no result. An interrupted one may be sound as far as it came, but it
/// is not what was asked for.
template <RunStatus status>
Verdict ended(const Journal&, const RunSummary& summary) {
  if (summary.status != status) return {};
  return Finding{"status complete", fmt::format("{}: {}", to_string(status), summary.reason)};
}

/// Without its seed nobody can tell a repetition from a copy.
Verdict seeds(const Journal& journal, const RunSummary&) {
  const auto* workload = journal.first<WorkloadEvent>();
  if (workload == nullptr) return {};
  for (const auto& [name, seed] : workload->seeds) {
    if (name == "run") return {};
  }
  return Finding{"the seed of the run", "none is recorded"};
}

/// On each rank the operators that ran must be those of the graph and those that were recomputed on
/// purpose; any other number means that something else was trained.
Verdict executed_operations(const Journal& journal, const RunSummary&) {
  for (const ObservedEvent* event : journal.all<ObservedEvent>()) {
    if (event->executed == event->strict + event->recompute) continue;
    return Finding{fmt::format("executed = strict + recompute = {} on rank {}",
                               (event->strict + event->recompute).to_string(), event->rank),
                   event->executed.to_string()};
  }
  return {};
}

/// Each rank counts its own part of the model; together they must make the step's count.
Verdict observed_strict(const Journal& journal, const RunSummary&) {
  using StepKey = std::tuple<std::int32_t, std::optional<std::uint64_t>, std::uint64_t>;
  std::map<StepKey, Ops> sums;
  for (const ObservedEvent* event : journal.all<ObservedEvent>()) {
    sums[{event->group, event->trial, event->n}] += event->strict;
  }
  for (const StepEvent* step : journal.all<StepEvent>()) {
    const auto sum = sums.find({step->group, step->trial, step->n});
    if (sum != sums.end() && sum->second != step->ops_strict) {
      return Finding{fmt::format("the ranks' strict operations of step {} add up to {}", step->n,
                                 step->ops_strict.to_string()),
                     sum->second.to_string()};
    }
  }
  return {};
}

/// Every rank is observed once, as ranks run different parts of the model.
Verdict not_observed(const Journal& journal, const RunSummary& summary) {
  const auto* scale = journal.last<ScaleEvent>();
  if (scale == nullptr || summary.total_steps == 0) return {};
  std::set<std::int32_t> ranks;
  for (const ObservedEvent* event : journal.all<ObservedEvent>()) ranks.insert(event->rank);
  if (static_cast<std::int64_t>(ranks.size()) >= scale->ranks) return {};
  return Finding{fmt::format("one observed step on each of {} ranks", scale->ranks),
                 fmt::format("on {}", ranks.size())};
}

/// An operator without a formula may do any amount of work.
Verdict unknown_operators(const Journal& journal, const RunSummary&) {
  for (const ObservedEvent* event : journal.all<ObservedEvent>()) {
    if (event->unknown.empty()) continue;
    return Finding{"only tensor operators of the fixed list",
                   fmt::format("{} on rank {}", event->unknown.front(), event->rank)};
  }
  return {};
}

/// Ranks that hold the same share of a model at the same step must hold equal parameters.
Verdict checksums(const Journal& journal, const RunSummary&) {
  using Key = std::tuple<std::int32_t, std::optional<std::uint64_t>, std::uint64_t, std::string>;
  std::map<Key, const ChecksumEvent*> first;
  for (const ChecksumEvent* event : journal.all<ChecksumEvent>()) {
    const ChecksumEvent* known =
        first.try_emplace({event->group, event->trial, event->n, event->share}, event)
            .first->second;
    if (known->fingerprint == event->fingerprint) continue;
    return Finding{fmt::format("{} on rank {} of {}{}{} after {} steps", known->fingerprint,
                               known->rank, training_name(event->group, event->trial),
                               event->share.empty() ? "" : ", ", event->share, event->n),
                   fmt::format("{} on rank {}", event->fingerprint, event->rank)};
  }
  return {};
}

/// A rate beyond the measured peak is impossible, but for a small tolerance of the measurement. Two
/// rules use it: other load may have kept a peak below what the machine can do (`loaded`), and then
/// the finding is only to be reviewed.
template <bool loaded>
Verdict above_peak(const Journal& journal, const RunSummary& summary) {
  if (!summary.utilization || *summary.utilization <= peak_tolerance) return {};
  const PeakEvent peak = *measured_peak(journal);
  if (loaded !=
      (peak.other_load.value_or(0) > largest_other_load || other_load(journal, summary))) {
    return {};
  }
  return Finding{fmt::format("at most {:.2f} times the measured peak of {:.4g}", peak_tolerance,
                             peak.ops_per_second),
                 fmt::format("{:.4g}", *summary.utilization * peak.ops_per_second)};
}

Verdict peak_not_measured(const Journal& journal, const RunSummary&) {
  const auto peak = measured_peak(journal);
  if (peak && std::isfinite(peak->ops_per_second) && peak->ops_per_second > 0) return {};
  return Finding{"a measured peak to compare with",
                 peak ? fmt::format("{:.4g}", peak->ops_per_second) : "none"};
}

/// Processors have another peak in each precision.
Verdict peak_precision(const Journal& journal, const RunSummary&) {
  const auto* workload = journal.first<WorkloadEvent>();
  const auto peak = measured_peak(journal);
  if (workload == nullptr || !peak || peak->precision == workload->precision) return {};
  return Finding{"a peak measured in " + workload->precision, peak->precision};
}

/// Seconds that no part accounts for may hide anything.
Verdict time_split(const Journal&, const RunSummary& summary) {
  for (const RankUse& use : summary.plan.ranks) {
    if (!use.time) continue;
    const StepSplit& split = use.time->split;
    const double parts_s =
        split.compute_s + split.communication_s + split.bubble_s + split.data_s + split.other_s;
    if (std::fabs(parts_s - use.time->wall_s) <= split_tolerance * use.time->wall_s) continue;
    return Finding{fmt::format("the parts of rank {}'s time add up to its {:.6g} s within {:.0f} %",
                               use.rank, use.time->wall_s, 100 * split_tolerance),
                   fmt::format("{:.6g} s", parts_s)};
  }
  return {};
}

/// Emulated devices that miss their modelled times do not show what was modelled.
Verdict late(const Journal&, const RunSummary& summary) {
  const auto& pacing = summary.plan.pacing;
  if (!pacing || pacing->late_fraction() <= largest_late_share) return {};
  return Finding{fmt::format("at most {:.0f} % of the emulated operations late by more than 1 % of "
                             "a step",
                             100 * largest_late_share),
                 fmt::format("{:.2f} % of {}, the worst by {:.4g} s", 100 * pacing->late_fraction(),
                             pacing->operations, pacing->worst_lateness_s)};
}

/// An emulated class of devices could not have held more than its memory.
Verdict above_memory(const Journal&, const RunSummary& summary) {
  for (const RankUse& use : summary.plan.ranks) {
    const std::size_t rank = use.rank;
    if (!use.plan || !use.plan->limit_bytes || rank >= summary.peak_bytes.size()) continue;
    if (summary.peak_bytes[rank] <= *use.plan->limit_bytes) continue;
    return Finding{fmt::format("at most {} bytes on rank {}, {}", *use.plan->limit_bytes, use.rank,
                               use.plan->device_class),
                   std::to_string(summary.peak_bytes[rank])};
  }
  return {};
}

/// Short runs do not show the speed that a machine keeps up once it is warm. A run with --until may
/// end before that, and the finding says so.
Verdict duration(const Journal&, const RunSummary& summary) {
  if (summary.measured_s >= closed_measured_s) return {};
  return Finding{
      fmt::format("at least {:.0f} s measured", closed_measured_s),
      fmt::format("{:.1f} s{}", summary.measured_s,
                  summary.until && summary.until->reached() ? ", --until was reached" : "")};
}

/// Throughput is measured in the steady window; a short one means that the run never settled.
Verdict steady(const Journal&, const RunSummary& summary) {
  if (!summary.window) return {};
  if (summary.warmup_end == WarmupEnd::still_warming) {
    return Finding{"steps that no longer become faster", "they do after half of the steps"};
  }
  const double window_s = summary.window->seconds();
  if (window_s >= steady_share * summary.measured_s) return {};
  return Finding{
      fmt::format("a steady window of at least {:.0f} % of the measured time", 100 * steady_share),
      fmt::format("{:.1f} of {:.1f} s", window_s, summary.measured_s)};
}

/// Measuring takes time from training, so a costly one changes what it measures.
Verdict overhead(const Journal&, const RunSummary& summary) {
  const auto fraction = summary.measurement_overhead_fraction;
  if (!fraction || *fraction < largest_overhead) return {};
  return Finding{fmt::format("measuring costs under {:.0f} % of wall time", 100 * largest_overhead),
                 fmt::format("{:.2f} %", 100 * *fraction)};
}

/// A target counts as met by a final evaluation on enough samples only.
Verdict quality_target(const Journal& journal, const RunSummary& summary) {
  const auto* workload = journal.first<WorkloadEvent>();
  if (workload == nullptr || !workload->quality_target) return {};
  if (summary.quality && summary.quality->met == true) return {};
  const bool higher = workload->quality == QualityMeasure::accuracy;
  const auto& reached = summary.quality;
  return Finding{fmt::format("{} {} {:.6g} in a final evaluation on {} samples or more",
                             to_string(workload->quality), higher ? "at least" : "at most",
                             *workload->quality_target, fewest_quality_samples),
                 !reached ? "never evaluated"
                 : reached->is_final
                     ? fmt::format("{:.6g} on {} samples", reached->value, reached->samples)
                     : fmt::format("{:.6g} at best, no final evaluation", reached->value)};
}

/// Returns the distance below its floor that chance alone may bring a result. An error rate f
/// measured on n samples has the standard error √(f(1−f)/n); a loss averages so many tokens that
/// the fixed share suffices.
double floor_allowance(const QualityResult& quality, double floor) {
  const double allowance = floor * floor_tolerance;
  if (quality.measure != QualityMeasure::accuracy) return allowance;
  const double variance =
      floor * (1 - floor) / static_cast<double>(std::max<std::uint64_t>(1, quality.samples));
  return std::max(allowance, floor_standard_errors * std::sqrt(variance));
}

/// Results better than the data allow point to a leak between training and evaluation samples.
Verdict below_floor(const Journal& journal, const RunSummary& summary) {
  const auto* workload = journal.first<WorkloadEvent>();
  if (workload == nullptr || !summary.quality) return {};
  const bool higher = workload->quality == QualityMeasure::accuracy;
  const auto floor = higher ? workload->error_floor : workload->loss_floor;
  const double reached = higher ? 1 - summary.quality->value : summary.quality->value;
  if (!floor || reached >= *floor - floor_allowance(*summary.quality, *floor)) return {};
  return Finding{
      fmt::format("{} at or above the known floor {:.6g}", higher ? "error" : "loss", *floor),
      fmt::format("{:.6g}", reached)};
}

/// A quick run is a small one to try the program out.
Verdict quick(const Journal& journal, const RunSummary&) {
  const auto* start = journal.first<StartEvent>();
  if (start == nullptr || !start->quick) return {};
  return Finding{"a full run", "--quick"};
}

/// Two programs that move by turns are for comparing them, not for a result of either.
Verdict lockstep(const Journal& journal, const RunSummary&) {
  const auto* start = journal.first<StartEvent>();
  if (start == nullptr || !start->lockstep.value_or(false)) return {};
  return Finding{"a run of its own", "moved by turns with another program"};
}

/// A training that may change its plan shows what a machine does with several plans, and the looks
/// at them take time.
Verdict adapted(const Journal& journal, const RunSummary&) {
  const auto* start = journal.first<StartEvent>();
  if (start == nullptr || !start->adapt_every) return {};
  return Finding{"one plan from the first step to the last", "--adapt"};
}

/// Less than bf16 is another computation, and fp64 is for tests.
Verdict precision(const Journal& journal, const RunSummary&) {
  const auto* workload = journal.first<WorkloadEvent>();
  if (workload == nullptr) return {};
  const std::string& precision_name = workload->precision;
  if (precision_name == "fp32" || precision_name == "bf16") return {};
  return Finding{"fp32 or bf16", workload->precision};
}

/// The times of emulated devices are modelled, so no machine has reached them.
Verdict emulated(const Journal& journal, const RunSummary&) {
  const DeviceCount* devices = emulated_devices(journal);
  if (devices == nullptr) return {};
  return Finding{"real devices", devices->device_class + " is emulated"};
}

/// The numerics of another chip are nobody's result, however fast the host computes them.
Verdict emulated_numerics(const Journal& journal, const RunSummary&) {
  for (const DeviceEvent* device : journal.all<DeviceEvent>()) {
    if (!device->emulated.value_or(false)) continue;
    return Finding{"real devices", fmt::format("rank {} on {}", device->rank, device->device)};
  }
  return {};
}

/// A processor held to less than it has is another machine.
Verdict kernels(const Journal& journal, const RunSummary&) {
  for (const DeviceEvent* device : journal.all<DeviceEvent>()) {
    if (device->emulated.value_or(false)) continue;
    return Finding{"the processor's fastest kernels",
                   fmt::format("those of {} on rank {}", device->device, device->rank)};
  }
  return {};
}

/// A device that lacks operators was measured together with the host that replaced it.
Verdict substitution(const Journal& journal, const RunSummary&) {
  const double share = substituted_share(journal);
  if (share <= largest_substituted_share) return {};
  return Finding{fmt::format("at most {:.0f} % of the steps' time on the host's reference",
                             100 * largest_substituted_share),
                 fmt::format("{:.2f} %", 100 * share)};
}

using enum Severity;
constexpr Moment at_start = Moment::start, at_steps = Moment::steps, at_end = Moment::end;

/// The order of the rules is that of the reasons in a record.
constexpr std::array rule_table{
    Rule{"run_failed", "status is failed", invalid, at_end, "status", ended<RunStatus::failed>,
         "See the journal's last lines."},
    Rule{"run_partial", "interrupted, or no stop line", open, at_end, "status",
         ended<RunStatus::partial>, "Let the run finish."},
    Rule{"clock", "times decrease, or steps of a group overlap", invalid, at_steps, "t_ns",
         clock_backwards, "Look for a faulty clock source."},
    Rule{"clock_jump", "a step of the window took over 20 medians, and over 10 s", review, at_end,
         "t_ns", clock_jump, "Run again on a machine that is not stopped or moved on the way."},
    Rule{"step_order",
         "a step number is missing or twice, the first is wrong, or a step has no samples", invalid,
         at_end, "step.n", step_order, "The journal misses steps."},
    Rule{"finite_loss", "a loss is not finite and not the outcome of a diverged trial", invalid,
         at_end, "loss", non_finite_loss, "Lower the learning rate, or clip gradients."},
    Rule{"steps_none", "no step in the window", invalid, at_end, "steps", no_steps,
         "Run longer: --duration or --steps."},
    Rule{"steps_few", "fewer than 20 steps in the window", open, at_end, "steps", few_steps,
         "Run longer: --duration or --steps."},
    Rule{"executed_operations", "executed is not strict + recompute on a rank", invalid, at_steps,
         "operations.executed", executed_operations, "What ran is not what was counted."},
    Rule{"observed_strict", "the ranks' strict operations do not add up to the step's", invalid,
         at_end, "operations.strict", observed_strict, "What ran is not what was counted."},
    Rule{"not_observed", "a rank has no observed step", open, at_end, "operations.executed",
         not_observed, "Run until every rank has trained."},
    Rule{"unknown_operators", "a tensor operator without a formula ran", invalid, at_steps,
         "operations.executed", unknown_operators, "Give the operator a formula."},
    Rule{"checksums", "ranks with the same share of a model have different parameters", invalid,
         at_steps, "parameters", checksums,
         "Ranks of one group trained different models: look for faulty memory or network."},
    Rule{"time_split", "the parts of a rank's time are more than 1 % away from its wall time",
         invalid, at_end, "time_split_s", time_split,
         "Some of a rank's time is not accounted for."},
    Rule{"late", "over 1 % of the emulated operations were late by over 1 % of a step", invalid,
         at_end, "pacing", late,
         "The host cannot keep the modelled times: leave pace.dilation at 0, or use fewer ranks."},
    Rule{"above_memory", "a rank's peak is above the memory of its device class", invalid, at_end,
         "peak_memory_bytes", above_memory,
         "The device class could not have held it: use a smaller micro-batch or more stages."},
    Rule{"above_peak",
         "OPS without padding above 1.05 times the measured peak, where no other load was seen",
         invalid, at_end, "ops_per_second", above_peak<false>,
         "Run it again with `heteroperf run`, on an idle machine: it measures the peak anew."},
    Rule{"above_loaded_peak", "OPS above 1.05 times a peak that other load may have kept low",
         review, at_end, "ops_per_second", above_peak<true>,
         "Run it again with `heteroperf run`, on an idle machine: it measures the peak anew."},
    Rule{"peak_not_measured", "no measured peak", open, at_start, "utilization", peak_not_measured,
         "Leave measure.peak_s above 0."},
    Rule{"peak_precision", "the peak was measured in another precision", open, at_end,
         "utilization", peak_precision, "Measure the peak in the precision of the run."},
    Rule{"seeds", "the run's seed is not recorded", open, at_start, "seeds", seeds,
         "Repetitions must be told apart by their seeds."},
    Rule{"duration", "less than 300 s measured", open, at_start, "duration", duration,
         "Use --duration 300 or more."},
    Rule{"steady", "steps still become faster, or the window is under half of the measured time",
         open, at_end, "window_s", steady, "Run longer, on an idle machine."},
    Rule{"overhead", "measuring took 1 % of wall time or more", open, at_end,
         "measurement_overhead_fraction", overhead,
         "Use larger steps, or a faster disk for --out."},
    Rule{"other_load", "other processes took over 10 % of any host's CPUs of the run", review,
         at_steps, "host_load", other_load, "End other programs, or take a machine of its own."},
    Rule{"throttled", "CPUs or GPUs of any host slowed down for over 1 % of their time", review,
         at_steps, "host_load", throttled,
         "Cool the machine, lower its clock, or lift the control group's limit."},
    Rule{"quality_target", "missed in the final evaluation, none, or on fewer than 32 samples",
         open, at_end, "quality", quality_target, "Train longer; evaluate on more samples."},
    Rule{"below_floor", "better than the known floor of generated data", review, at_end, "quality",
         below_floor, "Better than the data allow: look for a leak between the splits."},
    Rule{"quick", "--quick", open, at_start, "quick", quick, "Run without --quick."},
    Rule{"lockstep", "moved by turns with another program (`gate --lockstep`)", open, at_start,
         "lockstep", lockstep, "Run it alone."},
    Rule{"adapted", "the plan may change in mid-run (`run --adapt`)", open, at_start, "adapt",
         adapted, "Run the plan by itself, without --adapt."},
    Rule{"precision", "neither fp32 nor bf16", open, at_start, "precision", precision,
         "fp64 is for tests, and less than bf16 is another computation."},
    Rule{"emulated", "emulated devices", open, at_start, "devices", emulated,
         "Emulated devices are never ranked."},
    Rule{"emulated_numerics", "another chip's numerics", open, at_start, "devices",
         emulated_numerics, "Emulated numerics are never ranked."},
    Rule{"kernels", "kernels other than the processor's fastest", open, at_start, "devices",
         kernels, "Use --device cpu."},
    Rule{"substitution", "over 1 % of the steps' time went to operators that a device lacks", open,
         at_end, "substitution", substitution,
         "The device was measured together with the host's reference."},
};

/// Judges by the rules that `judged` accepts.
Validity judge_if(auto&& judged, const Journal& journal, const RunSummary& summary) {
  Validity validity;
  for (const Rule& rule : rule_table) {
    if (!judged(rule)) continue;
    const Verdict finding = rule.check(journal, summary);
    if (!finding) continue;
    validity.severity = std::max(validity.severity, rule.severity);
    validity.reasons.push_back(
        {rule.id, rule.severity, rule.parameter, finding->expected, finding->actual, rule.hint});
  }
  return validity;
}

}  // namespace

std::span<const Rule> all_rules() { return rule_table; }

Validity judge(const Journal& journal, const RunSummary& summary) {
  return judge_if([](const Rule&) { return true; }, journal, summary);
}

Validity judge_at(Moment moment, const Journal& journal, const RunSummary& summary) {
  return judge_if([&](const Rule& rule) { return rule.moment == moment; }, journal, summary);
}

/// A run that is to measure its peak gets a peak line, and one that counts steps a duration without
/// end, so that the rules judge only what can be known beforehand.
Validity foresee(Journal opening, const RunExpectation& expected) {
  RunSummary summary;
  summary.measured_s = expected.measured_s.value_or(std::numeric_limits<double>::infinity());
  if (expected.measures_peak) opening.lines.push_back({0, PeakEvent{1, ""}});
  return judge_at(Moment::start, opening, summary);
}

}  // namespace heteroperf
