#include "metrics/change_points.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "metrics/statistics.hpp"

// A history is a series whose level sometimes jumps. Optimal partitioning finds the segmentation
// with the least sum of squares plus a price per jump, by dynamic programming over the end of the
// last segment. Prices alone let some weak jumps pass, so a t-test between neighbouring segments
// removes them, the weakest first, because a removal changes the segments of its neighbours.

namespace heteroperf {
namespace {

constexpr double largest_p = 0.0004;    // two-sided, of Student's t between neighbours
constexpr double change_penalty = 2.5;  // price of a change point, in units of variance · ln n
constexpr std::size_t persistence = 2;  // fewest points on either side of a change

/// Prefix sums that give the sum of squares about the mean of any segment in O(1).
class SegmentCosts {
 public:
  explicit SegmentCosts(std::span<const double> values)
      : centre_(mean(values)), sums_(values.size() + 1), squares_(values.size() + 1) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = values[i] - centre_;
      sums_[i + 1] = sums_[i] + value;
      squares_[i + 1] = squares_[i] + value * value;
    }
  }
  double mean_of(std::size_t begin, std::size_t end) const {
    return centre_ + (sums_[end] - sums_[begin]) / static_cast<double>(end - begin);
  }
  double cost(std::size_t begin, std::size_t end) const {
    const double sum = sums_[end] - sums_[begin];
    const double squares = squares_[end] - squares_[begin];
    return std::max(0.0, squares - sum * sum / static_cast<double>(end - begin));
  }

 private:
  double centre_;
  std::vector<double> sums_, squares_;
};

/// Estimates the variance from differences of neighbours, which a change of level hardly touches:
/// it spoils one difference, and a wild point spoils two. The largest tenth therefore does not
/// count.
double variance_between_neighbours(std::span<const double> values) {
  // The variance of a normal distribution without its tails: 1 - 2 q φ(q) / 0.9, q = 1.645.
  constexpr double kept = 0.9, variance_kept = 0.6230;
  std::vector<double> squares;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double difference = values[i] - values[i - 1];
    squares.push_back(difference * difference / 2);
  }
  std::sort(squares.begin(), squares.end());
  squares.resize(std::max<std::size_t>(
      1, static_cast<std::size_t>(kept * static_cast<double>(squares.size()))));
  return mean(squares) / variance_kept;
}

/// Returns where the segments of the cheapest partition begin, the first one included. best[end] is
/// the least cost of the first `end` values, which a last segment [begin, end) completes.
std::vector<std::size_t> best_partition(const SegmentCosts& costs, std::size_t count,
                                        double penalty) {
  std::vector<double> best(count + 1, std::numeric_limits<double>::infinity());
  std::vector<std::size_t> last_begin(count + 1, 0);
  best[0] = -penalty;
  for (std::size_t end = persistence; end <= count; ++end) {
    for (std::size_t begin = 0; begin + persistence <= end; ++begin) {
      const double cost = best[begin] + costs.cost(begin, end) + penalty;
      if (cost < best[end]) best[end] = cost, last_begin[end] = begin;
    }
  }
  std::vector<std::size_t> begins;
  for (std::size_t end = count; end > 0; end = last_begin[end]) begins.push_back(last_begin[end]);
  std::reverse(begins.begin(), begins.end());
  return begins;
}

/// Returns the p-value of Student's t between two neighbouring segments. They share one variance,
/// because segments of a few points have no useful one of their own.
double p_between(const SegmentCosts& costs, std::size_t begin, std::size_t middle,
                 std::size_t end) {
  const auto a = static_cast<double>(middle - begin), b = static_cast<double>(end - middle);
  const double degrees = a + b - 2;
  const double squares = costs.cost(begin, middle) + costs.cost(middle, end);
  const double difference = costs.mean_of(middle, end) - costs.mean_of(begin, middle);
  if (squares == 0) return difference == 0 ? 1 : 0;
  const double error = std::sqrt(squares / degrees * (1 / a + 1 / b));
  return student_t_two_sided(difference / error, degrees);
}

std::vector<ChangePoint> changes_between(const SegmentCosts& costs,
                                         const std::vector<std::size_t>& begins,
                                         std::size_t count) {
  std::vector<ChangePoint> changes;
  for (std::size_t i = 1; i < begins.size(); ++i) {
    const std::size_t end = i + 1 < begins.size() ? begins[i + 1] : count;
    changes.push_back({begins[i], costs.mean_of(begins[i - 1], begins[i]),
                       costs.mean_of(begins[i], end),
                       p_between(costs, begins[i - 1], begins[i], end)});
  }
  return changes;
}

}  // namespace

std::vector<ChangePoint> find_change_points(std::span<const double> values) {
  const std::size_t count = values.size();
  if (count < std::max<std::size_t>(3, 2 * persistence)) return {};
  const SegmentCosts costs(values);
  const double penalty =
      change_penalty * variance_between_neighbours(values) * std::log(static_cast<double>(count));
  std::vector<std::size_t> begins = best_partition(costs, count, penalty);
  while (true) {
    std::vector<ChangePoint> changes = changes_between(costs, begins, count);
    const auto weakest =
        std::max_element(changes.begin(), changes.end(),
                         [](const ChangePoint& a, const ChangePoint& b) { return a.p < b.p; });
    if (weakest == changes.end() || weakest->p <= largest_p) return changes;
    std::erase(begins, weakest->index);
  }
}

}  // namespace heteroperf
