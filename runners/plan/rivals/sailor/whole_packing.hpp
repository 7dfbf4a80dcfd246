#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace heteroperf {

/// Kinds of things that take of some resources and are worth something: how many of each?
/// Maximises Σ values[k] · n_k with Σ uses[k · rows + r] · n_k ≤ limits[r]. All numbers are 0 or
/// more, and every kind takes of one resource at least.
/// `uses` has the numbers of one kind next to each other.
struct PackingProblem {
  std::vector<double> limits;
  std::vector<double> values;
  std::vector<double> uses;
  std::size_t rows() const { return limits.size(); }
  double use(std::size_t kind, std::size_t resource) const {
    return uses[kind * rows() + resource];
  }
  /// Adds a kind that takes nothing yet, and returns what it takes of each resource.
  std::span<double> add(double value) {
    values.push_back(value);
    uses.resize(uses.size() + rows(), 0);
    return std::span(uses).last(rows());
  }
};

/// With fractions of things: the linear program's optimum, by the simplex method (Dantzig 1951).
struct FractionalPacking {
  double value = 0;
  std::vector<double> counts;  ///< by kind; no more than rows() are positive
  std::vector<double> prices;  ///< the worth of one unit of each resource
};
FractionalPacking pack_fractions(const PackingProblem& problem);

/// With whole things: the fractional optimum cut down, filled up and improved by exchanges of one
/// or two things. No promise to be the optimum; deterministic.
std::vector<int> pack_whole(const PackingProblem& problem, const FractionalPacking& fractions);

}  // namespace heteroperf
