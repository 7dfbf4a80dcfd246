#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "metrics/base/random.hpp"
#include "metrics/score.hpp"

namespace heteroperf {

enum class Scale { linear, logarithmic, categorical };

/// One hyper-parameter. Categorical: values are the indices 0 … choices − 1.
struct Dimension {
  Scale scale = Scale::linear;
  double low = 0.0, high = 1.0;  ///< numeric; logarithmic needs low > 0
  std::size_t choices = 0;       ///< categorical
};

struct TpeOptions {
  std::size_t random_start = 10;  ///< observations before the model is used
  std::size_t candidates = 24;
  double random_fraction = 0.1;  ///< for ever, so that no choice is locked out
  double best_fraction = 0.1;    ///< n_b = min(ceil(fraction · n), best_limit)
  std::size_t best_limit = 25;
  std::size_t history_limit = 256;  ///< observations kept: the best best_limit and the newest
};

struct TpeStatistics {
  std::uint64_t suggestions = 0, random = 0;
  std::uint64_t kernel_evaluations = 0;
};

/// Tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), each parameter on its own,
/// with hyperopt's neighbour bandwidths and Optuna's split. Suggestions that have no result yet
/// count among the not good ones, so parallel requests spread. A pure function of its calls.
class Tpe {
 public:
  /// Throws UserError on an empty or inverted dimension.
  Tpe(std::vector<Dimension> dimensions, TpeOptions options);

  /// One value per dimension.
  std::vector<double> suggest(RandomStream& random);

  /// Remembers that `point` is being evaluated under `id`.
  void begin(std::uint64_t id, std::vector<double> point);
  /// The result of `id`, which must be pending.
  void finish(std::uint64_t id, const Score& score);
  /// Forgets a pending `id` without a result.
  void drop(std::uint64_t id);

  const TpeStatistics& statistics() const { return statistics_; }

 private:
  using Points = std::vector<const std::vector<double>*>;
  struct Observation {
    std::vector<double> point;  // internal: logarithms taken
    Score score;
  };
  struct Split {
    Points good, rest;  // each in order of age
  };

  std::vector<std::size_t> best_first(std::size_t count) const;
  void forget_one();
  Split split() const;
  double suggest_one(std::size_t dimension, const Points& good, const Points& rest,
                     RandomStream& random);
  double draw_uniformly(std::size_t dimension, RandomStream& random) const;
  double outside(std::size_t dimension, double internal) const;

  std::vector<Dimension> dimensions_;
  TpeOptions options_;
  std::deque<Observation> finished_;
  std::map<std::uint64_t, std::vector<double>> pending_;
  TpeStatistics statistics_;
};

}  // namespace heteroperf
