#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "metrics/base/random.hpp"
#include "metrics/score.hpp"

namespace heteroperf {

/// The density of one numeric parameter: truncated normal kernels at the observations plus a broad
/// prior in the middle. Bandwidths are the larger distance to a neighbour (hyperopt's rule),
/// between range / min(100, n + 2) and the range. The newest 25 observations weigh 1, older ones
/// less, down to 1 / n; the prior weighs 1.
class ParzenNumeric {
 public:
  /// `values` lie in [low, high], in order of age, oldest first.
  ParzenNumeric(const std::vector<double>& values, double low, double high);

  double sample(RandomStream& random) const;
  double log_density(double x) const;

 private:
  struct Kernel {
    double centre, width, weight;
    double factor;  ///< weight / (width · √(2π) · mass inside the range)
  };
  std::vector<Kernel> kernels_;
  double low_, high_, total_weight_ = 0.0;
};

/// The probabilities of one categorical parameter: observations plus a uniform prior,
/// Laplace-smoothed as in Optuna: a kernel gives (1/(n+1) + [c = c_i]) / (K/(n+1) + 1).
class ParzenCategorical {
 public:
  ParzenCategorical(const std::vector<double>& values, std::size_t choices);

  double sample(RandomStream& random) const;
  double log_density(double choice) const;

 private:
  std::vector<double> probabilities_;
};

enum class Scale { linear, logarithmic, categorical };

/// A hyper-parameter. The values of a categorical one are the indices 0 … choices − 1.
struct Dimension {
  Scale scale = Scale::linear;
  double low = 0.0, high = 1.0;  ///< for numeric scales; a logarithmic one needs low > 0
  std::size_t choices = 0;       ///< for categorical ones
};

struct TpeOptions {
  std::size_t random_start = 10;  ///< observations before the model is used
  std::size_t candidates = 24;
  double random_fraction =
      0.1;  ///< share of random suggestions, kept for ever so that no choice is locked out
  double best_fraction = 0.1;  ///< number of good observations: min(ceil(fraction · n), best_limit)
  std::size_t best_limit = 25;
  std::size_t history_limit =
      256;  ///< observations kept: the `best_limit` best ones and the newest
};

/// The tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), each parameter on its own,
/// with hyperopt's neighbour bandwidths and Optuna's split. It models the density of good and of
/// other observations, and suggests where their ratio is largest. Suggestions without a result yet
/// count among the others, so that parallel requests spread. It is a pure function of its calls.
class Tpe {
 public:
  /// No dimension is empty or inverted.
  Tpe(std::vector<Dimension> dimensions, TpeOptions options);

  /// Suggests a point, with one value per dimension.
  std::vector<double> suggest(RandomStream& random) const;

  /// Remembers that `point` is being evaluated under `id`.
  void begin(std::uint64_t id, std::vector<double> point);
  /// Takes the result of `id`, which must be pending.
  void finish(std::uint64_t id, const Score& score);
  /// Forgets a pending `id` without a result.
  void drop(std::uint64_t id) { pending_.erase(id); }

 private:
  using Points = std::vector<const std::vector<double>*>;
  struct Observation {
    std::vector<double> point;  ///< with logarithms taken
    Score score;
  };
  struct Split {
    Points good, rest;  ///< each in order of age
  };

  std::vector<std::size_t> best_first(std::size_t count) const;
  Split split() const;

  std::vector<Dimension> dimensions_;
  TpeOptions options_;
  std::deque<Observation> finished_;
  std::map<std::uint64_t, std::vector<double>> pending_;
};

}  // namespace heteroperf
