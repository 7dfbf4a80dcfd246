// Holds the operators of a device against the reference: is every number that it computes as near
// to the true one as rounding explains?
//
// Each case runs three times on the device: into memory full of NaN, added to gradients that are
// there already, and once more to see if the bits are the same. An element x is right where
// |x − r| ≤ c · (u_out · |r| + e), with r and e of golden.hpp, u_out the roundoff of the result's
// format, and one c for each class of operators. Where r is no number, x must be none; where r is
// infinite, or beyond the format, x must be that infinity.
//
// Errors that are small but lean to one side (rounding towards zero) pass that test and still move
// a training. So the mean signed error must be within six of its standard errors of zero, both with
// the sign of x − r and with that of |x| − |r|. Neighbours in a row or a column may share an error
// (a mean, a deviation), so the standard error is the largest of those over elements, over means of
// rows and over means of columns.
#include "runners/engine/conformance/operator_cases.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/operators/active_device.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/load_cuda.hpp"

namespace heteroperf {
namespace {

constexpr double most_standard_errors = 6;
constexpr std::size_t most_told = 3;

/// c of each class of operators.
double factor_of(const std::string& name) {
  const auto has = [&](const char* kind) { return name.find(kind) != std::string::npos; };
  if (has("linear") || has("conv2d")) return 6;
  return has("attention") || has("norm") ? 4 : 3;
}

double roundoff(at::ScalarType type) {
  if (type == at::kDouble) return 0x1p-53;
  return type == at::kBFloat16 ? 0x1p-8 : 0x1p-24;
}
/// The smallest normal number: below it a device may give zero.
double smallest(at::ScalarType type) { return type == at::kDouble ? 0x1p-1022 : 0x1p-126; }
double largest(at::ScalarType type) {
  if (type == at::kDouble) return std::numeric_limits<double>::max();
  return type == at::kBFloat16 ? 0x1.FEp127
                               : static_cast<double>(std::numeric_limits<float>::max());
}

Roundoffs roundoffs_of(at::ScalarType type) {
  Roundoffs u;
  u.stored = roundoff(type);
  u.accumulated = roundoff(accumulation_type(type));
  const OperandFormat format = active_device().operand_format();
  const double operand = format == OperandFormat::stored ? 0
                         : format == OperandFormat::bf16 ? 0x1p-8
                                                         : 0x1p-11;
  u.product = std::max(u.accumulated, operand);
  // LibTorch's attention rounds probabilities to the format of the operands.
  u.attention = std::max(operand, type == at::kBFloat16 ? u.stored : 0);
  return u;
}

/// Keeps gradients of inputs; with `there`, sums begin with what lies there.
class CheckedSlots final : public GradientSink {
 public:
  explicit CheckedSlots(std::vector<bool> wanted) : gradients(wanted.size()), wanted_(wanted) {}
  bool wanted(std::size_t input) const override { return wanted_[input]; }
  at::Tensor reusable(std::size_t input) override { return std::exchange(gradients[input], {}); }
  void put(std::size_t input, at::Tensor gradient) override {
    gradients[input] = gradients[input].defined() ? gradients[input] + gradient : gradient;
  }
  void replace(std::size_t input, at::Tensor gradient) override {
    gradients[input] = std::move(gradient);
  }
  Tensors gradients;

 private:
  std::vector<bool> wanted_;
};

/// A tensor that a device made, on the host, and what it must be.
struct Checked {
  std::string what;
  at::Tensor actual;
  Approximation expected;
};

/// Everything that one run of an operator leaves.
struct Outcome {
  at::Tensor output;
  Tensors inputs, parameters;
};

class OperatorCheck {
 public:
  OperatorCheck(const OperatorCase& one, at::ScalarType type, std::uint64_t seed, at::Device device,
                OperatorVerdict& verdict)
      : one_(one),
        type_(type),
        device_(device),
        verdict_(verdict),
        group_(group_of(one, type)),
        call_(draw_call(one, group_, type, seed)) {
    wanted_.reserve(call_.inputs.size());
    for (std::size_t i = 0; i < call_.inputs.size(); ++i) {
      wanted_.push_back(call_.inputs[i].is_floating_point());
    }
  }

  /// Runs once, whatever the outcome.
  void try_out() { compute(Accumulation::overwrite); }

