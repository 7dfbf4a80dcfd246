#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "metrics/ops.hpp"
#include "metrics/statistics.hpp"

namespace heteroperf {

/// The strict operations of the steps that ended in one measured window.
struct WindowTotal {
  Ops operations;
  Seconds window;  ///< > 0
};

OpsPerSecond ops_per_second(const WindowTotal& total);

/// Returns Σ operations / Σ window seconds over the workloads of a suite. It is not a mean of
/// rates, so that a short window weighs little.
OpsPerSecond suite_ops_per_second(std::span<const WindowTotal> totals);

/// Returns −ln(error) × OPS (AIPerf, `score.py`), for classifiers only, 0 ≤ error_rate ≤ 1. There
/// is none when no sample was wrong, as −ln 0 is no number.
std::optional<OpsPerSecond> regulated_score(OpsPerSecond ops, double error_rate);

/// Returns the heterogeneous speed ratio (HSR): the throughput of a mix of device classes over the
/// sum of the throughputs of each class alone. There is none where no class has any.
std::optional<double> heterogeneous_speed_ratio(double mix, double sum_of_classes);

/// Returns the performance portability of a program: the harmonic mean of its efficiencies on the
/// devices, 0 where one has none because it lacks an operator (Pennycook, Sewall, Lee,
/// arXiv:1611.07409). There is none without devices.
std::optional<double> performance_portability(std::span<const std::optional<double>> efficiencies);

/// A pass of an operator: how often a micro-batch has it, and its seconds in each turn of a
/// measurement.
struct TimedPass {
  std::uint64_t count = 0;
  std::vector<double> turns_s;
};

/// Returns for each turn that all passes had how often per second they do a micro-batch's work, one
/// after another.
std::vector<double> micro_batch_rates(std::span<const TimedPass> passes);

/// After this many wrong answers an error rate is known to 10 %: its relative standard error is at
/// most 1 / √wrong.
inline constexpr std::uint64_t enough_wrong_answers = 100;

/// Generated samples never end; an error rate is measured on this many of them at most.
inline constexpr std::uint64_t most_generated_answers = 16384;

/// The rule for how many samples a run's final evaluation takes.
struct FinalEvaluation {
  bool classifier = false, quick = false, emulated = false;
  std::uint64_t asked_samples = 0;

  /// Returns true where the evaluation goes on until enough answers are wrong, or the data end.
  bool goes_on_to_errors() const { return classifier && !quick && !emulated; }
  /// Returns the most generated samples that it takes: those asked for, where it does not go on.
  std::uint64_t most_generated_samples() const;
};

/// Returns the 95 % interval of an error rate after `wrong` of `answers` > 0 independent answers:
/// Wilson's score interval (E. B. Wilson, J. Am. Stat. Assoc. 22, 209, 1927). It takes only sums,
/// products and a square root, so its bits are the same on every machine.
Interval error_interval(std::uint64_t wrong, std::uint64_t answers);

/// The quality of a trial. The worst trials failed or diverged; then come those that survived fewer
/// steps, then those of lower quality, then those of higher loss (NaN is the highest).
struct Score {
  bool usable = false;  ///< false where the trial failed or diverged
  std::uint64_t steps = 0;
  double quality = 0.0;
  double loss = std::numeric_limits<double>::quiet_NaN();
};

/// Returns true when `a` is better than `b`; a strict weak order.
bool better(const Score& a, const Score& b);

}  // namespace heteroperf
