// An element x is right where |x − r| ≤ c · (u_out · |r| + e), with r and e of golden.hpp, u_out
// the roundoff of the result's format, and one c for each class of operators. Where r is no number,
// x must be none; where r is infinite, or beyond the format, x must be that infinity.
//
// Errors that are small but lean to one side (rounding towards zero) pass that test and still move
// a training. So the mean signed error must be within six of its standard errors of zero, both with
// the sign of x − r and with that of |x| − |r|. Neighbours in a row or a column may share an error
// (a mean, a deviation), so the standard error is the largest of those over elements, over means of
// rows and over means of columns.
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

/// At most so many rows and columns are looked at, evenly spread: with 256 elements a lean of a
/// fifth of the errors' deviation, as good approximations of functions have, is not seen, and one
/// of half a unit in the last place is.
constexpr std::int64_t most_lines = 16, fewest_lines = 8;

double largest(at::ScalarType type) {
  if (type == at::kDouble) return std::numeric_limits<double>::max();
  return type == at::kBFloat16 ? 0x1.FEp127
                               : static_cast<double>(std::numeric_limits<float>::max());
}

/// |mean| over its standard error; 0 where there are too few lines to tell.
double standard_errors(const at::Tensor& all) {
  const auto spread = [](const at::Tensor& tensor, std::int64_t axis) {
    const std::int64_t step = (tensor.size(axis) + most_lines - 1) / most_lines;
    return tensor.slice(axis, 0, tensor.size(axis), step);
  };
  const at::Tensor sample = spread(spread(all, 0), 1);
  const std::int64_t rows = sample.size(0), columns = sample.size(1);
  if (rows < fewest_lines || columns < fewest_lines) return 0;
  const double mean = sample.mean().item<double>();
  const auto error_of = [](const at::Tensor& values) {
    const double n = static_cast<double>(values.numel());
    return std::sqrt(values.var().item<double>() / n);
  };
  const double error =
      std::max({error_of(sample), error_of(sample.mean(0)), error_of(sample.mean(1))});
  return error > 0 && std::isfinite(error) ? std::fabs(mean) / error : 0;
}

}  // namespace

double roundoff(at::ScalarType type) {
  if (type == at::kDouble) return 0x1p-53;
  return type == at::kBFloat16 ? 0x1p-8 : 0x1p-24;
}
double smallest(at::ScalarType type) { return type == at::kDouble ? 0x1p-1022 : 0x1p-126; }

void ResultCheck::hold(const std::string& what, const at::Tensor& actual,
                       const Approximation& expected, double u, double before) {
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
  double squares = 0, of_golden = 0;
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
    if (ratio > worst || worst_at < 0) {
      worst = ratio;
      worst_at = i;
    }
    verdict_.largest_absolute = std::max(verdict_.largest_absolute, error);
    if (rs[i] != 0) {
      verdict_.largest_relative = std::max(verdict_.largest_relative, error / std::fabs(rs[i]));
    }
  }
  if (of_golden > 0) {
    verdict_.normalised_square = std::max(verdict_.normalised_square, squares / of_golden);
  }
  verdict_.worst = std::max(verdict_.worst, worst);
  if (!(worst <= verdict_.factor)) {
    fail(fmt::format("{} [{}] is {:.9g} instead of {:.9g}, {:.3g} times the bound's unit", what,
                     worst_at, xs[worst_at], rs[worst_at], worst));
    return;
  }
  if (operands_ == OperandValues::drawn && before == 0) hold_bias(what, x, r, e);
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
                            const at::Tensor& e) {
  if (x.dim() == 0 || x.numel() == 0) return;
  const bool images = x.dim() == 4;
  const auto lines = [&](const at::Tensor& tensor) {
    return images ? tensor.permute({0, 2, 3, 1}).reshape({-1, tensor.size(1)})
                  : tensor.reshape({-1, tensor.size(-1)});
  };
  at::Tensor error = lines((x - r) / (e + smallest(at::kFloat)));
  at::Tensor outward = lines((x.abs() - r.abs()) / (e + smallest(at::kFloat)));
  for (const at::Tensor& signed_error : {error, outward}) {
    const double bias = standard_errors(signed_error);
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
