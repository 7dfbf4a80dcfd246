// Finds how many things of each kind fit within limits and are worth most. The fractional problem
// is a linear program with few rows (resources) and many columns (kinds). The revised simplex
// method keeps only the inverse of the *basis*, the columns that are positive now: each step prices
// the resources, brings in a column that gains at these prices, and drives out the one that becomes
// zero first. The whole problem is then rounded down from it, filled up, and improved by exchanges.
#include "runners/plan/rivals/sailor/whole_packing.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

namespace heteroperf {
namespace {

constexpr double tiny = 1e-9;
constexpr int most_pivots = 400;
/// Whole packing looks at so many kinds, the best by their price.
constexpr std::size_t most_kinds = 48;

/// The revised simplex method: few rows, many columns. The last columns are slacks, kinds of no
/// worth that take one unit of a resource.
class Simplex {
 public:
  explicit Simplex(const PackingProblem& problem)
      : problem_(problem),
        kinds_(problem.values.size()),
        rows_(problem.rows()),
        inverse_(rows_ * rows_),
        level_(problem.limits) {
    for (std::size_t r = 0; r < rows_; ++r) {
      problem_.add(0)[r] = inverse_[r * rows_ + r] = 1;
      basis_.push_back(kinds_ + r);
    }
  }

  /// Half of the pivots take the column that gains most; should the method not have ended by then,
  /// it may be running in a circle, and Bland's rule ends it.
  FractionalPacking run() {
    price();
    for (int pivot = 0; pivot < most_pivots; ++pivot) {
      const std::size_t entering = entering_column(pivot < most_pivots / 2);
      if (entering == none || !bring_in(entering)) break;
      price();
    }
    FractionalPacking result{0, std::vector<double>(problem_.values.size()), prices_};
    for (std::size_t r = 0; r < rows_; ++r) {
      result.counts[basis_[r]] = std::max(0.0, level_[r]);
      result.value += problem_.values[basis_[r]] * result.counts[basis_[r]];
    }
    result.counts.resize(kinds_);
    return result;
  }

 private:
  static constexpr std::size_t none = SIZE_MAX;

  /// The price of a resource is what one more unit of it would be worth to the present basis.
  void price() {
    prices_.assign(rows_, 0);
    for (std::size_t r = 0; r < rows_; ++r) {
      const double worth = problem_.values[basis_[r]];
      if (worth == 0) continue;
      for (std::size_t c = 0; c < rows_; ++c) prices_[c] += worth * inverse_[r * rows_ + c];
    }
  }

  /// The column whose things are worth most beyond the price of what they take; or the first that
  /// gains, Bland's rule, under which the method never runs in a circle. Gains of rounding errors
  /// do not count; prices say the scale.
  std::size_t entering_column(bool best) const {
    std::size_t entering = none;
    double most = tiny * (1 + std::abs(prices_.empty() ? 0 : prices_[0]));
    for (std::size_t column = 0; column < problem_.values.size(); ++column) {
      double gain = problem_.values[column];
      for (std::size_t r = 0; r < rows_; ++r) gain -= prices_[r] * problem_.use(column, r);
      if (!(gain > most)) continue;
      entering = column;
      most = gain;
      if (!best) break;
    }
    return entering;
  }

  /// Enters a column as far as the limits allow: the row whose level reaches zero first leaves, and
  /// inverse and levels follow the new basis (Gauss and Jordan, row by row). False where no row
  /// bounds it.
  bool bring_in(std::size_t entering) {
    std::vector<double> direction(rows_, 0);
    std::size_t leaving = none;
    double step = std::numeric_limits<double>::infinity();
    for (std::size_t r = 0; r < rows_; ++r) {
      for (std::size_t c = 0; c < rows_; ++c) {
        direction[r] += inverse_[r * rows_ + c] * problem_.use(entering, c);
      }
      if (direction[r] <= tiny) continue;
      const double limit = level_[r] / direction[r];
      if (limit < step - tiny ||
          (limit < step + tiny && leaving != none && basis_[r] < basis_[leaving])) {
        step = limit;
        leaving = r;
      }
    }
    if (leaving == none) return false;
    for (std::size_t c = 0; c < rows_; ++c) inverse_[leaving * rows_ + c] /= direction[leaving];
    level_[leaving] /= direction[leaving];
    for (std::size_t r = 0; r < rows_; ++r) {
      if (r == leaving || direction[r] == 0) continue;
      for (std::size_t c = 0; c < rows_; ++c) {
        inverse_[r * rows_ + c] -= direction[r] * inverse_[leaving * rows_ + c];
      }
      level_[r] = std::max(0.0, level_[r] - direction[r] * level_[leaving]);
    }
    basis_[leaving] = entering;
    return true;
  }

