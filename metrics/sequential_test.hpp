#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "metrics/log_ratio.hpp"

namespace heteroperf {

/// The rule that says when blocks of runs have shown enough. Gains are logarithms of ratios,
/// positive for the better. A *look* judges all blocks so far; a gate ends at the first look that
/// decides.
struct SequentialRule {
  double alpha = 0.01;   ///< chance of a false alarm over all looks together
  double miss = 0.05;    ///< chance of clearing a loss of `margin` over all looks together
  double margin = 0.02;  ///< smallest loss that counts
  double noise = 0.02;   ///< a control's half width above this (and half the margin) clears nothing
  std::size_t fewest_blocks = 5, most_blocks = 12;
  /// The coverage of the intervals that a change must have beyond the limit, and of the control's.
  static constexpr double coverage = 0.95;

  /// Returns what a change must exceed where the control's half width is `half_width`.
  double limit(double half_width) const;
  /// Returns true where such a limit is small enough to clear anything.
  bool can_clear(double limit) const;
  /// Returns the part of `alpha` and `miss` that the look after `blocks` may spend: half at the
  /// first look, the rest in equal parts. The parts of all looks add up to 1, a Bonferroni bound
  /// that needs no independence.
  double share(std::size_t blocks) const;
};

/// The evidence of `blocks` blocks about one metric. `control` compares each program with itself.
struct Evidence {
  LogRatio gain, control;
  std::size_t blocks = 0;
};

enum class ChangeVerdict { regression, improvement, no_regression, undecided };

struct Judgement {
  ChangeVerdict verdict = ChangeVerdict::undecided;
  double p_adjusted = 1, control_p_adjusted = 1;
  double noise = 0;  ///< half width of the 95 % interval of the control's mean
  double limit = 0;  ///< a change must exceed it: the margin, or twice the noise if that is more
  /// The smallest margin that this evidence could have cleared, as a difference of logarithms: the
  /// loss that it leaves possible, or twice the noise if that is more.
  double resolution = 0;
  bool control_alarm = false;  ///< programs differ from themselves: nothing can be said
};

/// Judges all metrics of one look together, with p-values adjusted over them. A regression needs
/// the 95 % interval beyond the limit and its p-value below the look's share of alpha. To clear a
/// metric (no regression) needs the interval of the look's share of `miss` on the good side of the
/// limit.
std::vector<Judgement> judge_evidence(std::span<const Evidence> metrics,
                                      const SequentialRule& rule);

/// The chance with which a foreseen number of blocks shall settle a metric. More than that come
/// true, because gates that cannot tell have mostly seen more spread than there is.
inline constexpr double forecast_chance = 0.7;
/// No forecast goes beyond this many blocks in all.
inline constexpr std::size_t most_foreseen_blocks = 200;

/// Returns the chance that a new gate of at most `blocks` blocks settles the metric of which `seen`
/// is known: the share of simulated gates that do. Their mean and spreads are drawn from what
/// `seen` leaves possible (flat priors of the mean and of the logarithms of both spreads), and they
/// are judged at the levels of their own looks. A rule of one look stands for one look after
/// `blocks`. `judged` is the rule's judgement of `seen`; the part of its p-value that comes from
/// other metrics is taken to stay. The same arguments give the same chance.
double chance_to_settle(const Evidence& seen, const Judgement& judged, std::size_t blocks,
                        const SequentialRule& rule);

/// Returns how many more blocks a gate needs after `seen` to settle the metric with
/// `forecast_chance`; nothing where `most_foreseen_blocks` in all would not do.
std::optional<std::size_t> blocks_to_settle(const Evidence& seen, const Judgement& judged,
                                            const SequentialRule& rule);

}  // namespace heteroperf
