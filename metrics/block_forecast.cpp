#include "metrics/block_forecast.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "metrics/student_t.hpp"

namespace heteroperf {
namespace {

constexpr int simulated_gates = 400;
constexpr std::uint64_t seed = 1;

double normal(RandomStream& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
  return radius * std::cos(2 * std::numbers::pi * random.unit());
}

/// A true spread that may be behind one that was seen: σ² = s² d / χ², with Wilson and Hilferty's
/// normal approximation of the cube root of χ² of d degrees.
double drawn_spread(double seen, double degrees, RandomStream& random) {
  constexpr double smallest_root = 0.1;
  const double variance = 2 / (9 * degrees);
  const double root = 1 - variance + normal(random) * std::sqrt(variance);
  return seen / std::pow(std::max(root, smallest_root), 1.5);
}

/// What one look compares with, in standard errors.
struct LookLevels {
  double shown = 0, significant = 0, cleared = 0, alarm = 0;
};

/// Blocks as they come in.
class Moments {
 public:
  void add(double value) {
    ++count_;
    const double before = value - mean_;
    mean_ += before / count_;
    squares_ += before * (value - mean_);
  }
  double mean() const { return mean_; }
  double standard_error() const { return std::sqrt(squares_ / (count_ - 1) / count_); }

 private:
  double count_ = 0, mean_ = 0, squares_ = 0;
};

bool is_settled(const Moments& gain, const Moments& control, const LookLevels& levels,
                const SequentialRule& rule) {
  const double error = gain.standard_error(), control_error = control.standard_error();
  if (std::abs(control.mean()) > levels.alarm * control_error) return false;
  const double limit = rule.limit(levels.shown * control_error);
  const double beyond = std::max(limit + levels.shown * error, levels.significant * error);
  if (std::abs(gain.mean()) > beyond) return true;
  return gain.mean() - levels.cleared * error > -limit && rule.can_clear(limit);
}

/// The levels of a gate of at most `blocks` blocks, for one metric of several.
class ForeseenGate {
 public:
  ForeseenGate(const Evidence& seen, double family, std::size_t blocks, SequentialRule rule)
      : seen_(seen), rule_(rule), blocks_(blocks) {
    if (rule.fewest_blocks == rule.most_blocks) rule_.fewest_blocks = blocks;
    rule_.most_blocks = blocks;
    for (std::size_t n = rule_.fewest_blocks; n <= blocks; ++n) {
      const double share = rule_.share(n);
      const double degrees =
          seen.gain.degrees * static_cast<double>(n - 1) / static_cast<double>(seen.blocks - 1);
      const auto quantile = [&](double miss) { return student_t_quantile(1 - miss, degrees); };
      levels_.push_back({quantile(1 - rule.coverage), quantile(rule.alpha * share / family),
                         quantile(rule.miss * share), quantile(rule.alpha)});
    }
  }

  bool settles(RandomStream& random) const {
    const double root = std::sqrt(static_cast<double>(seen_.blocks));
    const auto spread_of = [&](const LogRatio& seen) {
      return drawn_spread(seen.standard_error * root, seen.degrees, random);
    };
    const double spread = spread_of(seen_.gain), control_spread = spread_of(seen_.control);
    const double mean = seen_.gain.mean + spread / root * normal(random);
    Moments gain, control;
    for (std::size_t n = 1; n <= blocks_; ++n) {
      gain.add(mean + spread * normal(random));
      control.add(control_spread * normal(random));
      if (n < rule_.fewest_blocks) continue;
      if (is_settled(gain, control, levels_[n - rule_.fewest_blocks], rule_)) return true;
    }
    return false;
  }

 private:
  const Evidence& seen_;
  SequentialRule rule_;
  std::size_t blocks_;
  std::vector<LookLevels> levels_;  ///< from the first look on
};

}  // namespace

double chance_to_settle(const Evidence& seen, const Judgement& judged, std::size_t blocks,
                        const SequentialRule& rule) {
  HETEROPERF_EXPECT(seen.blocks >= 2 && blocks >= rule.fewest_blocks);
  const double alone = seen.gain.p_value();
  const double family = alone > 0 ? std::max(1.0, judged.p_adjusted / alone) : 1;
  const ForeseenGate gate(seen, family, blocks, rule);
  int settled = 0;
  for (int i = 0; i < simulated_gates; ++i) {
    RandomStream random(random_bits(seed, i));
    settled += gate.settles(random);
  }
  return settled / static_cast<double>(simulated_gates);
}

std::optional<std::size_t> blocks_to_settle(const Evidence& seen, const Judgement& judged,
                                            const SequentialRule& rule) {
  const auto settles = [&](std::size_t blocks) {
    return chance_to_settle(seen, judged, blocks, rule) >= forecast_chance;
  };
  std::size_t open = std::max(seen.blocks, rule.fewest_blocks - 1);
  std::size_t settled = most_foreseen_blocks;
  if (open >= settled || !settles(settled)) return std::nullopt;
  // Who may go on for longer settles more: bisection.
  while (settled - open > 1) {
    const std::size_t middle = (open + settled) / 2;
    (settles(middle) ? settled : open) = middle;
  }
  return settled - seen.blocks;
}

}  // namespace heteroperf
