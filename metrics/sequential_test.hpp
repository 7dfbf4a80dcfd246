#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "metrics/log_ratio.hpp"

namespace heteroperf {

/// When blocks of runs have shown enough. Gains are logarithms of ratios, positive for the better.
struct SequentialRule {
  double alpha = 0.01;   ///< chance of a false alarm over all looks together
  double miss = 0.05;    ///< chance of clearing a loss of `margin` over all looks together
  double margin = 0.02;  ///< smallest loss that counts
  double noise = 0.02;   ///< a control's half width above this (and half the margin) clears nothing
  std::size_t fewest_blocks = 5, most_blocks = 12;
  /// Of the intervals that a change must have beyond the limit, and of the control's.
  static constexpr double coverage = 0.95;

  /// What a change must exceed where the control's half width is `half_width`.
  double limit(double half_width) const;
  /// Whether such a limit is small enough to clear anything.
  bool can_clear(double limit) const;
  /// What the look after `blocks` may spend of `alpha` and `miss`: half at the first look, the rest
  /// in equal parts, so that all looks add up to 1 (a Bonferroni bound that needs no independence).
  double share(std::size_t blocks) const;
};

/// What `blocks` blocks say about one metric. `control` compares each program with itself.
struct Evidence {
  LogRatio gain, control;
  std::size_t blocks = 0;
};

enum class ChangeVerdict { regression, improvement, no_regression, undecided };

struct Judgement {
  ChangeVerdict verdict = ChangeVerdict::undecided;
  double p_adjusted = 1, control_p_adjusted = 1;
  double noise = 0;  ///< half width of the control mean's 95 % interval
  double limit = 0;  ///< what a change must exceed: the margin, or twice the noise if that is more
  /// The smallest margin that this evidence could have cleared, a difference of logarithms: what it
  /// leaves possible of a loss, and twice the noise.
  double resolution = 0;
  bool control_alarm = false;  ///< programs differ from themselves: nothing can be said
};

/// Judges all metrics of one look together, p-values adjusted over them. A regression needs the
/// 95 % interval beyond the limit and its p-value below the look's share of alpha; no regression,
/// the interval of the look's share of `miss` on the good side of it.
std::vector<Judgement> judge_evidence(std::span<const Evidence> metrics,
                                      const SequentialRule& rule);

}  // namespace heteroperf
