#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "metrics/base/random.hpp"

namespace heteroperf {

/// Density of one numeric parameter: truncated normal kernels at the observations plus a broad
/// prior in the middle. Bandwidths are the larger distance to a neighbour (hyperopt's rule),
/// between range / min(100, n + 2) and the range. The newest 25 observations weigh 1, older ones
/// less, down to 1 / n; the prior weighs 1.
class ParzenNumeric {
 public:
  /// `values` in [low, high], in order of age, oldest first.
  ParzenNumeric(const std::vector<double>& values, double low, double high);

  double sample(RandomStream& random) const;
  double log_density(double x) const;
  std::size_t kernels() const { return kernels_.size(); }

 private:
  struct Kernel {
    double centre, width, weight;
    double factor;  // weight / (width · √(2π) · mass inside the range)
  };
  std::vector<Kernel> kernels_;
  double low_, high_, total_weight_ = 0.0;
};

/// Probabilities of one categorical parameter: observations plus a uniform prior, Laplace-smoothed
/// as in Optuna: a kernel gives (1/(n+1) + [c = c_i]) / (K/(n+1) + 1).
class ParzenCategorical {
 public:
  ParzenCategorical(const std::vector<double>& values, std::size_t choices);

  double sample(RandomStream& random) const;
  double log_density(double choice) const;
  std::size_t kernels() const { return probabilities_.size(); }

 private:
  std::vector<double> probabilities_;
};

}  // namespace heteroperf
