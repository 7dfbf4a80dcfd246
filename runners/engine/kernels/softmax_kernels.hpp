#pragma once

// The loss over rows of logits. The largest logit is subtracted before the exponential, so no sum
// overflows. With a cut vocabulary a rank has some columns only; row_top and softmax_sums give the
// numbers that the ranks add up.
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

// loss = (1 − ε) (lse − x_t) + ε (lse − mean(x)), lse = log Σ exp x (label smoothing: Szegedy et
// al., arXiv:1512.00567, section 7).
template <class T>
void cross_entropy(RowRange r, CrossEntropyTerms terms, const void* logits,
                   const std::int64_t* targets, void* losses, void* lse) {
  using A = Acc<T>;
  const auto smoothing = static_cast<A>(terms.label_smoothing);
  const std::int64_t n = r.columns;
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* __restrict x = as<T>(logits) + row * n;
    A top = widen(x[0]), sum = 0, total = 0;
#pragma omp simd reduction(max : top)
    for (std::int64_t c = 0; c < n; ++c) top = widen(x[c]) > top ? widen(x[c]) : top;
#pragma omp simd reduction(+ : sum, total)
    for (std::int64_t c = 0; c < n; ++c) {
      sum += exponential(widen(x[c]) - top);
      total += widen(x[c]) - top;
    }
    const A log_sum = std::log(sum);
    // All terms are differences x − top, which are at most 0, so that nothing large cancels.
    const A target_loss = log_sum - (widen(x[targets[row]]) - top);
    const A mean_loss = log_sum - total / static_cast<A>(n);
    as<A>(losses)[row] = target_loss + smoothing * (mean_loss - target_loss);
    as<A>(lse)[row] = top + log_sum;
  }
}

/// gradient = (softmax − smoothed one-hot) · scale; it may take the logits' memory.
template <class T>
void cross_entropy_backward(RowRange r, CrossEntropyTerms terms, const void* logits,
                            const std::int64_t* targets, const void* lse, void* gradient) {
  using A = Acc<T>;
  const auto scale = static_cast<A>(terms.scale);
  const std::int64_t n = r.columns;
  const std::int64_t classes = terms.classes > 0 ? terms.classes : n;
  const auto spread =
      static_cast<A>(terms.label_smoothing / static_cast<double>(classes) * terms.scale);
  const auto hit = static_cast<A>((1.0 - terms.label_smoothing) * terms.scale);
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* x = as<T>(logits) + row * n;
    T* g = as<T>(gradient) + row * n;
    const A shift = as<A>(lse)[row];
    const std::int64_t target = targets[row] - terms.first;
    const bool here = target >= 0 && target < n;
    // The gradient may take the logits' memory, so the target's value is worked out before the row
    // is overwritten.
    const A at_target = here ? exponential(widen(x[target]) - shift) * scale - spread - hit : A(0);
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c) {
      g[c] = narrow<T>(exponential(widen(x[c]) - shift) * scale - spread);
    }
    if (here) g[target] = narrow<T>(at_target);
  }
}

/// The largest of each row, for ranks that have some of the classes.
template <class T>
void row_top(RowRange r, const void* values, void* tops) {
  using A = Acc<T>;
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* __restrict x = as<T>(values) + row * r.columns;
    A top = widen(x[0]);
#pragma omp simd reduction(max : top)
    for (std::int64_t c = 0; c < r.columns; ++c) top = widen(x[c]) > top ? widen(x[c]) : top;
    as<A>(tops)[row] = top;
  }
}

/// The three sums of each row over this rank's classes; see KernelTable::softmax_sums.
template <class T>
void softmax_sums(RowRange r, std::int64_t first, const void* logits, const std::int64_t* targets,
                  const void* tops, void* sums) {
  using A = Acc<T>;
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* __restrict x = as<T>(logits) + row * r.columns;
    const A top = as<A>(tops)[row];
    A sum = 0, total = 0;
#pragma omp simd reduction(+ : sum, total)
    for (std::int64_t c = 0; c < r.columns; ++c) {
      sum += exponential(widen(x[c]) - top);
      total += widen(x[c]) - top;
    }
    const std::int64_t target = targets[row] - first;
    A* out = as<A>(sums) + 3 * row;
    out[0] = sum;
    out[1] = total;
    out[2] = target >= 0 && target < r.columns ? widen(x[target]) - top : A(0);
  }
}

}  // namespace
}  // namespace heteroperf
