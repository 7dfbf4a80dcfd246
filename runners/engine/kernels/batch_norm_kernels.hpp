#pragma once

// Batch norm over channels-last images, seen as a matrix of pixels × channels. Statistics are made
// per block of rows and joined in the order of the blocks.
#include "runners/engine/kernels/activation_kernels.hpp"
#include "runners/engine/kernels/operands.hpp"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// Mean and sum of squared deviations of each column over the rows of the range.
template <class T>
void moments(RowRange r, const void* x, void* mean, void* deviation) {
  using A = Acc<T>;
  const auto add = HETEROPERF_FUNCTION(A v, A & sum) { sum += v; };
  const auto add_square = HETEROPERF_FUNCTION(A v, A center, A & sum) {
    const A d = v - center;
    sum += d * d;
  };
  sum_columns(r, add, Read<T>(x), ColumnSum<Kept<T>, true>(mean));
  sum_columns(r, add_square, Read<T>(x), SumOfBlock<Kept<T>>(mean), ColumnSum<Kept<T>>(deviation));
}

/// Visits the blocks that rows were cut into; a step has the factors with which a block joins those
/// before it.
template <class A>
struct WeightedBlocks : WalkByRow {
  std::int64_t rows, block_rows;
  struct Factors {
    A share, weight;
  };
  template <class Visit>
  HETEROPERF_KERNEL void operator()(std::int64_t, const Visit& visit) const {
    for (std::int64_t block = 0; block * block_rows < rows; ++block) {
      const std::int64_t before = block * block_rows, rest = rows - before;
      const std::int64_t count = rest < block_rows ? rest : block_rows;
      const A share = static_cast<A>(count) / static_cast<A>(before + count);
      visit(block, Factors{share, static_cast<A>(before) * share});
    }
  }
};
/// Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
/// variances" (1979), equation 2.1.
template <class T>
void combine_moments(RowRange r, std::int64_t rows, std::int64_t block_rows, const void* means,
                     const void* deviations, void* mean, void* variance) {
  using K = Kept<T>;
  using A = Acc<T>;
  using Blocks = WeightedBlocks<A>;
  const auto n = static_cast<A>(rows);
  const auto join =
      HETEROPERF_FUNCTION(A block_mean, A deviation, typename Blocks::Factors k, A & m, A & v) {
    const A delta = block_mean - m;
    m += delta * k.share;
    v += deviation + delta * delta * k.weight;
  };
  const auto finish = HETEROPERF_FUNCTION(A&, A & v) { v /= n; };
  fold({0, 1, r.begin, r.end, r.columns}, Blocks{{}, rows, block_rows}, join, finish,
       Read<K>(means), Read<K>(deviations), Write<K>(mean), Write<K>(variance));
}

/// Scale and shift per channel: y = x · scale + shift is the whole norm.
template <class T>
void batch_norm_affine(RowRange r, double eps, const void* mean, const void* variance,
                       const void* weight, const void* bias, void* rstd, void* scale, void* shift) {
  using K = Kept<T>;
  using A = Acc<T>;
  const auto epsilon = static_cast<A>(eps);
  const auto f = HETEROPERF_FUNCTION(A mu, A v, A w, A b, A & rs, A & factor, A & offset) {
    rs = A(1) / std::sqrt(v + epsilon);
    factor = w * rs;
    offset = b - mu * factor;
  };
  map<K>({r.begin, r.end, 1}, f, Read<K>(mean), Read<K>(variance), Read<T>(weight), Read<T>(bias),
         Write<K>(rstd), Write<K>(scale), Write<K>(shift));
}

