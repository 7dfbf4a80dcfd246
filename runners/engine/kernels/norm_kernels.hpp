#pragma once

// Layer norm and RMS norm: every row is normalised by its own statistics. RMS norm is layer norm
// around 0 in place of the mean (`centred` is false). The backward pass computes the input's
// gradient and, where they are asked for, the sums that are the parameters' gradients: in one pass
// where a skeleton can make sums over rows on the way.
#include "runners/engine/kernels/operands.hpp"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

template <class T, bool centred>
void normalise(RowRange r, double eps, const void* x, const void* weight, const void* bias, void* y,
               void* mean, void* rstd) {
  using A = Acc<T>;
  const auto epsilon = static_cast<A>(eps);
  const T *const w = as<T>(weight), *const b = as<T>(bias);
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    const T* const px = row.of(as<T>(x));
    T* const py = row.of(as<T>(y));
    const auto n = static_cast<A>(row.columns);
    const auto value = [&](std::int64_t c) { return widen(px[c]); };
    const A mu = centred ? row.template sum<A>(value) / n : A(0);
    const auto square = [&](std::int64_t c) {
      const A d = widen(px[c]) - mu;
      return d * d;
    };
    const A rs = A(1) / std::sqrt(row.template sum<A>(square) / n + epsilon);
    const auto scaled = [&](std::int64_t c) { return (widen(px[c]) - mu) * rs * widen(w[c]); };
    if (b != nullptr) {
      row.each([&](std::int64_t c) { py[c] = narrow<T>(scaled(c) + widen(b[c])); });
    } else {
      row.each([&](std::int64_t c) { py[c] = narrow<T>(scaled(c)); });
    }
    if (centred) keep_of_row<T>(row, mean, mu);
    keep_of_row<T>(row, rstd, rs);
  };
  rows(r, body);
}
/// Keeps mean and 1/deviation of each row for the backward pass.
template <class T>
void layer_norm(RowRange r, double eps, const void* x, const void* weight, const void* bias,
                void* y, void* mean, void* rstd) {
  const auto run = mean != nullptr ? normalise<T, true> : normalise<T, false>;
  run(r, eps, x, weight, bias, y, mean, rstd);
}

/// Stores a gradient of row elements, or adds it to what is there.
template <class T, class Value>
HETEROPERF_THREAD void put_row(const Row& row, Accumulation accumulation, T* to,
                               const Value& value) {
  if (accumulation == Accumulation::add) {
    row.each([&](std::int64_t c) { to[c] = narrow<T>(widen(to[c]) + value(c)); });
  } else {
    row.each([&](std::int64_t c) { to[c] = narrow<T>(value(c)); });
  }
}

/// With g = dy · w: dx = rstd · (g − mean(g) − x̂ · mean(g x̂)), where x̂ = (x − mean) · rstd (Ba,
/// Kiros, Hinton, arXiv:1607.06450), or without mean(g) and x̂ = x · rstd (Zhang, Sennrich,
/// arXiv:1910.07467).
template <class T, bool centred>
void normalise_backward(RowRange r, const void* dy, const void* x, const void* weight,
                        const void* mean, const void* rstd, Accumulation accumulation, void* dx,
                        void* weight_partial, void* bias_partial) {
  using A = Acc<T>;
  using K = Kept<T>;
  // The gradients of weight and bias are sums over rows.
  const auto add_sums = HETEROPERF_FUNCTION(A d, A v, A rs, A mu, A & dw, A & db) {
    dw += d * (v - mu) * rs;
    db += d;
  };
  const auto add_sum = HETEROPERF_FUNCTION(A d, A v, A rs, A & dw) { dw += d * v * rs; };
  K *const dw = as<K>(weight_partial), *const db = as<K>(bias_partial);
  const bool on_the_way = rows_sum_columns && dx != nullptr && dw != nullptr;
  if (dw != nullptr && !on_the_way) {
    const auto sum = [&](auto f, auto... more) {
      sum_columns(r, f, Read<T>(dy), Read<T>(x), PerRow<K>(rstd), more...);
    };
    if constexpr (centred) {
      sum(add_sums, PerRow<K>(mean), ColumnSum<K>(dw), ColumnSum<K>(db));
    } else {
      sum(add_sum, ColumnSum<K>(dw));
    }
  }
  if (dx == nullptr) return;
  for (std::int64_t c = 0; on_the_way && c < r.columns; ++c) dw[c] = 0;
  for (std::int64_t c = 0; on_the_way && centred && c < r.columns; ++c) db[c] = 0;
  const T* const w = as<T>(weight);
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    const T *const pdy = row.of(as<T>(dy)), *const px = row.of(as<T>(x));
    const A rs = widen(as<K>(rstd)[row.index]), mu = centred ? widen(as<K>(mean)[row.index]) : A(0);
    const auto n = static_cast<A>(row.columns);
    const auto add = [&](std::int64_t c, A& sum, A& sum_x) {
      const A g = widen(pdy[c]) * widen(w[c]);
      sum_x += g * (widen(px[c]) - mu);
      if (centred) sum += g;
    };
    const auto add_all = [&](std::int64_t c, A& sum, A& sum_x) {
      add(c, sum, sum_x);
      const A d = widen(pdy[c]);
      dw[c] = static_cast<K>(widen(dw[c]) + d * (widen(px[c]) - mu) * rs);
      if (centred) db[c] = static_cast<K>(widen(db[c]) + d);
    };
    const TwoSums<A> sums = on_the_way ? row.template sums<A>(add_all) : row.template sums<A>(add);
    // The means of g and g x̂ go into two factors, so that the second loop is one line per
    // element.
    const A slope = -rs * rs * rs * sums.second / n, offset = -rs * sums.first / n;
    put_row(row, accumulation, row.of(as<T>(dx)), [&](std::int64_t c) {
      const A value = rs * widen(pdy[c]) * widen(w[c]) + slope * (widen(px[c]) - mu);
      return centred ? value + offset : value;
    });
  };
  rows(r, body);
}
template <class T>
void layer_norm_backward(RowRange r, const void* dy, const void* x, const void* weight,
                         const void* mean, const void* rstd, Accumulation accumulation, void* dx,
                         void* weight_partial, void* bias_partial) {
  const auto run = mean != nullptr ? normalise_backward<T, true> : normalise_backward<T, false>;
  run(r, dy, x, weight, mean, rstd, accumulation, dx, weight_partial, bias_partial);
}

}  // namespace
}  // namespace heteroperf
