#pragma once

// Layer norm and RMS norm: every row is normalised by its own statistics. The backward pass
// computes the input's gradient and, where they are asked for, the sums that are the parameters'
// gradients: in one pass where a skeleton can make sums over rows on the way.
#include "runners/engine/kernels/operands.hpp"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// Keeps mean and 1/deviation of each row for the backward pass.
template <class T>
void layer_norm(RowRange r, double eps, const void* x, const void* weight, const void* bias,
                void* y, void* mean, void* rstd) {
  using A = Acc<T>;
  const auto epsilon = static_cast<A>(eps);
  const T *const xs = as<T>(x), *const w = as<T>(weight), *const b = as<T>(bias);
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    const T* const px = xs + row.index * row.columns;
    T* const py = as<T>(y) + row.index * row.columns;
    const auto n = static_cast<A>(row.columns);
    const auto value = [&](std::int64_t c) { return widen(px[c]); };
    const A mu = row.template sum<A>(value) / n;
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
    keep_of_row<T>(row, mean, mu);
    keep_of_row<T>(row, rstd, rs);
  };
  rows(r, body);
}

/// Stores a gradient of row elements, or adds it to what is there.
template <class T, class Value>
HETEROPERF_KERNEL void put_row(const Row& row, Accumulation accumulation, T* to,
                               const Value& value) {
  if (accumulation == Accumulation::add) {
    row.each([&](std::int64_t c) { to[c] = narrow<T>(widen(to[c]) + value(c)); });
  } else {
    row.each([&](std::int64_t c) { to[c] = narrow<T>(value(c)); });
  }
}

/// dx = rstd · (g − mean(g) − x̂ · mean(g x̂)), g = dy · w (Ba, Kiros, Hinton, arXiv:1607.06450).
template <class T>
void layer_norm_backward(RowRange r, const void* dy, const void* x, const void* weight,
                         const void* mean, const void* rstd, Accumulation accumulation, void* dx,
                         void* weight_partial, void* bias_partial) {
  using A = Acc<T>;
  using K = Kept<T>;
  // The gradients of weight and bias are sums over rows.
  const auto add_sums = HETEROPERF_FUNCTION(A d, A v, A mu, A rs, A & dw, A & db) {
    dw += d * ((v - mu) * rs);
    db += d;
  };
  const bool on_the_way = rows_sum_columns && dx != nullptr && weight_partial != nullptr;
  if (weight_partial != nullptr && !on_the_way) {
    sum_columns(r, add_sums, Read<T>(dy), Read<T>(x), PerRow<K>(mean), PerRow<K>(rstd),
                ColumnSum<K>(weight_partial), ColumnSum<K>(bias_partial));
  }
  if (dx == nullptr) return;
  K *const dw = as<K>(weight_partial), *const db = as<K>(bias_partial);
  for (std::int64_t c = 0; on_the_way && c < r.columns; ++c) dw[c] = db[c] = K(0);
  const T* const w = as<T>(weight);
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    const T* const pdy = as<T>(dy) + row.index * row.columns;
    const T* const px = as<T>(x) + row.index * row.columns;
    const A mu = widen(as<K>(mean)[row.index]), rs = widen(as<K>(rstd)[row.index]);
    const auto n = static_cast<A>(row.columns);
    const auto add = [&](std::int64_t c, A& sum, A& sum_xhat) {
      const A d = widen(pdy[c]), xhat = (widen(px[c]) - mu) * rs;
      sum += d * widen(w[c]);
      sum_xhat += d * widen(w[c]) * xhat;
    };
    const auto add_all = [&](std::int64_t c, A& sum, A& sum_xhat) {
      add(c, sum, sum_xhat);
      A to_weight = widen(dw[c]), to_bias = widen(db[c]);
      add_sums(widen(pdy[c]), widen(px[c]), mu, rs, to_weight, to_bias);
      dw[c] = static_cast<K>(to_weight);
      db[c] = static_cast<K>(to_bias);
    };
    const TwoSums<A> sums = on_the_way ? row.template sums<A>(add_all) : row.template sums<A>(add);
    // The means of g and g x̂ go into two factors, so that the second loop is one line per
    // element.
    const A slope = -rs * sums.second / n, offset = -rs * sums.first / n;
    put_row(row, accumulation, as<T>(dx) + row.index * row.columns, [&](std::int64_t c) {
      const A xhat = (widen(px[c]) - mu) * rs;
      return rs * widen(pdy[c]) * widen(w[c]) + slope * xhat + offset;
    });
  };
  rows(r, body);
}

/// Keeps 1/root mean square of each row for the backward pass.
template <class T>
void rms_norm(RowRange r, double eps, const void* x, const void* weight, void* y, void* rstd) {
  using A = Acc<T>;
  const auto epsilon = static_cast<A>(eps);
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    const T* const px = as<T>(x) + row.index * row.columns;
    T* const py = as<T>(y) + row.index * row.columns;
    const T* const w = as<T>(weight);
    const auto square = [&](std::int64_t c) { return widen(px[c]) * widen(px[c]); };
    const A mean = row.template sum<A>(square) / static_cast<A>(row.columns);
    const A rs = A(1) / std::sqrt(mean + epsilon);
    row.each([&](std::int64_t c) { py[c] = narrow<T>(widen(px[c]) * rs * widen(w[c])); });
    keep_of_row<T>(row, rstd, rs);
  };
  rows(r, body);
}

/// dx = rstd · (g − x̂ · mean(g x̂)), x̂ = x · rstd (Zhang, Sennrich, arXiv:1910.07467).
template <class T>
void rms_norm_backward(RowRange r, const void* dy, const void* x, const void* weight,
                       const void* rstd, Accumulation accumulation, void* dx,
                       void* weight_partial) {
  using A = Acc<T>;
  using K = Kept<T>;
  const auto add_sum = HETEROPERF_FUNCTION(A d, A v, A rs, A & dw) { dw += d * v * rs; };
  const bool on_the_way = rows_sum_columns && dx != nullptr && weight_partial != nullptr;
  if (weight_partial != nullptr && !on_the_way) {
    sum_columns(r, add_sum, Read<T>(dy), Read<T>(x), PerRow<K>(rstd), ColumnSum<K>(weight_partial));
  }
  if (dx == nullptr) return;
  K* const dw = as<K>(weight_partial);
  for (std::int64_t c = 0; on_the_way && c < r.columns; ++c) dw[c] = K(0);
  const T* const w = as<T>(weight);
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    const T* const pdy = as<T>(dy) + row.index * row.columns;
    const T* const px = as<T>(x) + row.index * row.columns;
    const A rs = widen(as<K>(rstd)[row.index]);
    const auto term = [&](std::int64_t c) { return widen(pdy[c]) * widen(w[c]) * widen(px[c]); };
    const auto term_and_sum = [&](std::int64_t c) {
      A to_weight = widen(dw[c]);
      add_sum(widen(pdy[c]), widen(px[c]), rs, to_weight);
      dw[c] = static_cast<K>(to_weight);
      return term(c);
    };
    const A sum = on_the_way ? row.template sum<A>(term_and_sum) : row.template sum<A>(term);
    const A slope = -rs * rs * rs * sum / static_cast<A>(row.columns);
    put_row(row, accumulation, as<T>(dx) + row.index * row.columns, [&](std::int64_t c) {
      return rs * widen(pdy[c]) * widen(w[c]) + slope * widen(px[c]);
    });
  };
  rows(r, body);
}

}  // namespace
}  // namespace heteroperf
