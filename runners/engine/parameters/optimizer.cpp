// SGD with momentum and AdamW on the flat arenas. The parameters form few long stretches: of each
// part of the rank the matrices (which decay) and the rest. A stretch that the rank owns is a
// *piece*, and an update is one pass over every piece, on the host or by one kernel on a device.
#include "runners/engine/parameters/optimizer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/kernel_launch.hpp"

namespace heteroperf {
namespace {

// The small constant is LibTorch's: a norm just above the limit is scaled a little below it.
double clip_scale(double limit, double norm) {
  constexpr double softener = 1e-6;
  return limit > 0 && norm > limit ? limit / (norm + softener) : 1.0;
}

}  // namespace

// Blocks have fixed bounds and the host adds them in their order: the same bits whatever the number
// of threads. A device's blocks are added by LibTorch, and it is read once, behind all ranges,
// because reading waits for it.
double square_sum(const at::Tensor& flat, std::span<const ArenaRange> ranges) {
  constexpr std::int64_t block = 1 << 14;  // elements; enough to be worth handing to a thread
  const at::TensorOptions wide = flat.options().dtype(at::kDouble);
  at::Tensor sum = at::zeros({1}, wide);
  for (const ArenaRange& range : ranges) {
    const std::int64_t blocks = (range.count() + block - 1) / block;
    const at::Tensor sums = at::empty({blocks}, wide);
    run_kernel(&KernelTable::square_sums, {blocks, block, flat}, range.count(),
               flat.narrow(0, range.begin, range.count()), sums);
    if (flat.is_cuda()) {
      sum += at::sum(sums);
      continue;
    }
    const double* const of_block = sums.const_data_ptr<double>();
    sum += std::accumulate(of_block, of_block + blocks, 0.0);
  }
  return sum.item().toDouble();
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

void Optimizer::update(double learning_rate, double gradient_norm, double scale) {
  HETEROPERF_EXPECT(std::isfinite(gradient_norm));
  ++updates_;
  scale *= clip_scale(recipe_.clip_norm, gradient_norm);
  const auto t = static_cast<double>(updates_);
  for (const Piece& piece : pieces_) {
    const auto [begin, count] = std::pair(piece.range.begin, piece.range.count());
    const at::Tensor weight = store_.master().narrow(0, begin, count);
    const at::Tensor gradient = store_.reduced_gradient().narrow(0, begin, count);
    const at::Tensor first = first_.narrow(0, piece.state, count);
    const Matrix elements = elements_of(weight);
    if (recipe_.kind == OptimizerKind::sgd) {
      const SgdScalars scalars{scale, piece.decay, recipe_.momentum, learning_rate};
      run_kernel(&KernelTable::sgd, elements, scalars, weight, gradient, first);
      continue;
    }
    const AdamwScalars scalars{.gradient_scale = scale,
                               .keep = 1.0 - learning_rate * piece.decay,
                               .beta1 = recipe_.beta1,
                               .beta2 = recipe_.beta2,
                               .epsilon = recipe_.epsilon,
                               .step = learning_rate / (1.0 - std::pow(recipe_.beta1, t)),
                               .root = 1.0 / std::sqrt(1.0 - std::pow(recipe_.beta2, t))};
    run_kernel(&KernelTable::adamw, elements, scalars, weight, gradient, first,
               second_.narrow(0, piece.state, count));
  }
  for (const ArenaRange& range : owned_) store_.publish(range.begin, range.end);
}

}  // namespace heteroperf
