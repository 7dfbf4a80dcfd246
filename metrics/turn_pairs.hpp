#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "metrics/log_ratio.hpp"

namespace heteroperf {

/// Two programs advance by turns, and their turns become one difference of speed.
///
/// Turns form *quads*, A B B A or B A A B, drawn by a fair coin. A quad's effect,
/// ln(head / base) of the time of a step, is free of linear drift (AbbaBlock). Within one *pair* of
/// processes a trimmed mean sums up the quads' effects, because a disturbance of the machine hits
/// single turns and would ruin a plain mean. A quad whose turns saw unlike load counts less.
///
/// The unit is the pair: luck of a process (pages, addresses, cores) stays with it for all of its
/// turns, so only fresh processes average it out.

/// One turn of one program.
struct Turn {
  double step_s = 0;  ///< mean time of the steps in the turn
  /// The share of the turn in which its threads waited for a core, or others used the cores.
  double load = 0;
};

/// Four turns in the order of time.
struct TurnQuad {
  std::array<Turn, 4> turns;
  bool base_first = true;  ///< the order is base, head, head, base; else head, base, base, head

  /// Returns the logarithms of the time of a step. With base second all signs are turned, so that
  /// effect() is ln(head / base) in either order.
  AbbaBlock time() const;
  /// Returns 1 where all turns saw the same load, 1/2 where their loads span `half_weight_load`.
  double weight() const;
  static constexpr double half_weight_load = 0.04;
};

/// A mean with its standard error.
struct WeightedMean {
  double mean = 0, standard_error = 0;
};

/// Returns the weighted mean without the share `trim` of the weight at either end. Its standard
/// error is that of Tukey and McLaughlin (1963): the winsorized spread over (1 - 2 trim), with
/// Kish's effective number (Σw)² / Σw². It takes at least 2 values, and weights above 0.
WeightedMean trimmed_mean(std::span<const double> values, std::span<const double> weights,
                          double trim);

/// The effect and the control of one pair of processes, summed up over its quads.
struct TurnPair {
  WeightedMean effect, control;
  std::size_t quads = 0;
};

inline constexpr std::size_t fewest_quads = 6;
/// Sums up a pair. Throws Error{internal} with fewer than `fewest_quads`.
TurnPair summarize_pair(std::span<const TurnQuad> quads);

/// A gate leaves out one of so many pairs at either end: on the machines seen, one process in 50 to
/// 200 was a sixth to a third slower for all of its life.
inline constexpr std::size_t pairs_per_cut = 8;

/// The evidence of all pairs of a gate, by a trimmed mean (`pairs_per_cut`), because the luck of a
/// process is rare and large. Either mean's standard error is the larger one of the spread of the
/// pairs and of what their own errors leave, as a few pairs may agree by chance. The degrees of
/// freedom are those of the pairs that are left (Yuen and Dixon 1973).
struct PairsEvidence {
  LogRatio effect, control;
  /// The standard deviation of one fresh process among processes of one program, as a difference of
  /// logarithms: the difference of the pairs beyond their own errors, over √2.
  double process_spread = 0;
};

/// Combines the pairs of a gate; takes at least 2.
PairsEvidence combine_pairs(std::span<const TurnPair> pairs);

}  // namespace heteroperf