/// dx = w · rstd · (g − mean(g) − x̂ · mean(g x̂)) (Ioffe, Szegedy, arXiv:1502.03167, section 3), as
/// factors per channel with which it is one line per element.
template <class T>
void batch_norm_coefficients(RowRange r, std::int64_t rows, const void* sum, const void* sum_xhat,
                             const void* rstd, const void* weight, void* a, void* b, void* c) {
  using K = Kept<T>;
  using A = Acc<T>;
  const auto n = static_cast<A>(rows);
  const auto f = HETEROPERF_FUNCTION(A s, A s_xhat, A rs, A w, A & factor, A & of_x, A & offset) {
    factor = w * rs;
    of_x = -factor * rs * s_xhat / n;
    offset = -factor * s / n;
  };
  map<K>({r.begin, r.end, 1}, f, Read<K>(sum), Read<K>(sum_xhat), Read<K>(rstd), Read<T>(weight),
         Write<K>(a), Write<K>(b), Write<K>(c));
}

template <class T>
void scale_shift(RowRange r, const void* x, const void* scale, const void* shift, bool relu,
                 const void* residual, void* y) {
  using Column = PerColumn<Kept<T>>;
  scaled_sum<T>(r, x, Column(scale), Column(shift), residual, relu, y);
}

/// A gradient behind the relu, whose mask is its output y, or made again from its input, or there
/// is none. Rounded as the forward stored it, so that both decide alike.
template <class T, class A, class Y, class Factor>
HETEROPERF_KERNEL A masked(A dy, [[maybe_unused]] A x, Y y, Factor scale, Factor shift) {
  if constexpr (std::is_same_v<Y, A>) return ReluFunction::gradient(dy, y);
  if constexpr (std::is_same_v<Factor, A>) {
    return ReluFunction::gradient(dy, rounded<T>(x * scale + shift));
  }
  return dy;
}
/// Calls body with the operands of the mask that the pointers say.
template <class T, class Body>
void with_mask(const void* y, const void* scale, const void* shift, const Body& body) {
  if (y != nullptr) return body(Read<T>(y), Absent(), Absent());
  if (scale == nullptr) return body(Absent(), Absent(), Absent());
  body(Absent(), PerColumn<Kept<T>>(scale), PerColumn<Kept<T>>(shift));
}

/// Σ g and Σ g x̂ of each column over the rows of the range.
template <class T>
void batch_norm_sums(RowRange r, const void* dy, const void* x, const void* y, const void* scale,
                     const void* shift, const void* mean, const void* rstd, void* sum,
                     void* sum_xhat) {
  using A = Acc<T>;
  using K = Kept<T>;
  const auto f = HETEROPERF_FUNCTION(A d, A v, auto out, auto factor, auto offset, A mu, A rs,
                                     A& to, A& to_xhat) {
    const A g = masked<T>(d, v, out, factor, offset);
    to += g;
    to_xhat += g * (v - mu) * rs;
  };
  with_mask<T>(y, scale, shift, [&](auto... mask) {
    sum_columns(r, f, Read<T>(dy), Read<T>(x), mask..., PerColumn<K>(mean), PerColumn<K>(rstd),
                ColumnSum<K>(sum), ColumnSum<K>(sum_xhat));
  });
}

/// One line per element, with factors per channel from batch_norm_coefficients(), and the gradient
/// behind the relu where it is asked for.
template <class T>
void batch_norm_backward(RowRange r, const void* dy, const void* x, const void* y,
                         const void* scale, const void* shift, const void* mean, const void* a,
                         const void* b, const void* c, void* dx, void* behind) {
  using A = Acc<T>;
  using K = Kept<T>;
  const auto f = HETEROPERF_FUNCTION(A d, A v, auto out, auto factor, auto offset, A mu, A of_g,
                                     A of_x, A constant, A& to, auto& to_masked) {
    const A g = masked<T>(d, v, out, factor, offset);
    if constexpr (std::is_same_v<decltype(to_masked), A&>) to_masked = g;
    to = of_g * g + of_x * (v - mu) + constant;
  };
  with_mask<T>(y, scale, shift, [&](auto... mask) {
    where_given(Write<T>(behind), [&](auto kept) {
      map<T>(r, f, Read<T>(dy), Read<T>(x), mask..., PerColumn<K>(mean), PerColumn<K>(a),
             PerColumn<K>(b), PerColumn<K>(c), Write<T>(dx), kept);
    });
  });
}

}  // namespace
}  // namespace heteroperf