  void run() {
    ++verdict_.cases;
    const GoldenResult golden = golden_result(call_, roundoffs_of(type_));
    const Outcome fresh = compute(Accumulation::overwrite);
    hold(golden, fresh, 0);
    if (one_.operands == OperandValues::drawn) hold(golden, compute(Accumulation::add), there);
    const Outcome again = compute(Accumulation::overwrite);
    verdict_.repeatable &= same(fresh.output, again.output);
    for (std::size_t i = 0; i < fresh.inputs.size(); ++i) {
      verdict_.repeatable &= same(fresh.inputs[i], again.inputs[i]);
    }
    for (std::size_t i = 0; i < fresh.parameters.size(); ++i) {
      verdict_.repeatable &= same(fresh.parameters[i], again.parameters[i]);
    }
    if (is_wrong_) ++verdict_.wrong_cases;
  }

 private:
  /// Gradients are added to this where they are not overwritten.
  static constexpr double there = 0.5;

  static OperatorGroup group_of(const OperatorCase& one, at::ScalarType type) {
    for (OperatorGroup& group : make_operator_groups(*one.graph, type)) {
      if (group.nodes == one.nodes) return std::move(group);
    }
    throw Error(ErrorKind::internal, {{case_text(one) + " is no operator of its graph", "", ""}});
  }

  /// A copy with the strides of the original: a layout is part of a case.
  at::Tensor brought(const at::Tensor& tensor) const {
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device_))
        .copy_(tensor);
  }

  Outcome compute(Accumulation accumulation) {
    Tensors inputs, parameters, saved, sums;
    for (const at::Tensor& input : call_.inputs) inputs.push_back(brought(input));
    for (const at::Tensor& parameter : call_.parameters) {
      parameters.push_back(brought(parameter));
      const bool adds = accumulation == Accumulation::add;
      sums.push_back(at::full_like(parameters.back(),
                                   adds ? there : std::numeric_limits<double>::quiet_NaN(),
                                   at::TensorOptions().dtype(accumulation_type(type_))));
    }
    PassContext context = call_.context;
    context.accumulation = accumulation;
    Outcome outcome;
    outcome.output = host(group_.op->forward(inputs, parameters, saved, context));
    CheckedSlots sink(wanted_);
    group_.op->backward(brought(call_.output_gradient), parameters, saved, context, sink, sums);
    // A tensor that is two inputs has the sum of both gradients.
    for (std::size_t i = 0; i < group_.inputs.size(); ++i) {
      const auto first = static_cast<std::size_t>(
          std::ranges::find(group_.inputs, group_.inputs[i]) - group_.inputs.begin());
      if (first == i) {
        outcome.inputs.push_back(host(sink.gradients[i]));
        continue;
      }
      outcome.inputs[first] = outcome.inputs[first] + host(sink.gradients[i]);
      outcome.inputs.emplace_back();
    }
    for (const at::Tensor& sum : sums) outcome.parameters.push_back(host(sum));
    return outcome;
  }
  static at::Tensor host(const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(at::kCPU, false, true) : tensor;
  }
  static bool same(const at::Tensor& a, const at::Tensor& b) {
    if (!a.defined()) return !b.defined();
    const at::Tensor equal = a.eq(b).logical_or(a.isnan().logical_and(b.isnan()));
    return equal.all().item<bool>();
  }

  void hold(const GoldenResult& golden, const Outcome& outcome, double before) {
    if (before == 0) hold("output", outcome.output, golden.output, 0);
    for (std::size_t i = 0; i < golden.input_gradients.size() && before == 0; ++i) {
      if (!golden.input_gradients[i] || !outcome.inputs[i].defined()) continue;
      hold(fmt::format("gradient of input {}", i), outcome.inputs[i], *golden.input_gradients[i],
           0);
    }
    for (std::size_t i = 0; i < golden.parameter_gradients.size(); ++i) {
      hold(fmt::format("gradient of parameter {}{}", i, before > 0 ? ", added" : ""),
           outcome.parameters[i], golden.parameter_gradients[i], before);
    }
  }

