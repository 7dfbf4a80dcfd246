#include "runners/engine/optimizer.hpp"

#include <ATen/Dispatch.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <cmath>

#include "metrics/error.hpp"
#include "runners/engine/optimizer_kernels.hpp"
#include "runners/engine/parameter_store.hpp"

namespace heteroperf {
namespace {

struct Range {
  std::int64_t begin, end;
  double decay;
};

std::array<Range, 2> decay_ranges(const OptimizerRecipe& recipe, const ParameterStore& store) {
  const std::int64_t split = store.matrix_elements();
  const double rest = recipe.decay_matrices_only ? 0.0 : recipe.weight_decay;
  return {Range{0, split, recipe.weight_decay}, Range{split, store.elements(), rest}};
}

// The small constant is LibTorch's: a norm just above the limit is scaled a little below it.
double clip_scale(double limit, double norm) {
  constexpr double softener = 1e-6;
  return limit > 0 && norm > limit ? limit / (norm + softener) : 1.0;
}

}  // namespace

Optimizer::Optimizer(const OptimizerRecipe& recipe, ParameterStore& store)
    : recipe_(recipe), store_(store), first_(at::zeros_like(store.master())) {
  if (recipe_.kind == OptimizerKind::adamw) second_ = at::zeros_like(store.master());
}

double Optimizer::gradient_norm() const {
  double sum = 0;
  AT_DISPATCH_FLOATING_TYPES(store_.reduced_gradient().scalar_type(), "gradient_norm", [&] {
    sum = sum_of_squares(store_.reduced_gradient().const_data_ptr<scalar_t>(), store_.elements());
  });
  return std::sqrt(sum);
}

void Optimizer::update(double learning_rate, double gradient_norm) {
  HETEROPERF_EXPECT(std::isfinite(gradient_norm));
  ++updates_;
  const double scale = clip_scale(recipe_.clip_norm, gradient_norm);
  AT_DISPATCH_FLOATING_TYPES(store_.master().scalar_type(), "optimizer_update",
                             [&] { update_as<scalar_t>(learning_rate, scale); });
  store_.publish();
}

template <class T>
void Optimizer::update_as(double learning_rate, double scale) {
  T* weight = store_.master().mutable_data_ptr<T>();
  const T* gradient = store_.reduced_gradient().const_data_ptr<T>();
  T* first = first_.mutable_data_ptr<T>();
  const auto t = static_cast<double>(updates_);
  for (const Range& range : decay_ranges(recipe_, store_)) {
    if (recipe_.kind == OptimizerKind::sgd) {
      sgd_update(weight, gradient, first, range.begin, range.end,
                 {scale, range.decay, recipe_.momentum, learning_rate});
      continue;
    }
    adamw_update(weight, gradient, first, second_.mutable_data_ptr<T>(), range.begin, range.end,
                 {.gradient_scale = scale,
                  .keep = 1.0 - learning_rate * range.decay,
                  .beta1 = recipe_.beta1,
                  .beta2 = recipe_.beta2,
                  .epsilon = recipe_.epsilon,
                  .step = learning_rate / (1.0 - std::pow(recipe_.beta1, t)),
                  .root = 1.0 / std::sqrt(1.0 - std::pow(recipe_.beta2, t))});
  }
}

}  // namespace heteroperf
