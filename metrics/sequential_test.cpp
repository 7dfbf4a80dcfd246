#include "metrics/sequential_test.hpp"

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "metrics/statistics.hpp"

// A gate compares two programs in blocks of runs. After each block it looks at all blocks so far
// and stops as soon as they decide. Looking several times gives chance several tries, so each look
// spends a part of the allowed chances (SequentialRule::share), and their sum stays within them.
// A *control*, each program against itself, tells how much of a difference is the machine's.
// The second half of the file forecasts how many more blocks an open gate needs: it draws the mean
// and the spreads from what the blocks seen leave possible, and plays gates with them.

namespace heteroperf {
namespace {

ChangeVerdict verdict_of(const Evidence& evidence, const Judgement& judged,
                         const SequentialRule& rule) {
  if (judged.control_alarm) return ChangeVerdict::undecided;
  const double share = rule.share(evidence.blocks);
  const Interval interval = evidence.gain.interval(SequentialRule::coverage);
  if (judged.p_adjusted < rule.alpha * share) {
    if (interval.high < -judged.limit) return ChangeVerdict::regression;
    if (interval.low > judged.limit) return ChangeVerdict::improvement;
  }
  const bool cleared = evidence.gain.interval(1 - rule.miss * share).low > -judged.limit;
  return cleared && rule.can_clear(judged.limit) ? ChangeVerdict::no_regression
                                                 : ChangeVerdict::undecided;
}

std::vector<double> adjusted(std::span<const Evidence> metrics, LogRatio Evidence::*which) {
  std::vector<double> p_values;
  for (const Evidence& metric : metrics) p_values.push_back((metric.*which).p_value());
  return benjamini_hochberg(p_values);
}

}  // namespace

double SequentialRule::limit(double half_width) const { return std::max(margin, 2 * half_width); }

bool SequentialRule::can_clear(double limit) const { return limit <= std::max(margin, 2 * noise); }

double SequentialRule::share(std::size_t blocks) const {
  HETEROPERF_EXPECT(fewest_blocks <= most_blocks && blocks >= fewest_blocks);
  if (fewest_blocks == most_blocks) return 1;
  return blocks == fewest_blocks ? 0.5 : 0.5 / static_cast<double>(most_blocks - fewest_blocks);
}

std::vector<Judgement> judge_evidence(std::span<const Evidence> metrics,
                                      const SequentialRule& rule) {
  const std::vector<double> gains = adjusted(metrics, &Evidence::gain);
  const std::vector<double> controls = adjusted(metrics, &Evidence::control);
  std::vector<Judgement> all(metrics.size());
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    Judgement& judged = all[i];
    judged.p_adjusted = gains[i];
    judged.control_p_adjusted = controls[i];
    judged.noise = metrics[i].control.half_width(SequentialRule::coverage);
    judged.limit = rule.limit(judged.noise);
    const double share = rule.miss * rule.share(metrics[i].blocks);
    judged.resolution = std::max(-metrics[i].gain.interval(1 - share).low, 2 * judged.noise);
    judged.control_alarm = controls[i] < rule.alpha;
    judged.verdict = verdict_of(metrics[i], judged, rule);
  }
  return all;
}

namespace {

constexpr int simulated_gates = 400;
constexpr std::uint64_t seed = 1;

/// Draws a true spread that may lie behind the one that was seen: σ² = s² d / χ², with Wilson and
/// Hilferty's normal approximation of the cube root of χ² of d degrees.
double drawn_spread(double seen, double degrees, RandomStream& random) {
  constexpr double smallest_root = 0.1;
  const double variance = 2 / (9 * degrees);
  const double root = 1 - variance + draw_normal(random) * std::sqrt(variance);
  return seen / std::pow(std::max(root, smallest_root), 1.5);
}

/// The levels of one look, in standard errors: a change must exceed `shown` and `significant`, a
/// cleared metric must keep `cleared`, and a control beyond `alarm` undoes everything.
struct LookLevels {
  double shown = 0, significant = 0, cleared = 0, alarm = 0;
};

/// Mean and standard error of blocks as they come in (Welford's recurrence).
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

/// Judges a simulated look as judge_evidence() does; returns true where it decides.
bool is_settled(const Moments& gain, const Moments& control, const LookLevels& levels,
                const SequentialRule& rule) {
  const double error = gain.standard_error(), control_error = control.standard_error();
  if (std::abs(control.mean()) > levels.alarm * control_error) return false;
  const double limit = rule.limit(levels.shown * control_error);
  const double beyond = std::max(limit + levels.shown * error, levels.significant * error);
  if (std::abs(gain.mean()) > beyond) return true;
  return gain.mean() - levels.cleared * error > -limit && rule.can_clear(limit);
}

/// A gate of at most `blocks` blocks that is simulated for one metric of several. `family` is the
/// factor by which the other metrics raise this metric's p-value.
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
    const double mean = seen_.gain.mean + spread / root * draw_normal(random);
    Moments gain, control;
    for (std::size_t n = 1; n <= blocks_; ++n) {
      gain.add(mean + spread * draw_normal(random));
      control.add(control_spread * draw_normal(random));
      if (n < rule_.fewest_blocks) continue;
      if (is_settled(gain, control, levels_[n - rule_.fewest_blocks], rule_)) return true;
    }
    return false;
  }

 private:
  const Evidence& seen_;
  SequentialRule rule_;
  std::size_t blocks_;
  std::vector<LookLevels> levels_;  ///< the first entry belongs to the first look
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
  // A gate that may go on for longer settles more often, so bisection finds the fewest blocks.
  while (settled - open > 1) {
    const std::size_t middle = (open + settled) / 2;
    (settles(middle) ? settled : open) = middle;
  }
  return settled - seen.blocks;
}

}  // namespace heteroperf
