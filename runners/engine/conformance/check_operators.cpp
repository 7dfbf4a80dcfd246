// Holds the operators of a device against the reference: is every number that it computes as near
// to the true one as rounding explains?
//
// Each case runs four times on the device: as in a training, once more to see if the bits are the
// same, added to gradients that are there already, and into memory full of NaN. LibTorch fills
// memory only while its algorithms are to be deterministic, which other ones are than those of a
// training, so the last run says no more than that nothing rests on stale memory. result_check.cpp
// says what is right.
#include "runners/engine/conformance/result_check.hpp"

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

bool has_any(const std::string& name, std::initializer_list<const char*> kinds) {
  return std::ranges::any_of(
      kinds, [&](const char* kind) { return name.find(kind) != std::string::npos; });
}
/// c of each class of operators.
double factor_of(const std::string& name) {
  if (has_any(name, {"linear", "conv2d"})) return 6;
  return has_any(name, {"attention", "norm"}) ? 4 : 3;
}
/// Approximations and means of rows lean by a part of the errors' deviation: measured up to 0.12 in
/// gelu, 0.08 in layer_norm. Sums and products lean by up to 0.02 in bf16, since small numbers are
/// more frequent than large ones, so that more of them are rounded down.
double lean_of(const std::string& name) {
  const bool approximates =
      has_any(name, {"norm", "gelu", "silu", "tanh", "attention", "cross_entropy"});
  return approximates ? 0.2 : 0.05;
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
  u.smallest = smallest(type);
  // LibTorch's attention rounds probabilities to the format of the operands.
  u.attention = std::max(operand, type == at::kBFloat16 ? u.stored : 0);
  return u;
}

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

/// Everything that one run of an operator leaves.
struct Outcome {
  at::Tensor output;
  Tensors inputs, parameters, buffers;
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
        call_(draw_call(one, group_, type, seed)) {}

  /// Runs once, whatever the outcome.
  void try_out() { compute(Accumulation::overwrite); }

