#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runners/engine/parameters/parameter_store.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// Σ x² over ranges of a flat tensor, in float64 and in an order that depends on the ranges alone.
double square_sum(const at::Tensor& flat, std::span<const ArenaRange> ranges);

/// SGD with momentum or AdamW on ranges of a store's flat arenas. Its state covers those ranges
/// alone, so ranks that share the parameters (ZeRO-1) hold a share of it each.
class Optimizer {
 public:
  /// All of the store.
  Optimizer(const OptimizerRecipe& recipe, ParameterStore& store);
  /// `owned`: not overlapping.
  Optimizer(const OptimizerRecipe& recipe, ParameterStore& store,
            const std::vector<ArenaRange>& owned);

  /// Euclidean norm of the reduced gradient, owned or not; not finite when any element is not.
  double gradient_norm() const;
  /// One update of the owned elements at `learning_rate`. The gradient is `scale` times what the
  /// store has, scaled down to `clip_norm` when the recipe has one and `gradient_norm` (of the
  /// whole model's scaled gradient) is above it. Precondition: `gradient_norm` is finite.
  void update(double learning_rate, double gradient_norm, double scale = 1.0);

  /// A flat state of the arena elements it covers: sgd "velocity"; adamw "first_moment",
  /// "second_moment". `values` is a view: what is copied into it is restored.
  struct State {
    std::string name;
    ArenaRange covers;
    at::Tensor values;
  };
  std::vector<State> states() const;
  /// Updates so far; AdamW's corrections depend on it.
  std::uint64_t updates() const { return updates_; }
  void restore_updates(std::uint64_t updates) { updates_ = updates; }

 private:
  /// Elements of one decay; their state begins at `state`.
  struct Piece {
    ArenaRange range;
    double decay = 0;
    std::int64_t state = 0;
  };
  void cut(const std::vector<ArenaRange>& owned);

  OptimizerRecipe recipe_;
  ParameterStore& store_;
  std::vector<ArenaRange> owned_;
  std::vector<Piece> pieces_;
  at::Tensor first_, second_;  ///< moments; sgd: the velocity and nothing
  std::uint64_t updates_ = 0;
};

}  // namespace heteroperf
