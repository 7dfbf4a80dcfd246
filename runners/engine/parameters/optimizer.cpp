// SGD with momentum and AdamW on the flat arenas. The parameters form few long stretches: of each
// part of the rank the matrices (which decay) and the rest. A stretch that the rank owns is a
// *piece*, and an update is one pass over every piece, on the host or by one kernel on a device.
#include "runners/engine/parameters/optimizer.hpp"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "metrics/base/error.hpp"
#include "runners/engine/kernels/optimizer_kernels.hpp"
#include "runners/engine/operators/kernel_launch.hpp"

namespace heteroperf {
namespace {

// The small constant is LibTorch's: a norm just above the limit is scaled a little below it.
double clip_scale(double limit, double norm) {
  constexpr double softener = 1e-6;
  return limit > 0 && norm > limit ? limit / (norm + softener) : 1.0;
}

// Read once, behind all ranges: reading waits for the device.
double device_square_sum(const at::Tensor& flat, std::span<const ArenaRange> ranges) {
  const at::TensorOptions wide = flat.options().dtype(at::kDouble);
  const at::Tensor partials = at::empty({square_sum_blocks}, wide), sum = at::zeros({1}, wide);
  for (const ArenaRange& range : ranges) {
    const at::Tensor part = flat.narrow(0, range.begin, range.count());
    device_kernels().add_square_sum(element_of(flat.scalar_type()), part.const_data_ptr(),
                                    part.numel(), partials.data_ptr<double>(),
                                    sum.data_ptr<double>());
  }
  return sum.item().toDouble();
}

}  // namespace

double square_sum(const at::Tensor& flat, std::span<const ArenaRange> ranges) {
  if (flat.is_cuda()) return device_square_sum(flat, ranges);
  double sum = 0;
  AT_DISPATCH_FLOATING_TYPES(flat.scalar_type(), "square_sum", [&] {
    const auto* data = flat.const_data_ptr<scalar_t>();
    for (const ArenaRange& range : ranges) {
      sum += sum_of_squares(data + range.begin, range.count());
    }
  });
  return sum;
}

Optimizer::Optimizer(const OptimizerRecipe& recipe, ParameterStore& store)
    : Optimizer(recipe, store, {{0, store.elements()}}) {}

Optimizer::Optimizer(const OptimizerRecipe& recipe, ParameterStore& store,
                     const std::vector<ArenaRange>& owned)
    : recipe_(recipe), store_(store), owned_(owned) {
  cut(owned);
  std::int64_t elements = 0;
  for (const ArenaRange& range : owned) elements += range.count();
  first_ = at::zeros({elements}, store.master().options());
  if (recipe_.kind == OptimizerKind::adamw) second_ = at::zeros_like(first_);
}

// The states of the owned ranges follow one another; a piece knows where its state begins.
void Optimizer::cut(const std::vector<ArenaRange>& owned) {
  const double rest = recipe_.decay_matrices_only ? 0.0 : recipe_.weight_decay;
  std::int64_t state = 0;
  for (const ArenaRange& range : owned) {
    const auto add = [&](std::int64_t begin, std::int64_t end, double decay) {
      const ArenaRange piece{std::max(begin, range.begin), std::min(end, range.end)};
      if (piece.count() <= 0) return;
      pieces_.push_back({piece, decay, state + piece.begin - range.begin});
    };
    for (const ParameterStore::PartRange& part : store_.parts()) {
      add(part.begin, part.matrices_end, recipe_.weight_decay);
      add(part.matrices_end, part.end, rest);
    }
    state += range.count();
  }
}

// The states are views by owned range, under the names that a checkpoint has.
std::vector<Optimizer::State> Optimizer::states() const {
  std::vector<State> states;
  const auto add = [&](const char* name, const at::Tensor& flat) {
    std::int64_t at = 0;
    for (const ArenaRange& range : owned_) {
      states.push_back({name, range, flat.narrow(0, at, range.count())});
      at += range.count();
    }
  };
  if (recipe_.kind == OptimizerKind::sgd) {
    add("velocity", first_);
  } else {
    add("first_moment", first_);
    add("second_moment", second_);
  }
  return states;
}

double Optimizer::gradient_norm() const {
  const ArenaRange all{0, store_.elements()};
  return std::sqrt(square_sum(store_.reduced_gradient(), std::span(&all, 1)));
}

void Optimizer::update(double learning_rate, double gradient_norm) {
  HETEROPERF_EXPECT(std::isfinite(gradient_norm));
  ++updates_;
  const double scale = clip_scale(recipe_.clip_norm, gradient_norm);
  AT_DISPATCH_FLOATING_TYPES(store_.master().scalar_type(), "optimizer_update",
                             [&] { update_as<scalar_t>(learning_rate, scale); });
  for (const ArenaRange& range : owned_) store_.publish(range.begin, range.end);
}

template <class T>
void Optimizer::update_as(double learning_rate, double scale) {
  T* weights = store_.master().mutable_data_ptr<T>();
  const T* gradients = store_.reduced_gradient().const_data_ptr<T>();
  T* firsts = first_.mutable_data_ptr<T>();
  const bool on_device = store_.master().is_cuda();
  const Element element = element_of(store_.master().scalar_type());
  const auto t = static_cast<double>(updates_);
  for (const Piece& piece : pieces_) {
    T* weight = weights + piece.range.begin;
    const T* gradient = gradients + piece.range.begin;
    T* first = firsts + piece.state;
    const std::int64_t count = piece.range.count();
    if (recipe_.kind == OptimizerKind::sgd) {
      const SgdScalars scalars{scale, piece.decay, recipe_.momentum, learning_rate};
      on_device ? device_kernels().sgd_update(element, weight, gradient, first, count, scalars)
                : sgd_update(weight, gradient, first, 0, count, scalars);
      continue;
    }
    T* second = second_.mutable_data_ptr<T>() + piece.state;
    const AdamwScalars scalars{.gradient_scale = scale,
                               .keep = 1.0 - learning_rate * piece.decay,
                               .beta1 = recipe_.beta1,
                               .beta2 = recipe_.beta2,
                               .epsilon = recipe_.epsilon,
                               .step = learning_rate / (1.0 - std::pow(recipe_.beta1, t)),
                               .root = 1.0 / std::sqrt(1.0 - std::pow(recipe_.beta2, t))};
    on_device
        ? device_kernels().adamw_update(element, weight, gradient, first, second, count, scalars)
        : adamw_update(weight, gradient, first, second, 0, count, scalars);
  }
}

}  // namespace heteroperf
