#include "metrics/turn_pairs.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"

// A trimmed mean cuts the same share off both ends of the sorted values. Here values have weights,
// so a value at the cut counts with the part of its weight that is left. The same function serves
// both levels: the quads of one pair, and the pairs of one gate.

namespace heteroperf {
namespace {

constexpr double trim = 0.3;

double total(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// The values that are left when the share `cut` of the weight is taken off at either end.
struct Middle {
  double mean = 0, lowest = 0, highest = 0;
};

Middle middle_of(std::span<const double> values, std::span<const double> weights,
                 const std::vector<std::size_t>& order, double cut) {
  // A value of which nothing but rounding is left is cut off whole.
  constexpr double rounding = 1e-9;
  const double end = total(weights) - cut;
  Middle middle{0, values[order.back()], values[order.front()]};
  double seen = 0, sum = 0, kept = 0;
  for (const std::size_t i : order) {
    const double part = std::min(seen + weights[i], end) - std::max(seen, cut);
    seen += weights[i];
    if (part <= rounding * weights[i]) continue;
    sum += part * values[i];
    kept += part;
    middle.lowest = std::min(middle.lowest, values[i]);
    middle.highest = std::max(middle.highest, values[i]);
  }
  middle.mean = sum / kept;
  return middle;
}
/// Sums up one contrast of all quads of a pair.

WeightedMean summary(std::span<const TurnQuad> quads, double (AbbaBlock::*contrast)() const) {
  std::vector<double> values, weights;
  for (const TurnQuad& quad : quads) {
    values.push_back((quad.time().*contrast)());
    weights.push_back(quad.weight());
  }
  return trimmed_mean(values, weights, trim);
}

/// Combines the pairs without those of the rarest luck.
LogRatio combined(std::span<const TurnPair> pairs, WeightedMean TurnPair::*which) {
  std::vector<double> means;
  double squares = 0;
  for (const TurnPair& pair : pairs) {
    means.push_back((pair.*which).mean);
    squares += (pair.*which).standard_error * (pair.*which).standard_error;
  }
  const auto n = static_cast<double>(pairs.size());
  const auto cut = static_cast<double>(pairs.size() / pairs_per_cut);
  const std::vector<double> alike(pairs.size(), 1.0);
  const WeightedMean middle = trimmed_mean(means, alike, cut / n);
  const double kept = n - 2 * cut;
  const double pair_error = std::sqrt(squares / n / kept);
  return {middle.mean, std::max(middle.standard_error, pair_error), kept - 1};
}

}  // namespace

AbbaBlock TurnQuad::time() const {
  std::array<double, 4> logs{};
  for (std::size_t i = 0; i < logs.size(); ++i) {
    logs[i] = (base_first ? 1 : -1) * std::log(turns[i].step_s);
  }
  return {logs[0], logs[1], logs[2], logs[3]};
}

double TurnQuad::weight() const {
  const auto by_load = [](const Turn& a, const Turn& b) { return a.load < b.load; };
  const auto [least, most] = std::minmax_element(turns.begin(), turns.end(), by_load);
  const double span = (most->load - least->load) / half_weight_load;
  return 1 / (1 + span * span);
}

WeightedMean trimmed_mean(std::span<const double> values, std::span<const double> weights,
                          double share) {
  HETEROPERF_EXPECT(values.size() >= 2 && values.size() == weights.size());
  const std::vector<std::size_t> order = sorting_order(values);
  const double all = total(weights);
  const Middle middle = middle_of(values, weights, order, share * all);
  const auto held = [&](double value) { return std::clamp(value, middle.lowest, middle.highest); };
  double centre = 0, spread = 0, squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    centre += weights[i] * held(values[i]) / all;
    squares += weights[i] * weights[i];
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double off = held(values[i]) - centre;
    spread += weights[i] * off * off / all;
  }
  const double effective = all * all / squares;
  const double error = std::sqrt(spread / std::max(1.0, effective - 1)) / (1 - 2 * share);
  return {middle.mean, error};
}

TurnPair summarize_pair(std::span<const TurnQuad> quads) {
  HETEROPERF_EXPECT(quads.size() >= fewest_quads);
  return {summary(quads, &AbbaBlock::effect), summary(quads, &AbbaBlock::control), quads.size()};
}

PairsEvidence combine_pairs(std::span<const TurnPair> pairs) {
  HETEROPERF_EXPECT(pairs.size() >= 2);
  PairsEvidence evidence{combined(pairs, &TurnPair::effect), combined(pairs, &TurnPair::control),
                         0};
  std::vector<double> effects, pair_squares;
  for (const TurnPair& pair : pairs) {
    effects.push_back(pair.effect.mean);
    pair_squares.push_back(pair.effect.standard_error * pair.effect.standard_error);
  }
  const double spread = standard_deviation(effects);
  evidence.process_spread = std::sqrt(std::max(0.0, spread * spread - mean(pair_squares)) / 2);
  return evidence;
}

}  // namespace heteroperf
