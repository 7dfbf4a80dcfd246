// The reach of rounding in attention: golden.cpp's way through the products and the softmax that
// an attention is made of. Each line is the absolute value of a derivative, term by term.
#include "runners/engine/conformance/golden.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace heteroperf {
namespace {

at::Tensor by_head(const at::Tensor& rows, std::int64_t first, std::int64_t heads,
                   std::int64_t width) {
  return rows.narrow(2, first * width, heads * width)
      .reshape({rows.size(0), rows.size(1), heads, width})
      .transpose(1, 2);
}
at::Tensor rows_of(const at::Tensor& heads) {
  return heads.transpose(1, 2).reshape({heads.size(0), heads.size(2), -1});
}

/// Queries, keys and values {B, heads, T, head_dim}, those that heads share repeated; the
/// probabilities; and the relative errors of these.
struct Scored {
  at::Tensor q, k, v, p, doubt;
  double scale = 1, d = 1, t = 1;  ///< the roots of the extents of a head and of a sequence
};

/// Keys and values stand in their rows behind `before` other heads.
Scored scored(const Attention& a, const at::Tensor& queries, const at::Tensor& packed,
              std::int64_t before, const Roundoffs& u) {
  const std::int64_t times = a.heads / a.kv_heads, length = packed.size(1);
  const auto shared = [&](std::int64_t first) {
    return by_head(packed, first, a.kv_heads, a.head_dim).repeat_interleave(times, 1);
  };
  Scored s{by_head(queries, 0, a.heads, a.head_dim),
           shared(before),
           shared(before + a.kv_heads),
           {},
           {}};
  const auto extent = static_cast<double>(a.head_dim);
  s.scale = 1 / std::sqrt(extent);
  s.d = root(extent);
  s.t = root(static_cast<double>(std::max(length, queries.size(1))));
  const at::Tensor position = at::arange(length, packed.options());
  const at::Tensor distance = at::arange(queries.size(1), packed.options()).unsqueeze(1) - position;
  at::Tensor scores = at::matmul(s.q, s.k.transpose(2, 3)) * s.scale;
  at::Tensor added = at::zeros_like(distance);
  if (a.alibi) {
    const at::Tensor head = at::arange(1, a.heads + 1, packed.options()).reshape({-1, 1, 1});
    added = -(head * (-8.0 / static_cast<double>(a.heads))).exp2() * distance;
  }
  scores = scores + added;
  if (a.causal) {
    scores = scores.masked_fill(distance < 0, -std::numeric_limits<double>::infinity());
  }
  s.p = at::softmax(scores, -1);
  const at::Tensor of_scores =
      s.d * u.product * s.scale * at::matmul(s.q.abs(), s.k.abs().transpose(2, 3)) +
      2 * u.accumulated * (at::where(s.p > 0, scores.abs(), at::zeros_like(s.p)) + added.abs());
  s.doubt = of_scores + (s.p * of_scores).sum(-1, true) + s.t * u.accumulated + u.attention;
  return s;
}

at::Tensor output_error(const Scored& s, const Roundoffs& u) {
  return rows_of(at::matmul(s.p * (s.doubt + s.t * u.accumulated), s.v.abs()));
}

/// The errors of the gradients of queries, keys and values, as rows.
struct GradientErrors {
  at::Tensor query, key, value;
};

GradientErrors gradient_errors(const Attention& kind, const Scored& s, const at::Tensor& g,
                               const Roundoffs& u) {
  const at::Tensor gradient = by_head(g, 0, kind.heads, kind.head_dim), size = gradient.abs();
  const at::Tensor dp = at::matmul(gradient, s.v.transpose(2, 3));
  const at::Tensor dp_error = s.d * u.product * at::matmul(size, s.v.abs().transpose(2, 3));
  const at::Tensor sum = (s.p * dp).sum(-1, true), out = at::matmul(s.p, s.v);
  const at::Tensor sum_error = (s.p * (s.doubt * dp.abs() + dp_error)).sum(-1, true) +
                               (s.d * u.accumulated + u.stored) * (size * out.abs()).sum(-1, true);
  const at::Tensor ds = s.p * (dp - sum);
  const at::Tensor ds_error =
      ds.abs() * (s.doubt + u.attention) +
      s.p * (dp_error + sum_error + 2 * u.accumulated * (dp.abs() + sum.abs()));
  const double from_sum = s.t * std::max(u.product, u.attention);
  // The gradients of shared keys and values are sums over the heads that share them.
  const auto gathered = [&](const at::Tensor& heads) {
    return heads.reshape({heads.size(0), kind.kv_heads, -1, heads.size(2), heads.size(3)}).sum(2);
  };
  const at::Tensor through = ds_error + from_sum * ds.abs();
  return {
      rows_of(s.scale * at::matmul(through, s.k.abs())),
      rows_of(gathered(s.scale * at::matmul(through.transpose(2, 3), s.q.abs()))),
      rows_of(gathered(at::matmul((s.p * (s.doubt + from_sum)).transpose(2, 3), size))),
  };
}

Attention without_mask(const CrossAttention& a) {
  return {a.heads, a.kv_heads, a.head_dim, false, false};
}

}  // namespace

at::Tensor attention_error(const Attention& kind, const at::Tensor& packed, const Roundoffs& u) {
  return output_error(scored(kind, packed, packed, kind.heads, u), u);
}

at::Tensor attention_gradient_error(const Attention& kind, const at::Tensor& packed,
                                    const at::Tensor& g, const Roundoffs& u) {
  const Scored s = scored(kind, packed, packed, kind.heads, u);
  const auto [query, key, value] = gradient_errors(kind, s, g, u);
  return at::cat({query, key, value}, 2);
}

at::Tensor attention_error(const CrossAttention& kind, const at::Tensor& queries,
                           const at::Tensor& others, const Roundoffs& u) {
  return output_error(scored(without_mask(kind), queries, others, 0, u), u);
}

std::array<at::Tensor, 2> attention_gradient_error(const CrossAttention& kind,
                                                   const at::Tensor& queries,
                                                   const at::Tensor& others, const at::Tensor& g,
                                                   const Roundoffs& u) {
  const Attention whole = without_mask(kind);
  const auto [query, key, value] =
      gradient_errors(whole, scored(whole, queries, others, 0, u), g, u);
  return {query, at::cat({key, value}, 2)};
}

}  // namespace heteroperf
