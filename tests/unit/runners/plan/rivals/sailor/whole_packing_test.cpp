#include "runners/plan/rivals/sailor/whole_packing.hpp"

#include <gtest/gtest.h>

#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

PackingProblem random_problem(RandomStream& random) {
  PackingProblem problem;
  const std::size_t rows = 1 + random.below(3), kinds = 1 + random.below(4);
  for (std::size_t r = 0; r < rows; ++r) {
    problem.limits.push_back(static_cast<double>(random.below(12)));
  }
  for (std::size_t k = 0; k < kinds; ++k) {
    problem.values.push_back(static_cast<double>(random.below(20)));
    for (std::size_t r = 0; r < rows; ++r) {
      problem.uses.push_back(static_cast<double>(random.below(4)) + (r == k % rows ? 1 : 0));
    }
  }
  return problem;
}

double value_of(const PackingProblem& problem, const std::vector<int>& counts) {
  double sum = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) sum += counts[k] * problem.values[k];
  return sum;
}

bool fits(const PackingProblem& problem, const std::vector<int>& counts) {
  for (std::size_t r = 0; r < problem.rows(); ++r) {
    double used = 0;
    for (std::size_t k = 0; k < counts.size(); ++k) {
      used += counts[k] * problem.uses[k * problem.rows() + r];
    }
    if (used > problem.limits[r] + 1e-6) return false;
  }
  return true;
}

double best_by_force(const PackingProblem& problem, std::vector<int> counts) {
  if (counts.size() == problem.values.size()) return value_of(problem, counts);
  double best = 0;
  counts.push_back(0);
  while (fits(problem, counts)) {
    best = std::max(best, best_by_force(problem, counts));
    ++counts.back();
  }
  return best;
}

TEST(WholePacking, IsBelowTheFractionsAndMostlyTheOptimum) {
  RandomStream random(3);
  int optimal = 0;
  for (int i = 0; i < 400; ++i) {
    const PackingProblem problem = random_problem(random);
    const FractionalPacking fractions = pack_fractions(problem);
    const std::vector<int> counts = pack_whole(problem, fractions);
    EXPECT_TRUE(fits(problem, counts));
    const double best = best_by_force(problem, {}), own = value_of(problem, counts);
    EXPECT_LE(own, best + 1e-6);
    EXPECT_LE(best, fractions.value + 1e-6);
    if (own > best - 1e-6) ++optimal;
  }
  EXPECT_GE(optimal, 380);
}

/// Prices times limits are the value: strong duality, and no kind is worth more than its price.
TEST(WholePacking, PricesProveTheFractions) {
  RandomStream random(5);
  for (int i = 0; i < 400; ++i) {
    const PackingProblem problem = random_problem(random);
    const FractionalPacking found = pack_fractions(problem);
    double sum = 0;
    for (std::size_t r = 0; r < problem.rows(); ++r) {
      EXPECT_GE(found.prices[r], -1e-6);
      sum += found.prices[r] * problem.limits[r];
    }
    EXPECT_NEAR(sum, found.value, 1e-6 * (1 + sum));
    for (std::size_t k = 0; k < problem.values.size(); ++k) {
      double price = 0;
      for (std::size_t r = 0; r < problem.rows(); ++r) {
        price += found.prices[r] * problem.uses[k * problem.rows() + r];
      }
      EXPECT_GE(price, problem.values[k] - 1e-5);
    }
  }
}

}  // namespace
}  // namespace heteroperf
