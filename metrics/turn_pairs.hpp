#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "metrics/log_ratio.hpp"

namespace heteroperf {

/// Two programs that advance by turns: how their turns become one difference of speed.
///
/// Turns form *quads*, A B B A or B A A B, drawn. A quad's effect, ln(head / base) of the time of a
/// step, is free of linear drift (AbbaBlock). Within one *pair* of processes the quads' effects are
/// summed up by a trimmed mean, because a disturbance of the machine hits single turns and would
/// ruin a plain one; a quad whose turns saw unlike load counts less.
///
/// The unit is the pair: what a process got by luck (pages, addresses, cores) stays with it for all
/// of its turns, so only fresh processes average it out.

/// One turn of one program.
struct Turn {
  double step_s = 0;  ///< mean time of its steps
  /// Share of the turn in which its threads had to wait for a core, or others used the cores.
  double load = 0;
};

/// Four turns in the order of time.
struct TurnQuad {
  std::array<Turn, 4> turns;
  bool base_first = true;  ///< base, head, head, base; else head, base, base, head

  /// Logarithms of the time of a step. With base second all signs are turned, so that effect() is
  /// ln(head / base) in either order.
  AbbaBlock time() const;
  /// 1 where all turns saw the same load, 1/2 where their loads span `half_weight_load`.
  double weight() const;
  static constexpr double half_weight_load = 0.04;
};

/// A mean with its standard error.
struct WeightedMean {
  double mean = 0, standard_error = 0;
};

/// The weighted mean without `trim` of the weight at either end. Its standard error is that of
/// Tukey and McLaughlin (1963): the winsorized spread over (1 - 2 trim), with Kish's effective
/// number (Σw)² / Σw². At least 2 values, weights above 0.
WeightedMean trimmed_mean(std::span<const double> values, std::span<const double> weights,
                          double trim);

/// One pair of processes, summed up over its quads.
struct TurnPair {
  WeightedMean effect, control;
  std::size_t quads = 0;
};

inline constexpr std::size_t fewest_quads = 6;
/// Throws Error{internal} with fewer than `fewest_quads`.
TurnPair summarize_pair(std::span<const TurnQuad> quads);

/// A gate leaves out one of so many pairs at either end. On machines seen, one process in 50 to 200
/// was a sixth to a third slower for all of its life.
inline constexpr std::size_t pairs_per_cut = 8;

/// The pairs of one gate together, by a trimmed mean (`pairs_per_cut`), because the luck of a
/// process is rare and large. Either mean's standard error is the larger one of the spread of the
/// pairs and of what their own errors leave: few pairs may agree by chance. Degrees of freedom are
/// those of the pairs that are left (Yuen and Dixon 1973).
struct PairsEvidence {
  LogRatio effect, control;
  /// Standard deviation of one fresh process among processes of one program, a difference of
  /// logarithms: what the pairs differ by beyond their own errors, over √2.
  double process_spread = 0;
};

/// At least 2 pairs.
PairsEvidence combine_pairs(std::span<const TurnPair> pairs);

}  // namespace heteroperf
