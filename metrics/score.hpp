#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "metrics/base/quantity.hpp"
#include "metrics/bootstrap.hpp"
#include "metrics/ops.hpp"

namespace heteroperf {

/// What one measured window did. Strict operations of the steps that ended in it.
struct WindowTotal {
  Ops operations;
  Seconds window;  ///< > 0
};

OpsPerSecond ops_per_second(const WindowTotal& total);

/// Σ operations / Σ window seconds over the workloads of a suite: not a mean of rates, so that a
/// short window weighs little.
OpsPerSecond suite_ops_per_second(std::span<const WindowTotal> totals);

/// −ln(error) × OPS (AIPerf, `score.py`): classifiers only, 0 ≤ error_rate ≤ 1. Nothing when no
/// sample was wrong, as −ln 0 is no number.
std::optional<OpsPerSecond> regulated_score(OpsPerSecond ops, double error_rate);

/// After so many wrong answers an error rate is known to 10 %: its relative standard error is
/// 1 / √wrong, or less.
inline constexpr std::uint64_t enough_wrong_answers = 100;

/// Generated samples never end: on them an error rate is found by so many answers at most.
inline constexpr std::uint64_t most_generated_answers = 16384;

/// The rule of a run's final evaluation: how many samples it takes.
struct FinalEvaluation {
  bool classifier = false, quick = false, emulated = false;
  std::uint64_t asked_samples = 0;

  /// It goes on until enough answers are wrong, or data end.
  bool goes_on_to_errors() const { return classifier && !quick && !emulated; }
  /// It takes so many generated samples at most: those asked for where it does not go on.
  std::uint64_t most_generated_samples() const;
};

/// 95 % interval of the error rate of which `wrong` of `answers` > 0 independent answers tell:
/// Wilson's score interval (E. B. Wilson, J. Am. Stat. Assoc. 22, 209, 1927). Sums, products and a
/// square root alone: the same bits on every machine.
Interval error_interval(std::uint64_t wrong, std::uint64_t answers);

}  // namespace heteroperf
