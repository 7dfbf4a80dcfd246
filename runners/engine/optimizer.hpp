#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "workloads/recipe.hpp"

namespace heteroperf {

class ParameterStore;

/// SGD with momentum or AdamW on a store's flat arenas; its state is flat too.
class Optimizer {
 public:
  Optimizer(const OptimizerRecipe& recipe, ParameterStore& store);

  /// Euclidean norm of the reduced gradient; not finite when any element is not.
  double gradient_norm() const;
  /// One update at `learning_rate`, the gradient scaled down to `clip_norm` when the recipe has one
  /// and `gradient_norm` is above it. Precondition: `gradient_norm` is finite.
  void update(double learning_rate, double gradient_norm);

 private:
  template <class T>
  void update_as(double learning_rate, double scale);

  OptimizerRecipe recipe_;
  ParameterStore& store_;
  at::Tensor first_, second_;  ///< moments; sgd: the velocity and nothing
  std::uint64_t updates_ = 0;
};

}  // namespace heteroperf