  void hold(const std::string& what, const at::Tensor& actual, const Approximation& expected,
            double before) {
    // A sum of products is stored in the operands' format on its way to a wider buffer.
    const double u = std::max(roundoff(actual.scalar_type()), roundoff(type_));
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
        const bool infinite = std::isinf(xs[i]);
        const bool undefined =
            std::isnan(xs[i]) || (one_.operands == OperandValues::infinity && infinite);
        const bool right = std::isnan(rs[i]) ? undefined : infinite && (xs[i] > 0) == (rs[i] > 0);
        if (!right && worst_at < 0) {
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
    if (one_.operands == OperandValues::drawn && before == 0) hold_bias(what, x, r, e);
  }

  void note_unit(double error, double golden, double u, double tiny) {
    const double unit = 2 * u * std::exp2(std::floor(std::log2(std::max(std::fabs(golden), tiny))));
    constexpr std::array<double, 7> bounds{0, 0.5, 1, 2, 4, 16, 256};
    std::size_t bin = 0;
    while (bin < bounds.size() && !(error <= bounds[bin] * unit)) ++bin;
    ++verdict_.units[bin];
  }

  /// At most so many rows and columns are looked at, evenly spread: with 256 elements a lean of a
  /// fifth of the errors' deviation, as good approximations of functions have, is not seen, and one
  /// of half a unit in the last place is.
  static constexpr std::int64_t most_lines = 16, fewest_lines = 8;

  void hold_bias(const std::string& what, const at::Tensor& x, const at::Tensor& r,
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
      fail(fmt::format("{} leans to one side: its mean error is {:.3g} standard errors from 0",
                       what, bias));
      return;
    }
  }

  /// |mean| over its standard error; 0 where there are too few lines to tell.
  static double standard_errors(const at::Tensor& all) {
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

  void fail(const std::string& how) {
    is_wrong_ = true;
    if (verdict_.wrong.size() < most_told) {
      verdict_.wrong.push_back(fmt::format("{}: {}", case_text(one_), how));
    }
  }

  const OperatorCase& one_;
  at::ScalarType type_;
  at::Device device_;
  OperatorVerdict& verdict_;
  OperatorGroup group_;
  OperatorCall call_;
  std::vector<bool> wanted_;
  bool is_wrong_ = false;
};

/// Memory that is asked for is full of NaN while this stands, so that nothing rests on what was
/// there before.
class PoisonedMemory {
 public:
  PoisonedMemory() : before_(at::globalContext().deterministicAlgorithms()) {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
  }
  ~PoisonedMemory() { at::globalContext().setDeterministicAlgorithms(before_, true); }
  PoisonedMemory(const PoisonedMemory&) = delete;
  PoisonedMemory& operator=(const PoisonedMemory&) = delete;

 private:
  bool before_;
};

}  // namespace

std::vector<OperatorVerdict> check_operators(const ConformanceRequest& request) {
  const at::ScalarType type = scalar_type(request.precision);
  const RankMemory memory;
  use_threads(request.threads);
  const MemoryScope charged(memory);
  const c10::InferenceMode no_tape;
  const PoisonedMemory poisoned;
  if (request.gpu) use_cuda(*request.gpu);
  const at::Device device = request.gpu ? cuda_device(*request.gpu) : at::Device(at::kCPU);

  std::vector<OperatorCase> cases;
  if (request.compare) cases = corner_cases(request.quick);
  for (const CheckedWorkload& workload : request.workloads) {
    for (OperatorCase& one : cases_of(workload.graph, workload.samples)) {
      cases.push_back(std::move(one));
    }
  }
  std::map<std::string, OperatorVerdict> verdicts;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string name = operator_name(*cases[i].graph, cases[i].nodes);
    OperatorVerdict& verdict = verdicts[name];
    verdict.name = name;
    verdict.factor = factor_of(name);
    const Substitutions before = active_device().substitutions();
    OperatorCheck check(cases[i], type, random_bits(request.seed, i), device, verdict);
    request.compare ? check.run() : check.try_out();
    for (const auto& [lacking, count] : active_device().substitutions()) {
      const auto known = before.find(lacking);
      if (known == before.end() || known->second.calls < count.calls) {
        verdict.substituted.insert(lacking);
      }
    }
  }
  std::vector<OperatorVerdict> result;
  for (auto& [name, verdict] : verdicts) result.push_back(std::move(verdict));
  return result;
}

}  // namespace heteroperf
