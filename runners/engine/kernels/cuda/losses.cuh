#pragma once

// The loss over rows of logits, a block of threads per row. With a cut vocabulary a rank has some
// columns only and the sums over ranks stand between the kernels.
#include "runners/engine/kernels/cuda/reductions.cuh"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// The largest of a row, on all threads of the block.
template <class T>
__device__ Acc<T> largest_of_row(const T* x, std::int64_t n) {
  Acc<T> top = widen(x[0]);
  HETEROPERF_FOR_COLUMNS(c, n) top = widen(x[c]) > top ? widen(x[c]) : top;
  return join_block(top, LargerOf());
}

/// Σ exp(x − top) and Σ (x − top) of a row.
template <class A>
struct ExponentSums {
  A exponentials, differences;
};
template <class T>
__device__ ExponentSums<Acc<T>> exponent_sums(const T* x, std::int64_t n, Acc<T> top) {
  ExponentSums<Acc<T>> sums{0, 0};
  HETEROPERF_FOR_COLUMNS(c, n) {
    sums.exponentials += exponential(widen(x[c]) - top);
    sums.differences += widen(x[c]) - top;
  }
  sums.exponentials = sum_block(sums.exponentials);
  sums.differences = sum_block(sums.differences);
  return sums;
}

// The formulas are softmax_kernels.hpp's.
template <class T>
__global__ void cross_entropy_rows(std::int64_t rows, std::int64_t n, Acc<T> smoothing,
                                   const T* logits, const std::int64_t* targets, Acc<T>* losses,
                                   Acc<T>* lse) {
  using A = Acc<T>;
  HETEROPERF_FOR_ROWS(row, rows) {
    const T* x = logits + row * n;
    const A top = largest_of_row(x, n);
    // Both sums of a row are joined over the block, so all threads go through this together.
    const ExponentSums<A> sums = exponent_sums(x, n, top);
    if (threadIdx.x != 0) continue;
    const A log_sum = std::log(sums.exponentials);
    const A target_loss = log_sum - (widen(x[targets[row]]) - top);
    const A mean_loss = log_sum - sums.differences / static_cast<A>(n);
    losses[row] = target_loss + smoothing * (mean_loss - target_loss);
    lse[row] = top + log_sum;
  }
}
/// A block of threads per row, up to a grid's limit; blocks then take several rows.
template <class T>
void cross_entropy(RowRange r, CrossEntropyTerms terms, const void* logits,
                   const std::int64_t* targets, void* losses, void* lse) {
  launch_rows(cross_entropy_rows<T>, r.end, r.columns, terms.label_smoothing, logits, targets,
              losses, lse);
}

/// Factors of softmax and of one-hot, and what every class loses to smoothing.
template <class A>
struct GradientTerms {
  A scale, spread, hit;
};
// gradient may be logits: every thread reads what it writes, and nothing else.
template <class T>
__global__ void cross_entropy_gradients(std::int64_t rows, std::int64_t n, std::int64_t first,
                                        GradientTerms<Acc<T>> terms, const T* logits,
                                        const std::int64_t* targets, const Acc<T>* lse,
                                        T* gradient) {
  HETEROPERF_FOR_MATRIX(row, rows, column, n) {
    const std::int64_t i = row * n + column;
    Acc<T> g = exponential(widen(logits[i]) - lse[row]) * terms.scale - terms.spread;
    // Columns are counted from this rank's first class.
    if (column == targets[row] - first) g -= terms.hit;
    gradient[i] = narrow<T>(g);
  }
}
/// The terms are worked out in double and rounded once.
template <class T>
void cross_entropy_backward(RowRange r, CrossEntropyTerms terms, const void* logits,
                            const std::int64_t* targets, const void* lse, void* gradient) {
  using A = Acc<T>;
  const auto classes = static_cast<double>(terms.classes > 0 ? terms.classes : r.columns);
  const GradientTerms<A> gradient_terms{
      static_cast<A>(terms.scale), static_cast<A>(terms.label_smoothing / classes * terms.scale),
      static_cast<A>((1.0 - terms.label_smoothing) * terms.scale)};
  launch_matrix(cross_entropy_gradients<T>, r.end, r.columns, terms.first, gradient_terms, logits,
                targets, lse, gradient);
}

/// The largest logit of each row.
template <class T>
__global__ void row_tops(std::int64_t rows, std::int64_t n, const T* x, Acc<T>* tops) {
  HETEROPERF_FOR_ROWS(row, rows) {
    const Acc<T> top = largest_of_row(x + row * n, n);
    if (threadIdx.x == 0) tops[row] = top;
  }
}
template <class T>
void row_top(RowRange r, const void* values, void* tops) {
  launch_rows(row_tops<T>, r.end, r.columns, values, tops);
}

/// The three sums of each row that the ranks add up.
template <class T>
__global__ void softmax_sum_rows(std::int64_t rows, std::int64_t n, std::int64_t first,
                                 const T* logits, const std::int64_t* targets, const Acc<T>* tops,
                                 Acc<T>* sums) {
  using A = Acc<T>;
  HETEROPERF_FOR_ROWS(row, rows) {
    const T* x = logits + row * n;
    const A top = tops[row];
    const ExponentSums<A> row_sums = exponent_sums(x, n, top);
    if (threadIdx.x != 0) continue;
    const std::int64_t target = targets[row] - first;
    sums[3 * row] = row_sums.exponentials;
    sums[3 * row + 1] = row_sums.differences;
    sums[3 * row + 2] = target >= 0 && target < n ? widen(x[target]) - top : A(0);
  }
}
/// Leaves the target's sum 0 where another rank has the target's class.
template <class T>
void softmax_sums(RowRange r, std::int64_t first, const void* logits, const std::int64_t* targets,
                  const void* tops, void* sums) {
  launch_rows(softmax_sum_rows<T>, r.end, r.columns, first, logits, targets, tops, sums);
}

}  // namespace
}  // namespace heteroperf