  void run() {
    const OperandValues values = one_.operands.values;
    ResultCheck check(case_text(one_), values, verdict_);
    const GoldenResult golden = golden_result(call_, roundoffs_of(type_));
    const Outcome fresh = compute(Accumulation::overwrite);
    hold(check, golden, fresh, 0);
    if (values == OperandValues::drawn) {
      hold(check, golden, compute(Accumulation::add), there);
      const PoisonedMemory poisoned;
      hold(check, golden, compute(Accumulation::overwrite), 0);
    }
    const Outcome again = compute(Accumulation::overwrite);
    check.repeat(fresh.output, again.output);
    const auto repeat = [&](const Tensors& first, const Tensors& second) {
      for (std::size_t i = 0; i < first.size(); ++i) check.repeat(first[i], second[i]);
    };
    repeat(fresh.inputs, again.inputs);
    repeat(fresh.parameters, again.parameters);
    repeat(fresh.buffers, again.buffers);
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

  /// The first input that is the same tensor as input i.
  std::size_t first_like(std::size_t i) const {
    return static_cast<std::size_t>(std::ranges::find(group_.inputs, group_.inputs[i]) -
                                    group_.inputs.begin());
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
    const Tensors running = group_.op->buffers();
    for (std::size_t i = 0; i < running.size(); ++i) running[i].copy_(call_.buffers[i]);
    outcome.output = host(group_.op->forward(inputs, parameters, saved, context));
    CheckedSlots sink(inputs);
    for (const at::Tensor& buffer : group_.op->buffers()) outcome.buffers.push_back(host(buffer));
    group_.op->backward(brought(call_.output_gradient), parameters, saved, context, sink, sums);
    // A tensor that is two inputs has the sum of both gradients.
    for (std::size_t i = 0; i < group_.inputs.size(); ++i) {
      const std::size_t first = first_like(i);
      if (first == i) {
        outcome.inputs.push_back(host(sink.gradients[i]));
        continue;
      }
      at::Tensor& sum = outcome.inputs[first];
      const bool both = sum.defined() && sink.gradients[i].defined();
      sum = both ? sum + host(sink.gradients[i]) : at::Tensor();
      outcome.inputs.emplace_back();
    }
    for (const at::Tensor& sum : sums) outcome.parameters.push_back(host(sum));
    return outcome;
  }
  static at::Tensor host(const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(at::kCPU, false, true) : tensor;
  }
  void hold(ResultCheck& check, const GoldenResult& golden, const Outcome& outcome,
            double before) const {
    // A sum of products is stored in the operands' format on its way to a wider buffer.
    const double u = roundoff(type_);
    if (before == 0) {
      check.hold("output", outcome.output, golden.output, u, 0, leans_of_values());
      for (std::size_t i = 0; i < golden.input_gradients.size(); ++i) {
        if (!golden.input_gradients[i] || first_like(i) < i) continue;
        check.hold(fmt::format("gradient of input {}", i), outcome.inputs[i],
                   *golden.input_gradients[i], u, 0, leans_of_values());
      }
      for (std::size_t i = 0; i < golden.buffers.size(); ++i) {
        check.hold(i == 0 ? "running mean" : "running variance", outcome.buffers[i],
                   golden.buffers[i], roundoff(outcome.buffers[i].scalar_type()), 0,
                   leans_of_statistics());
      }
    }
    // One row for each row of a weight: what it is made of may have been rounded before.
    const auto rows = [](const at::Tensor& t) { return t.dim() > 2 ? t.flatten(1) : t; };
    for (std::size_t i = 0; i < golden.parameter_gradients.size(); ++i) {
      const auto& [value, error] = golden.parameter_gradients[i];
      check.hold(fmt::format("gradient of parameter {}{}", i, before > 0 ? ", added" : ""),
                 rows(outcome.parameters[i]), {rows(value), rows(error)}, u, before,
                 leans_of_parameter(i));
    }
  }

  template <class Kind>
  const Kind* first_as() const {
    return std::get_if<Kind>(&call_.graph.node(group_.nodes.front()).attributes);
  }
  /// A norm of few numbers makes nearly the same of all, two of them 1 and -1: their results lie in
  /// the middle between two numbers of a short format and are rounded to one side.
  Leans leans_of_values() const {
    constexpr double fewest = 8;
    const at::Tensor& x = call_.inputs.front();
    double joined = fewest;
    if (first_as<BatchNorm>() != nullptr) {
      joined = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
    } else if (first_as<LayerNorm>() != nullptr || first_as<RmsNorm>() != nullptr) {
      joined = static_cast<double>(x.size(-1));
    }
    return joined < fewest ? Leans::unknown : Leans::both_ways;
  }
  /// The deviation of a row is a part of its share in each number of a weight's gradient.
  Leans leans_of_parameter(std::size_t i) const {
    const bool of_rows = first_as<LayerNorm>() != nullptr || first_as<RmsNorm>() != nullptr;
    return of_rows && i == 0 ? Leans::as_signed : Leans::both_ways;
  }
  Leans leans_of_statistics() const {
    const auto* norm = first_as<BatchNorm>();
    const bool exact = norm != nullptr && static_cast<float>(norm->momentum) == norm->momentum;
    return exact ? Leans::both_ways : Leans::unknown;
  }

  const OperatorCase& one_;
  at::ScalarType type_;
  at::Device device_;
  OperatorVerdict& verdict_;
  OperatorGroup group_;
  OperatorCall call_;
};

}  // namespace

std::vector<OperatorVerdict> check_operators(const ConformanceRequest& request) {
  const at::ScalarType type = scalar_type(request.precision);
  const RankMemory memory;
  use_threads(request.threads);
  const MemoryScope charged(memory);
  const c10::InferenceMode no_tape;
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
  bool any_wrong = false;
  const auto check = [&](const std::string& name, const auto& run) {
    if (any_wrong && request.first_fault) return;
    OperatorVerdict& verdict = verdicts[name];
    verdict.name = name;
    verdict.factor = factor_of(name);
    verdict.lean = lean_of(name);
    const Substitutions before = active_device().substitutions();
    run(verdict);
    any_wrong = any_wrong || !verdict.wrong.empty();
    for (const auto& [lacking, count] : active_device().substitutions()) {
      const auto known = before.find(lacking);
      if (known == before.end() || known->second.calls < count.calls) {
        verdict.substituted.insert(lacking);
      }
    }
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    check(operator_name(*cases[i].graph, cases[i].nodes), [&](OperatorVerdict& verdict) {
      OperatorCheck one(cases[i], type, random_bits(request.seed, i), device, verdict);
      request.compare ? one.run() : one.try_out();
    });
  }
  if (request.compare) check_updates(request, device, check);
  std::vector<OperatorVerdict> result;
  for (auto& [name, verdict] : verdicts) result.push_back(std::move(verdict));
  return result;
}

}  // namespace heteroperf
