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

/// A number for each lane of a block of scores. Blocks are whole, so that a compiler needs no loop
/// for what is left of a row, and sums have one order whatever the vectors are.
struct ScoreLanes {
  float of[score_lanes];

  HETEROPERF_KERNEL static ScoreLanes all(float value) {
    ScoreLanes lanes;
    for (float& lane : lanes.of) lane = value;
    return lanes;
  }
  template <class Join>
  HETEROPERF_KERNEL float joined(const Join& join) {
    for (int half = score_lanes / 2; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) of[l] = join(of[l], of[l + half]);
    }
    return of[0];
  }
  HETEROPERF_KERNEL float sum() {
    return joined([](float a, float b) { return a + b; });
  }
};

/// Calls body(first, lane, whether number first + lane is one of `count`) for the blocks of lanes
/// that have any of so many numbers.
template <class Body>
HETEROPERF_KERNEL void for_lanes(std::int64_t count, const Body& body) {
  for (std::int64_t first = 0; first < count; first += score_lanes) {
    const int left = static_cast<int>(count - first < score_lanes ? count - first : score_lanes);
#pragma omp simd
    for (int lane = 0; lane < score_lanes; ++lane) body(first, lane, lane < left);
  }
}

/// The argument of a key's exponential: x = scale · score + slope · (key − query).
struct ScoreTerms {
  float scale, slope, query;
  HETEROPERF_KERNEL float at(float score, std::int64_t first, int lane) const {
    return score * scale + slope * (static_cast<float>(static_cast<int>(first) + lane) - query);
  }
};
HETEROPERF_KERNEL ScoreTerms terms_of(const ScoreRows& r, std::int64_t row) {
  return {r.scale, r.slope, static_cast<float>(r.first + row)};
}

/// The scores behind the whole blocks that have any of a row's seen keys become 0.
HETEROPERF_KERNEL void clear_behind(std::int64_t seen, const ScoreRows& r, float* scores) {
  const std::int64_t blocks = (seen + score_lanes - 1) / score_lanes;
  for (std::int64_t key = blocks * score_lanes; key < r.keys; ++key) scores[key] = 0;
}

/// scores become probabilities exp(x − log_sum), and log_sums the logarithms of the sums. Keys that
/// a row does not see have probability 0.
void softmax_rows(const ScoreRows& r, float* scores, float* log_sums) {
  constexpr float lowest = -3.402823466e38F;
  for (std::int64_t row = 0; row < r.rows; ++row) {
    float* __restrict s = scores + row * r.stride;
    const std::int64_t n = seen_keys(r, row);
    const ScoreTerms terms = terms_of(r, row);
    ScoreLanes tops = ScoreLanes::all(lowest);
    for_lanes(n, [&](std::int64_t j, int l, bool seen) HETEROPERF_INLINED {
      const float x = seen ? terms.at(s[j + l], j, l) : lowest;
      s[j + l] = x;
      tops.of[l] = x > tops.of[l] ? x : tops.of[l];
    });
    const float top = tops.joined([](float a, float b) { return a > b ? a : b; });
    ScoreLanes sums = ScoreLanes::all(0);
    for_lanes(n, [&](std::int64_t j, int l, bool seen) HETEROPERF_INLINED {
      const float e = seen ? exponential(s[j + l] - top) : 0.0f;
      s[j + l] = e;
      sums.of[l] += e;
    });
    const float sum = sums.sum(), share = 1 / sum;
    for_lanes(n, [&](std::int64_t j, int l, bool) HETEROPERF_INLINED { s[j + l] *= share; });
    clear_behind(n, r, s);
    log_sums[row] = top + std::log(sum);
  }
}

/// scores become probabilities again, from the log_sums that softmax_rows gave.
void softmax_again(const ScoreRows& r, float* scores, const float* log_sums) {
  for (std::int64_t row = 0; row < r.rows; ++row) {
    float* __restrict s = scores + row * r.stride;
    const std::int64_t n = seen_keys(r, row);
    const ScoreTerms terms = terms_of(r, row);
    const float log_sum = log_sums[row];
    for_lanes(n, [&](std::int64_t j, int l, bool seen) HETEROPERF_INLINED {
      s[j + l] = seen ? exponential(terms.at(s[j + l], j, l) - log_sum) : 0.0f;
    });
    clear_behind(n, r, s);
  }
}

/// Gradients of probabilities p become those of the scores: p · (gradient − Σ p · gradient) ·
/// scale, and 0 for keys that a row does not see. The sum is Σ output · its gradient, over the
/// `width` numbers of a row's head.
void softmax_backward(const ScoreRows& r, const float* probabilities, float* gradients,
                      const float* output, const float* output_gradient, std::int64_t width,
                      std::int64_t output_stride) {
  for (std::int64_t row = 0; row < r.rows; ++row) {
    const float* __restrict p = probabilities + row * r.stride;
    const float* __restrict y = output + row * output_stride;
    const float* __restrict dy = output_gradient + row * output_stride;
    float* __restrict g = gradients + row * r.stride;
    ScoreLanes sums = ScoreLanes::all(0);
    std::int64_t d = 0;
    for (; d + score_lanes <= width; d += score_lanes) {
#pragma omp simd
      for (int l = 0; l < score_lanes; ++l) sums.of[l] += y[d + l] * dy[d + l];
    }
    for (int l = 0; d < width; ++d, ++l) sums.of[l] += y[d] * dy[d];
    const float mean = sums.sum(), scale = r.scale;
    const std::int64_t n = seen_keys(r, row);
    for_lanes(n, [&](std::int64_t j, int l, bool seen) HETEROPERF_INLINED {
      g[j + l] = seen ? p[j + l] * (g[j + l] - mean) * scale : 0.0f;
    });
    clear_behind(n, r, g);
  }
}

}  // namespace
}  // namespace heteroperf
