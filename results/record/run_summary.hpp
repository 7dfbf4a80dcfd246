#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metrics/ops.hpp"
#include "metrics/precision_goal.hpp"
#include "metrics/rate.hpp"
#include "metrics/statistics.hpp"
#include "results/journal/journal.hpp"
#include "results/record/component_summary.hpp"
#include "results/record/plan_summary.hpp"

namespace heteroperf {

/// A value with its 95 % confidence interval, absent where there are too few steps for one.
struct Estimate {
  double value = 0;
  std::optional<Interval> ci95;
};

/// Fewest samples on which a quality target can be met.
inline constexpr std::uint64_t fewest_quality_samples = 32;

/// The quality that the final evaluation found; where there is none, the best that any evaluation
/// (or trial) reached.
struct QualityResult {
  QualityMeasure measure = QualityMeasure::accuracy;
  double value = 0;
  std::uint64_t samples = 0;  ///< in the evaluation that gave `value`, the largest of equal ones
  bool is_final = false;
  std::optional<double> target = {};
  /// Absent without a target; false on too few samples, or without a final evaluation.
  std::optional<bool> met = {};
};

/// A classifier's −ln(error), by its final evaluation, times its operations per second.
struct RegulatedScore {
  double value = 0;
  std::uint64_t answers = 0, wrong = 0;  ///< in the final evaluation, one answer per sample
  Interval error_ci95;
};

/// The outcome of a run that was to end once its throughput is known well enough.
struct UntilSummary {
  double requested_fraction = 0;
  std::vector<PrecisionLook> looks;  ///< the last one is what the record's intervals go by
  std::optional<double> needed_s;    ///< measured, where it was not reached
  bool needed_at_least = false;      ///< `needed_s` is the least that it would have taken

  bool reached() const { return !looks.empty() && looks.back().reached; }
};

/// Seconds of the steps in the window.
struct StepTime {
  double median_s = 0, p95_s = 0;
  std::optional<Interval> median_ci95;  ///< distribution-free, from order statistics
};

/// Operations of the whole run; a count is absent where it is not known, which is never taken as 0.
struct OperationTotals {
  Ops strict;      ///< every training step of the run
  Ops window;      ///< steps that ended in the steady window: the numerator of OPS
  Ops evaluation;  ///< apart
  std::optional<Ops> aiperf;
  std::optional<Ops> padding;  ///< those of `strict` that multiply with the padding around images
  std::optional<Ops> executed, recompute;                 ///< extrapolated from the observed steps
  std::optional<Ops> per_step_strict, per_step_executed;  ///< in the first observed step
};

/// The steady window's length by use, mean over groups; the parts add up to the window.
struct TimeShares : StepSplit {
  double evaluation_s = 0;
};

/// The trials of a search by their last state.
struct SearchSummary {
  std::uint64_t trials = 0, unique_graphs = 0;
  std::map<TrialStatus, std::uint64_t> ended;  ///< number in each state
  std::optional<TrialEvent> best;              ///< finally evaluated, else of the best quality
  /// Share of the groups' time, first trial to the master's last word, spent waiting for it.
  std::optional<double> idle_fraction;
};

/// Steps whose losses make a fingerprint; every run that can be ranked has more.
inline constexpr std::uint64_t fingerprint_steps = 16;

/// All numbers of a record, before any rule is applied. Definitions: results/README.md.
struct RunSummary {
  RunStatus status = RunStatus::partial;
  std::string reason;  ///< why it has the status

  std::optional<TimeWindow> window;  ///< nothing when no step ended after the warm-up
  WarmupEnd warmup_end = WarmupEnd::settled;
  double measured_s = 0;  ///< the phase `measure`
  double wall_s = 0;      ///< first to last line
  std::uint64_t steps = 0, warmup_steps = 0, total_steps = 0;

  std::optional<Estimate> ops_per_second, throughput;
  std::optional<RegulatedScore> regulated_score;
  std::optional<double> measurement_overhead_fraction;
  /// OPS without those on padding over the peak; absent for emulated devices: it is not theirs.
  std::optional<double> utilization;
  std::optional<QualityResult> quality;
  std::optional<UntilSummary> until;
  std::optional<StepTime> step_time;
  /// Equal for runs that computed the same in the same order of sums. Absent with fewer steps, of a
  /// search, with several groups, or where a loss is not finite.
  std::optional<std::string> loss_fingerprint;
  OperationTotals operations;
  std::optional<TimeShares> time;
  std::vector<std::uint64_t> peak_bytes;  ///< by rank; empty unless every rank reported
  std::optional<SearchSummary> search;
  PlanSummary plan;
  std::vector<ComponentSummary> components;  ///< none where the model has but one
};

/// A pure function of the journal, which has one line at least.
RunSummary summarize(const Journal& journal);

/// The rule by which a run with `--until` looked.
PrecisionGoal goal_of(const UntilEvent& until);

/// The greatest of the peaks that were measured, with the memory's rate (or why there is none) of
/// the first that tells it; nothing where none was measured.
std::optional<PeakEvent> measured_peak(const Journal& journal);

/// The share of the steps' time that a rank spent on operators that its device lacks; the largest
/// of all ranks.
double substituted_share(const Journal& journal);

/// The first class of emulated devices; null where all are real.
const DeviceCount* emulated_devices(const Journal& journal);

}  // namespace heteroperf
