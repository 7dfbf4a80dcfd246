// An element x is right where |x − r| ≤ c · (u_out · |r| + e), with r and e of golden.hpp, u_out
// the roundoff of the result's format, and one c for each class of operators. Where r is no number,
// x must be none; where r is infinite, or beyond the format, x must be that infinity.
//
// Errors that are small but lean to one side (rounding towards zero) pass that test and still move
// a training. So the mean signed error of all results must be within six of its standard errors of
// zero, both with the sign of x − r and with that of |x| − |r|.
//
// Results of a row or of a column may share an error (a row's deviation, a rounded gradient), so
// that they are not as many as they seem. With row i's share a, column j's share b, and what is
// left of each result independent, the variance of the mean of R x C results is var(a)/R + var(b)/C
// + var(rest)/RC. The variance of the means of rows, over R, has the first and the last term, that
// of the means of columns, over C, the second and the last: their sum is at least the variance, and
// at most twice it. It also holds where results of a column are alike in other ways, as
// neighbouring pixels may be, as long as columns are independent. A result of one dimension is one
// row.
//
// With many results the standard error is small beside the leans that right operators have, so a
// part of the errors' deviation is allowed besides, for each class of operators.
#include "runners/engine/conformance/result_check.hpp"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace heteroperf {
namespace {

constexpr double most_standard_errors = 6;
constexpr std::size_t most_told = 3;

/// Fewer results say nothing about a lean.
constexpr std::int64_t fewest_results = 64;

double largest(at::ScalarType type) {
  if (type == at::kDouble) return std::numeric_limits<double>::max();
  return type == at::kBFloat16 ? 0x1.FEp127
                               : static_cast<double>(std::numeric_limits<float>::max());
}

/// The variance of a mean that is known by the means of independent lines, and its degrees of
/// freedom.
struct MeanVariance {
  double value = 0, freedom = 0;
};
MeanVariance variance_of(const at::Tensor& means) {
  const auto n = static_cast<double>(means.numel());
  if (n < 2) return {};
  return {means.var().item<double>() / n, n - 1};
}

/// By how much |mean| of results in rows and columns is above `allowed` of their deviation, in its
/// standard errors. Student's t is told as the number of standard errors that is as unlikely for a
/// normal distribution (Wallace 1959), since the variance of few lines is hardly known.
double standard_errors(const at::Tensor& lines, double allowed) {
  if (lines.numel() < fewest_results) return 0;
  const MeanVariance rows = variance_of(lines.mean(1)), columns = variance_of(lines.mean(0));
  const double sum = rows.value + columns.value;
  if (!(sum > 0) || !std::isfinite(sum)) return 0;
  const auto share = [](const MeanVariance& v) {
    return v.freedom > 0 ? v.value * v.value / v.freedom : 0;
  };
  const double freedom = sum * sum / (share(rows) + share(columns));  // Welch and Satterthwaite
  const double excess =
      std::fabs(lines.mean().item<double>()) - allowed * lines.std().item<double>();
  if (excess <= 0) return 0;
  const double t = excess / std::sqrt(sum);
  return (8 * freedom + 1) / (8 * freedom + 3) * std::sqrt(freedom * std::log1p(t * t / freedom));
}

}  // namespace

double roundoff(at::ScalarType type) {
  if (type == at::kDouble) return 0x1p-53;
  return type == at::kBFloat16 ? 0x1p-8 : 0x1p-24;
}
double smallest(at::ScalarType type) { return type == at::kDouble ? 0x1p-1022 : 0x1p-126; }

