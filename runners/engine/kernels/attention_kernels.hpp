#pragma once

// Softmax over the scores of one head's block of queries, and its gradient, in float32. Both work
// in place on rows of scores that products have made; see operators/own_attention.cpp.
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// The keys that the block's row `row` attends to: all, or those up to its own position.
HETEROPERF_KERNEL std::int64_t seen_keys(const ScoreRows& r, std::int64_t row) {
  const std::int64_t until_self = r.first + row + 1;
  return r.causal && until_self < r.keys ? until_self : r.keys;
}

/// scores become probabilities exp(x − log_sum) of x = scale · score + slope · (key − query), and
/// log_sums the logarithms of the sums. Keys that a row does not see have probability 0.
void softmax_rows(const ScoreRows& r, float* scores, float* log_sums) {
  for (std::int64_t row = 0; row < r.rows; ++row) {
    float* __restrict s = scores + row * r.stride;
    const std::int64_t n = seen_keys(r, row);
    const float scale = r.scale, slope = r.slope;
    const auto query = static_cast<float>(r.first + row);
    float top = -3.402823466e38F;
#pragma omp simd reduction(max : top)
    for (std::int64_t j = 0; j < n; ++j) {
      const float x = s[j] * scale + slope * (static_cast<float>(static_cast<int>(j)) - query);
      s[j] = x;
      top = x > top ? x : top;
    }
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < n; ++j) {
      s[j] = exponential(s[j] - top);
      sum += s[j];
    }
    const float share = 1 / sum;
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) s[j] *= share;
    for (std::int64_t j = n; j < r.keys; ++j) s[j] = 0;
    log_sums[row] = top + std::log(sum);
  }
}

/// scores become probabilities again, from the log_sums that softmax_rows gave.
void softmax_again(const ScoreRows& r, float* scores, const float* log_sums) {
  for (std::int64_t row = 0; row < r.rows; ++row) {
    float* __restrict s = scores + row * r.stride;
    const std::int64_t n = seen_keys(r, row);
    const float scale = r.scale, slope = r.slope, log_sum = log_sums[row];
    const auto query = static_cast<float>(r.first + row);
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) {
      const float x = s[j] * scale + slope * (static_cast<float>(static_cast<int>(j)) - query);
      s[j] = exponential(x - log_sum);
    }
    for (std::int64_t j = n; j < r.keys; ++j) s[j] = 0;
  }
}

/// Gradients of probabilities p become those of the scores: p · (gradient − Σ p · gradient) ·
/// scale. The sum is Σ output · its gradient, over the `width` numbers of a row's head.
void softmax_backward(const ScoreRows& r, const float* probabilities, float* gradients,
                      const float* output, const float* output_gradient, std::int64_t width,
                      std::int64_t output_stride) {
  for (std::int64_t row = 0; row < r.rows; ++row) {
    const float* __restrict p = probabilities + row * r.stride;
    const float* __restrict y = output + row * output_stride;
    const float* __restrict dy = output_gradient + row * output_stride;
    float* __restrict g = gradients + row * r.stride;
    float mean = 0;
#pragma omp simd reduction(+ : mean)
    for (std::int64_t d = 0; d < width; ++d) mean += y[d] * dy[d];
    const float scale = r.scale;
#pragma omp simd
    for (std::int64_t j = 0; j < r.keys; ++j) g[j] = p[j] * (g[j] - mean) * scale;
  }
}

}  // namespace
}  // namespace heteroperf
