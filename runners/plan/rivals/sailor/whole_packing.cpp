// Finds how many things of each kind fit within limits and are worth most. The fractional problem
// is a linear program with few rows (resources) and many columns (kinds). The revised simplex
// method keeps only the inverse of the *basis*, the columns that are positive now: each step prices
// the resources, brings in a column that gains at these prices, and drives out the one that becomes
// zero first. The whole problem is then rounded down from it, filled up, and improved by exchanges.
#include "runners/plan/rivals/sailor/whole_packing.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

namespace heteroperf {
namespace {

constexpr double tiny = 1e-9;
constexpr int most_pivots = 400;
/// Whole packing looks at so many kinds, the best by their price.
constexpr std::size_t most_kinds = 48;

/// The revised simplex method: few rows, many columns. Columns from values.size() on are slacks.
class Simplex {
 public:
  explicit Simplex(const PackingProblem& problem)
      : problem_(problem), rows_(problem.rows()), inverse_(rows_ * rows_), level_(problem.limits) {
    for (std::size_t r = 0; r < rows_; ++r) {
      inverse_[r * rows_ + r] = 1;
      basis_.push_back(problem.values.size() + r);
    }
  }

  /// Half of the pivots take the column that gains most; should the method not have ended by then,
  /// it may be running in a circle, and Bland's rule ends it.
  FractionalPacking run() {
    for (int pivot = 0; pivot < most_pivots; ++pivot) {
      price();
      const std::size_t entering = entering_column(pivot < most_pivots / 2);
      if (entering == none || !bring_in(entering)) break;
    }
    price();
    FractionalPacking result;
    result.counts.assign(problem_.values.size(), 0);
    for (std::size_t r = 0; r < rows_; ++r) {
      if (basis_[r] >= problem_.values.size()) continue;
      result.counts[basis_[r]] = std::max(0.0, level_[r]);
      result.value += problem_.values[basis_[r]] * result.counts[basis_[r]];
    }
    result.prices = prices_;
    return result;
  }

 private:
  static constexpr std::size_t none = SIZE_MAX;

  double value(std::size_t column) const {
    return column < problem_.values.size() ? problem_.values[column] : 0;
  }
  double entry(std::size_t column, std::size_t row) const {
    if (column >= problem_.values.size()) return column - problem_.values.size() == row ? 1 : 0;
    return problem_.use(column, row);
  }

  /// The price of a resource is what one more unit of it would be worth to the present basis.
  void price() {
    prices_.assign(rows_, 0);
    for (std::size_t r = 0; r < rows_; ++r) {
      const double worth = value(basis_[r]);
      if (worth == 0) continue;
      for (std::size_t c = 0; c < rows_; ++c) prices_[c] += worth * inverse_[r * rows_ + c];
    }
  }

  /// The worth of one thing of a column beyond the price of what it takes.
  double gain(std::size_t column) const {
    double sum = value(column);
    for (std::size_t r = 0; r < rows_; ++r) sum -= prices_[r] * entry(column, r);
    return sum;
  }
  /// Gains of rounding errors do not count; prices say the scale.
  double least_gain() const { return tiny * (1 + std::abs(prices_.empty() ? 0 : prices_[0])); }

  /// The column that gains most; or the first that gains, Bland's rule, under which the method
  /// never runs in a circle.
  std::size_t entering_column(bool best) const {
    std::size_t entering = none;
    double most = least_gain();
    for (std::size_t c = 0; c < problem_.values.size() + rows_; ++c) {
      const double gained = gain(c);
      if (!(gained > most)) continue;
      entering = c;
      most = gained;
      if (!best) break;
    }
    return entering;
  }