  PackingProblem problem_;
  std::size_t kinds_, rows_;
  std::vector<double> inverse_, level_, prices_;
  std::vector<std::size_t> basis_;
};

/// The search for whole numbers, from the fractional optimum on.
class WholePacking {
 public:
  WholePacking(const PackingProblem& problem, const FractionalPacking& fractions)
      : problem_(problem), now_{std::vector<int>(problem.values.size()), problem.limits, 0} {
    std::vector<double> worth;  // per price
    for (std::size_t k = 0; k < problem.values.size(); ++k) {
      take(k, static_cast<int>(std::floor(fractions.counts[k] + tiny)));
      double price = tiny;
      for (std::size_t r = 0; r < problem.rows(); ++r) {
        price += fractions.prices[r] * problem.use(k, r);
      }
      worth.push_back(problem.values[k] / price);
      order_.push_back(k);
    }
    std::ranges::stable_sort(order_, std::greater<>(), [&](std::size_t k) { return worth[k]; });
    order_.resize(std::min(order_.size(), most_kinds));
  }

  std::vector<int> run() {
    fill();
    while (exchange()) {
    }
    return now_.counts;
  }

 private:
  /// Things that are taken, what they leave of the limits, and their worth.
  struct Taken {
    std::vector<int> counts;
    std::vector<double> left;
    double value = 0;
  };

  void take(std::size_t k, int count) {
    now_.counts[k] += count;
    now_.value += count * problem_.values[k];
    for (std::size_t r = 0; r < problem_.rows(); ++r) now_.left[r] -= count * problem_.use(k, r);
  }

  /// The number of further things of a kind that the limits allow.
  int room_for(std::size_t k) const {
    double room = std::numeric_limits<int>::max();
    for (std::size_t r = 0; r < problem_.rows(); ++r) {
      const double use = problem_.use(k, r);
      if (use > 0) room = std::min(room, std::floor((now_.left[r] + tiny) / use));
    }
    return static_cast<int>(std::max(0.0, room));
  }

  /// Takes as many as fit of every kind that is worth something.
  void fill() {
    for (const std::size_t k : order_) {
      if (problem_.values[k] > 0) take(k, room_for(k));
    }
  }

  /// Gives up one thing, or two, for others in their room.
  bool exchange() {
    for (std::size_t i = 0; i < now_.counts.size(); ++i) {
      if (now_.counts[i] == 0) continue;
      if (improves({i})) return true;
      for (std::size_t j = i; j < now_.counts.size(); ++j) {
        if (now_.counts[j] > (i == j ? 1 : 0) && improves({i, j})) return true;
      }
    }
    return false;
  }

  /// Gives things up, takes one of another kind and fills up; keeps that where it is worth more.
  bool improves(std::initializer_list<std::size_t> given_up) {
    const Taken before = now_;
    for (const std::size_t k : given_up) take(k, -1);
    const Taken room = now_;
    for (const std::size_t first : order_) {
      if (room_for(first) == 0) continue;
      take(first, 1);
      fill();
      if (now_.value > before.value + tiny) return true;
      now_ = room;
    }
    now_ = before;
    return false;
  }

  const PackingProblem& problem_;
  Taken now_;
  std::vector<std::size_t> order_;  ///< kinds, the most worth per price first
};

}  // namespace

FractionalPacking pack_fractions(const PackingProblem& problem) { return Simplex(problem).run(); }

std::vector<int> pack_whole(const PackingProblem& problem, const FractionalPacking& fractions) {
  return WholePacking(problem, fractions).run();
}

}  // namespace heteroperf
