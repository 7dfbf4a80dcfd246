#pragma once

// The loss over rows of logits. The largest logit is subtracted before the exponential, so no sum
// overflows. With a cut vocabulary a rank has some columns only; row_top and softmax_sums give the
// numbers that the ranks add up.
#include "runners/engine/kernels/operands.hpp"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

template <class T>
HETEROPERF_KERNEL Acc<T> largest_of(const Row& row, const T* x) {
  return row.template largest<Acc<T>>([&](std::int64_t c) { return widen(x[c]); });
}
/// Σ exp(x − top) and Σ (x − top). All terms are differences x − top, which are at most 0, so that
/// nothing large cancels.
template <class T>
HETEROPERF_KERNEL TwoSums<Acc<T>> exponent_sums(const Row& row, const T* x, Acc<T> top) {
  using A = Acc<T>;
  return row.template sums<A>([&](std::int64_t c, A& first, A& second) {
    first += exponential(widen(x[c]) - top);
    second += widen(x[c]) - top;
  });
}

/// loss = (1 − ε) (lse − x_t) + ε (lse − mean(x)), lse = log Σ exp x (label smoothing: Szegedy et
/// al., arXiv:1512.00567, section 7). A row without a target, a negative one, has no loss.
template <class T>
void cross_entropy(RowRange r, CrossEntropyTerms terms, const void* logits,
                   const std::int64_t* targets, void* losses, void* lse) {
  using A = Acc<T>;
  const auto smoothing = static_cast<A>(terms.label_smoothing);
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    const T* const x = row.of(as<T>(logits));
    const A top = largest_of(row, x);
    const auto [sum, total] = exponent_sums(row, x, top);
    const A log_sum = std::log(sum);
    const std::int64_t target = targets[row.index];
    const A target_loss = target < 0 ? A(0) : log_sum - (widen(x[target]) - top);
    const A mean_loss = target < 0 ? A(0) : log_sum - total / static_cast<A>(row.columns);
    keep_of_row<T>(row, losses, target_loss + smoothing * (mean_loss - target_loss));
    keep_of_row<T>(row, lse, top + log_sum);
  };
  rows(r, body);
}

/// gradient = (softmax − smoothed one-hot) · scale, 0 where a row has no target; it may take the
/// logits' memory.
template <class T>
void cross_entropy_backward(RowRange r, CrossEntropyTerms terms, const void* logits,
                            const std::int64_t* targets, const void* lse, void* gradient) {
  using A = Acc<T>;
  const auto classes = static_cast<double>(terms.classes > 0 ? terms.classes : r.columns);
  const auto scale = static_cast<A>(terms.scale);
  const auto spread = static_cast<A>(terms.label_smoothing / classes * terms.scale);
  const auto hit = static_cast<A>((1.0 - terms.label_smoothing) * terms.scale);
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    const T* const x = row.of(as<T>(logits));
    T* const g = row.of(as<T>(gradient));
    const A shift = widen(as<Kept<T>>(lse)[row.index]);
    const A counts = targets[row.index] < 0 ? A(0) : A(1);
    const auto value = [&](std::int64_t c) {
      return (exponential(widen(x[c]) - shift) * scale - spread) * counts;
    };
    const std::int64_t target = targets[row.index] - terms.first;
    const bool here = counts > 0 && target >= 0 && target < row.columns;
    // The gradient may take the logits' memory, so the target's value is worked out before the
    // row is overwritten.
    const A at_target = here ? value(target) - hit : A(0);
    row.wait();
    row.each([&](std::int64_t c) { g[c] = narrow<T>(value(c)); });
    row.wait();
    if (here && row.leads()) g[target] = narrow<T>(at_target);
  };
  rows(r, body);
}

/// The largest of each row, for ranks that have some of the classes.
template <class T>
void row_top(RowRange r, const void* values, void* tops) {
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    keep_of_row<T>(row, tops, largest_of(row, row.of(as<T>(values))));
  };
  rows(r, body);
}

/// The three sums of each row over this rank's classes; see KernelTable::softmax_sums.
template <class T>
void softmax_sums(RowRange r, std::int64_t first, const void* logits, const std::int64_t* targets,
                  const void* tops, void* sums) {
  using A = Acc<T>;
  using K = Kept<T>;
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    const T* const x = row.of(as<T>(logits));
    const A top = widen(as<K>(tops)[row.index]);
    const auto [sum, total] = exponent_sums(row, x, top);
    if (!row.leads()) return;
    const std::int64_t target = targets[row.index] - first;
    const bool here = target >= 0 && target < row.columns;
    K* const out = as<K>(sums) + 3 * row.index;
    out[0] = static_cast<K>(sum);
    out[1] = static_cast<K>(total);
    out[2] = static_cast<K>(here ? widen(x[target]) - top : A(0));
  };
  rows(r, body);
}

}  // namespace
}  // namespace heteroperf