  /// Enters a column as far as the limits allow: the row whose level reaches zero first leaves.
  /// False where no row bounds it.
  bool bring_in(std::size_t entering) {
    std::vector<double> direction(rows_, 0);
    for (std::size_t r = 0; r < rows_; ++r) {
      for (std::size_t c = 0; c < rows_; ++c) {
        direction[r] += inverse_[r * rows_ + c] * entry(entering, c);
      }
    }
    std::size_t leaving = none;
    double step = std::numeric_limits<double>::infinity();
    for (std::size_t r = 0; r < rows_; ++r) {
      if (direction[r] <= tiny) continue;
      const double limit = level_[r] / direction[r];
      if (limit < step - tiny ||
          (limit < step + tiny && leaving != none && basis_[r] < basis_[leaving])) {
        step = limit;
        leaving = r;
      }
    }
    if (leaving == none) return false;
    pivot(entering, leaving, direction);
    return true;
  }

  /// Updates inverse and levels for the new basis (Gauss and Jordan, row by row).
  void pivot(std::size_t entering, std::size_t leaving, const std::vector<double>& direction) {
    const double by = direction[leaving];
    for (std::size_t c = 0; c < rows_; ++c) inverse_[leaving * rows_ + c] /= by;
    level_[leaving] /= by;
    for (std::size_t r = 0; r < rows_; ++r) {
      if (r == leaving || direction[r] == 0) continue;
      for (std::size_t c = 0; c < rows_; ++c) {
        inverse_[r * rows_ + c] -= direction[r] * inverse_[leaving * rows_ + c];
      }
      level_[r] = std::max(0.0, level_[r] - direction[r] * level_[leaving]);
    }
    basis_[leaving] = entering;
  }

  const PackingProblem& problem_;
  std::size_t rows_;
  std::vector<double> inverse_, level_, prices_;
  std::vector<std::size_t> basis_;
};

/// The search for whole numbers, from the fractional optimum on.
class WholePacking {
 public:
  WholePacking(const PackingProblem& problem, const FractionalPacking& fractions)
      : problem_(problem), now_{std::vector<int>(problem.values.size()), problem.limits, 0} {
    for (std::size_t k = 0; k < problem.values.size(); ++k) {
      take(k, static_cast<int>(std::floor(fractions.counts[k] + tiny)));
    }
    set_order(fractions.prices);
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

  /// The most worth per price first.
  void set_order(const std::vector<double>& prices) {
    std::vector<double> worth(problem_.values.size());
    for (std::size_t k = 0; k < worth.size(); ++k) {
      double price = tiny;
      for (std::size_t r = 0; r < problem_.rows(); ++r) price += prices[r] * problem_.use(k, r);
      worth[k] = problem_.values[k] / price;
    }
    order_.resize(worth.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::stable_sort(order_,
                             [&](std::size_t a, std::size_t b) { return worth[a] > worth[b]; });
    order_.resize(std::min(order_.size(), most_kinds));
  }

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

  /// Takes as many as fit of every kind, the best worth per price first.
  void fill() {
    for (const std::size_t k : order_) {
      const int room = problem_.values[k] > 0 ? room_for(k) : 0;
      if (room > 0) take(k, room);
    }
  }

  /// Gives up one thing, or two, for others in their room.
  bool exchange() {
    std::vector<std::size_t> used;
    for (std::size_t k = 0; k < now_.counts.size(); ++k) {
      if (now_.counts[k] > 0) used.push_back(k);
    }
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (improves({used[i]})) return true;
      for (std::size_t j = i; j < used.size(); ++j) {
        if (j == i && now_.counts[used[i]] < 2) continue;
        if (improves({used[i], used[j]})) return true;
      }
    }
    return false;
  }

  /// Gives things up, takes one of another kind and fills up; keeps that where it is worth more.
  bool improves(const std::vector<std::size_t>& given_up) {
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
  std::vector<std::size_t> order_;
};

}  // namespace

FractionalPacking pack_fractions(const PackingProblem& problem) { return Simplex(problem).run(); }

std::vector<int> pack_whole(const PackingProblem& problem, const FractionalPacking& fractions) {
  return WholePacking(problem, fractions).run();
}

}  // namespace heteroperf
