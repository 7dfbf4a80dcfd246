// Finds how many things of each kind fit within limits and are worth most. The fractional problem
// is a linear program with few rows (resources) and many columns (kinds). The revised simplex
// method keeps only the inverse of the *basis*, the columns that are positive now: each step prices
// the resources, brings in a column that gains at these prices, and drives out the one that becomes
// zero first. The whole problem is then rounded down from it, filled up, and improved by exchanges.
#include "runners/plan/rivals/sailor/whole_packing.hpp"

#include <algorithm>
#include <cmath>
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
      const std::size_t entering = pivot < most_pivots / 2 ? best_column() : first_column();
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
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  double value(std::size_t column) const {
    return column < problem_.values.size() ? problem_.values[column] : 0;
  }
  double entry(std::size_t column, std::size_t row) const {
    if (column >= problem_.values.size()) return column - problem_.values.size() == row ? 1 : 0;
    return problem_.uses[column * rows_ + row];
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

  std::size_t best_column() const {
    std::size_t best = none;
    double most = least_gain();
    for (std::size_t c = 0; c < problem_.values.size() + rows_; ++c) {
      const double gained = gain(c);
      if (gained > most) {
        most = gained;
        best = c;
      }
    }
    return best;
  }

  /// Chooses by Bland's rule, under which the method never runs in a circle.
  std::size_t first_column() const {
    for (std::size_t c = 0; c < problem_.values.size() + rows_; ++c) {
      if (gain(c) > least_gain()) return c;
    }
    return none;
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
      : problem_(problem), counts_(problem.values.size()), left_(problem.limits) {
    for (std::size_t k = 0; k < counts_.size(); ++k) {
      take(k, static_cast<int>(std::floor(fractions.counts[k] + tiny)));
    }
    set_order(fractions.prices);
  }

  std::vector<int> run() {
    fill();
    while (exchange()) {
    }
    return counts_;
  }

 private:
  /// The most worth per price first.
  void set_order(const std::vector<double>& prices) {
    std::vector<double> worth(counts_.size());
    for (std::size_t k = 0; k < counts_.size(); ++k) {
      double price = tiny;
      for (std::size_t r = 0; r < problem_.rows(); ++r) price += prices[r] * use(k, r);
      worth[k] = problem_.values[k] / price;
    }
    order_.resize(counts_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return worth[a] > worth[b]; });
    order_.resize(std::min(order_.size(), most_kinds));
  }

  double use(std::size_t k, std::size_t r) const { return problem_.uses[k * problem_.rows() + r]; }

  void take(std::size_t k, int count) {
    counts_[k] += count;
    value_ += count * problem_.values[k];
    for (std::size_t r = 0; r < problem_.rows(); ++r) left_[r] -= count * use(k, r);
  }

  /// The number of further things of a kind that the limits allow.
  int room_for(std::size_t k) const {
    double room = std::numeric_limits<int>::max();
    for (std::size_t r = 0; r < problem_.rows(); ++r) {
      if (use(k, r) > 0) room = std::min(room, std::floor((left_[r] + tiny) / use(k, r)));
    }
    return static_cast<int>(std::max(0.0, room));
  }

  /// Takes as many as fit of every kind, the best worth per price first.
  void fill() {
    for (const std::size_t k : order_) {
      if (problem_.values[k] <= 0) continue;
      // The limits still allow so many.
      const int room = room_for(k);
      if (room > 0) take(k, room);
    }
  }

  /// Gives up one thing, or two, for others in their room.
  bool exchange() {
    std::vector<std::size_t> used;
    for (std::size_t k = 0; k < counts_.size(); ++k) {
      if (counts_[k] > 0) used.push_back(k);
    }
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (improves({used[i]})) return true;
      for (std::size_t j = i; j < used.size(); ++j) {
        if (j == i && counts_[used[i]] < 2) continue;
        if (improves({used[i], used[j]})) return true;
      }
    }
    return false;
  }

  /// Gives things up, takes one of another kind and fills up; keeps that where it is worth more.
  bool improves(const std::vector<std::size_t>& given_up) {
    const WholePacking before = *this;
    for (const std::size_t k : given_up) take(k, -1);
    const std::vector<int> counts = counts_;
    const std::vector<double> left = left_;
    const double value = value_;
    for (const std::size_t first : order_) {
      if (room_for(first) == 0) continue;
      take(first, 1);
      fill();
      if (value_ > before.value_ + tiny) return true;
      counts_ = counts;
      left_ = left;
      value_ = value;
    }
    counts_ = before.counts_;
    left_ = before.left_;
    value_ = before.value_;
    return false;
  }

  const PackingProblem& problem_;
  std::vector<int> counts_;
  std::vector<double> left_;
  std::vector<std::size_t> order_;
  double value_ = 0;
};

}  // namespace

FractionalPacking pack_fractions(const PackingProblem& problem) { return Simplex(problem).run(); }

std::vector<int> pack_whole(const PackingProblem& problem, const FractionalPacking& fractions) {
  return WholePacking(problem, fractions).run();
}

}  // namespace heteroperf