void ResultCheck::hold(const std::string& what, const at::Tensor& actual,
                       const Approximation& expected, double u, double before, Leans leans) {
  if (!actual.defined()) return fail(fmt::format("{} is not delivered", what));
  const at::Tensor x = actual.to(at::kDouble).contiguous();
  const at::Tensor r = (expected.value + before).contiguous();
  const at::Tensor e =
      (expected.error + u * (expected.value.abs() + before)).expand_as(r).contiguous();
  if (x.sizes() != r.sizes()) return fail(fmt::format("{} has another shape", what));
  const double tiny = smallest(actual.scalar_type()), most = largest(actual.scalar_type());
  const double *const xs = x.const_data_ptr<double>(), *const rs = r.const_data_ptr<double>(),
                      *const es = e.const_data_ptr<double>();
  double worst = 0;
  std::int64_t worst_at = -1;
  double squares = 0, of_golden = 0, of_bounds = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    ++verdict_.results;
    if (!std::isfinite(rs[i]) || std::fabs(rs[i]) > most) {
      // A result that infinite operands leave undefined may be infinite as well.
      const bool unbounded = std::isinf(xs[i]);
      const bool undefined =
          std::isnan(xs[i]) || (operands_ == OperandValues::infinity && unbounded);
      const bool right = std::isnan(rs[i]) ? undefined : unbounded && (xs[i] > 0) == (rs[i] > 0);
      if (!right && !std::isinf(worst)) {
        worst = std::numeric_limits<double>::infinity();
        worst_at = i;
      }
      continue;
    }
    if (!std::isfinite(es[i])) continue;  // beside an infinite operand nothing is known
    const double error = std::fabs(xs[i] - rs[i]);
    const double ratio = std::isnan(error) ? std::numeric_limits<double>::infinity()
                                           : std::max(0.0, error - tiny) / (es[i] + tiny);
    note_unit(error, rs[i], u, tiny);
    squares += error * error;
    of_golden += rs[i] * rs[i];
    of_bounds += es[i] * es[i];
    if (ratio > worst || worst_at < 0) {
      worst = ratio;
      worst_at = i;
    }
    verdict_.largest_absolute = std::max(verdict_.largest_absolute, error);
    // A result that its own bound may hide has no relative error.
    if (std::fabs(rs[i]) > es[i] + tiny) {
      verdict_.largest_relative = std::max(verdict_.largest_relative, error / std::fabs(rs[i]));
    }
  }
  if (operands_ == OperandValues::drawn && of_golden > of_bounds) {
    verdict_.normalised_square = std::max(verdict_.normalised_square, squares / of_golden);
  }
  verdict_.worst = std::max(verdict_.worst, worst);
  if (!(worst <= verdict_.factor)) {
    fail(fmt::format("{} [{}] is {:.9g} instead of {:.9g}, {:.3g} times the bound's unit", what,
                     worst_at, xs[worst_at], rs[worst_at], worst));
    return;
  }
  if (operands_ == OperandValues::drawn && before == 0) hold_bias(what, x, r, e, leans);
}

void ResultCheck::repeat(const at::Tensor& first, const at::Tensor& second) {
  if (!first.defined()) {
    verdict_.repeatable &= !second.defined();
    return;
  }
  const at::Tensor equal = first.eq(second).logical_or(first.isnan().logical_and(second.isnan()));
  verdict_.repeatable &= equal.all().item<bool>();
}

void ResultCheck::note_unit(double error, double golden, double u, double tiny) {
  const double unit = 2 * u * std::exp2(std::floor(std::log2(std::max(std::fabs(golden), tiny))));
  constexpr std::array<double, 7> bounds{0, 0.5, 1, 2, 4, 16, 256};
  std::size_t bin = 0;
  while (bin < bounds.size() && !(error <= bounds[bin] * unit)) ++bin;
  ++verdict_.units[bin];
}

void ResultCheck::hold_bias(const std::string& what, const at::Tensor& x, const at::Tensor& r,
                            const at::Tensor& e, Leans leans) {
  if (x.dim() == 0 || x.numel() == 0 || leans == Leans::unknown) return;
  const bool images = x.dim() == 4;
  const auto lines = [&](const at::Tensor& tensor) {
    return images ? tensor.permute({0, 2, 3, 1}).reshape({-1, tensor.size(1)})
                  : tensor.reshape({-1, tensor.size(-1)});
  };
  at::Tensor error = lines((x - r) / (e + smallest(at::kFloat)));
  at::Tensor outward = lines((x.abs() - r.abs()) / (e + smallest(at::kFloat)));
  // What all results share, such as a rounded operand, is not seen in one row or one column.
  if (x.dim() > 1 && std::min(error.size(0), error.size(1)) < 2) return;
  for (const at::Tensor& signed_error : {error, outward}) {
    if (signed_error.is_same(outward) && leans == Leans::as_signed) return;
    const double bias = standard_errors(signed_error, verdict_.lean);
    verdict_.worst_bias = std::max(verdict_.worst_bias, bias);
    if (bias <= most_standard_errors) continue;
    fail(fmt::format("{} leans to one side: its mean error is {:.3g} standard errors from 0", what,
                     bias));
    return;
  }
}

void ResultCheck::fail(const std::string& how) {
  if (!is_wrong_) ++verdict_.wrong_cases;
  is_wrong_ = true;
  if (verdict_.wrong.size() < most_told) verdict_.wrong.push_back(text_ + ": " + how);
}

}  // namespace heteroperf
