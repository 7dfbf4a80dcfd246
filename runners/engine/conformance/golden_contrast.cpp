// The reach of rounding in a contrastive loss: golden.cpp's way through unit vectors, their
// similarities, the softmax of these both ways, and back. Each line is the absolute value of a
// derivative, term by term.
#include "runners/engine/conformance/golden.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace heteroperf {
namespace {

/// Vectors of length 1, and the lengths that they had.
struct UnitRows {
  explicit UnitRows(const at::Tensor& x)
      : lengths(x.square().sum(-1, true).sqrt().clamp_min(1e-12)), rows(x / lengths) {}
  at::Tensor lengths, rows;
};

/// log softmax along `dim`: the values, and their errors where the scores have `e`. A score's error
/// arrives by itself and, by its probability, in the logarithm of the sum.
Approximation log_softmax(const at::Tensor& scores, const at::Tensor& e, std::int64_t dim,
                          double u) {
  const at::Tensor sum = at::logsumexp(scores, {dim}, true), p = at::softmax(scores, dim);
  const double terms = root(static_cast<double>(scores.size(dim)));
  const at::Tensor largest = scores.abs().amax({dim}, true);
  return {scores - sum,
          e + (p * e).sum({dim}, true) + u * (scores.abs() + 2 * largest + terms + sum.abs())};
}

/// The error of the gradient of x from that of x / |x|, where this is `q` with the error `e`.
/// `relative`: the error of the unit vectors.
at::Tensor error_before_unit(const at::Tensor& q, const at::Tensor& e, const UnitRows& x,
                             double relative, double u) {
  const auto along = [&](const at::Tensor& t) {
    return x.rows.abs() * (t * x.rows.abs()).sum(-1, true);
  };
  const at::Tensor size = q.abs();
  const double sums = 3 * relative + (root(static_cast<double>(q.size(-1))) + 4) * u;
  return (e + along(e) + sums * (size + along(size))) / x.lengths;
}

}  // namespace

ContrastErrors contrast_errors(const at::Tensor& first, const at::Tensor& second,
                               const at::Tensor& scale, double upstream,
                               const Roundoffs& roundoff) {
  const double u = roundoff.accumulated, features = root(static_cast<double>(first.size(-1)));
  const UnitRows a(first), b(second);
  const double relative = (features / 2 + 2) * u;
  const double s = scale.item<double>(), factor = std::min(std::exp(s), 100.0);
  const double of_factor = (std::abs(s) + 3) * u;
  const at::Tensor sizes = at::matmul(a.rows.abs(), b.rows.abs().t());
  const at::Tensor scores = at::matmul(a.rows, b.rows.t()) * factor;
  const at::Tensor e =
      factor * (features * roundoff.product + 2 * relative) * sizes + of_factor * scores.abs();
  const Approximation rows = log_softmax(scores, e, 1, u), columns = log_softmax(scores, e, 0, u);
  const auto samples = static_cast<double>(first.size(0));
  ContrastErrors errors;
  errors.loss =
      (rows.error.diagonal() + columns.error.diagonal()).mean().reshape({1}) / 2 +
      root(samples) * u * (rows.value.diagonal().abs() + columns.value.diagonal().abs()).mean() / 2;
  // G = (p + p') / 2 − 1 on the diagonal, and what it makes of the vectors and of the scale.
  const at::Tensor p = rows.value.exp(), q = columns.value.exp();
  const at::Tensor g = (p + q) / 2 - at::eye(first.size(0), first.options());
  const at::Tensor g_error =
      (p * (rows.error + 2 * u) + q * (columns.error + 2 * u)) / 2 + u * ((p + q) / 2 + g.abs());
  const double share = std::abs(upstream) / samples;
  errors.scale = share * ((g_error * scores.abs() + g.abs() * e).sum() +
                          root(samples * samples) * u * (g * scores).abs().sum());
  errors.scale = errors.scale.reshape({1});
  const auto of_vectors = [&](const at::Tensor& weights, const at::Tensor& weights_error,
                              const UnitRows& x, const UnitRows& others) {
    const at::Tensor size = at::matmul(weights.abs(), others.rows.abs());
    const at::Tensor error = at::matmul(weights_error, others.rows.abs()) +
                             (root(samples) * roundoff.product + relative + of_factor) * size;
    return share * factor *
           error_before_unit(at::matmul(weights, others.rows), error, x, relative, u);
  };
  errors.vectors = {of_vectors(g, g_error, a, b), of_vectors(g.t(), g_error.t(), b, a)};
  return errors;
}

}  // namespace heteroperf
