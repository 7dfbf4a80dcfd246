// Holds the updates of the optimizers, and the sum of squares that a gradient's norm is made of,
// against the same formulas in float64.
//
// An update is element by element, so its bound needs no formula of its own: the update is computed
// with numbers that carry their error along. A product, sum, quotient or root takes the errors of
// its operands to first order, multiplied by the derivative, and adds its own rounding, u times the
// result; a factor of a step may have been rounded to the type of the elements before. A rounded
// factor moves all results alike, which looks like a lean to one side, so the recipe's numbers are
// such that most factors need no rounding.
//
// An optimizer owns all but the first and the last few elements, which must stay, so that its
// stretches begin and end anywhere.
#include "runners/engine/conformance/result_check.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <cmath>

#include "metrics/base/name_table.hpp"
#include "metrics/base/random.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/parameters/optimizer.hpp"

namespace heteroperf {
namespace {

/// A float64 value and by how much roundings to a type may have moved it.
struct Rounded {
  at::Tensor value, error;
  at::ScalarType type;

  static Rounded made(const at::Tensor& value, const at::Tensor& error, at::ScalarType type) {
    return {value, error + roundoff(type) * value.abs() + smallest(type), type};
  }
  static Rounded stored(const at::Tensor& tensor) {
    const at::Tensor value = tensor.to(at::kCPU, at::kDouble, false, true);
    return {value, at::zeros_like(value), tensor.scalar_type()};
  }
  static Rounded factor(const at::Tensor& value, at::ScalarType type) {
    return {value, roundoff(type) * value.abs(), type};
  }
  static Rounded factor(double value, at::ScalarType type) {
    return factor(at::scalar_tensor(value, at::TensorOptions().dtype(at::kDouble)), type);
  }
  /// Without the rounding of the result, as an Approximation has it.
  Approximation approximation() const { return {value, error - roundoff(type) * value.abs()}; }

  friend Rounded operator*(const Rounded& a, const Rounded& b) {
    return made(a.value * b.value, a.value.abs() * b.error + b.value.abs() * a.error, a.type);
  }
  friend Rounded operator+(const Rounded& a, const Rounded& b) {
    return made(a.value + b.value, a.error + b.error, a.type);
  }
  friend Rounded operator-(const Rounded& a, const Rounded& b) {
    return made(a.value - b.value, a.error + b.error, a.type);
  }
  friend Rounded operator/(const Rounded& a, const Rounded& b) {
    const at::Tensor quotient = a.value / b.value;
    return made(quotient, (a.error + quotient.abs() * b.error) / b.value.abs(), a.type);
  }
  /// √(v + e) − √v, which is finite at 0 too.
  friend Rounded sqrt(const Rounded& a) {
    const at::Tensor root = a.value.sqrt();
    return made(root, a.error / ((a.value + a.error).sqrt() + root), a.type);
  }
};

/// One update of a table and a norm's weights.
struct UpdateCase {
  OptimizerKind kind = OptimizerKind::adamw;
  std::int64_t rows = 1, width = 1;  ///< the extents of the table
  std::uint64_t updates = 1;         ///< this one included
  double norm = 0;                   ///< the gradient has it and is clipped at 1
  OperandValues operands = OperandValues::drawn;
};

std::string case_text(const UpdateCase& one) {
  return fmt::format("{} {{{}, {}}}, update {}, norm {}, {}", to_string(one.kind), one.rows,
                     one.width, one.updates, one.norm, to_string(one.operands));
}

/// The optimizer adds so much to a norm that is above the limit.
constexpr double added_to_norm = 1e-6;

std::vector<UpdateCase> update_cases() {
  constexpr double clipped = 4 - added_to_norm;
  std::vector<UpdateCase> cases;
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adamw}) {
    for (const std::uint64_t updates : {1, 2, 1000}) {
      cases.push_back({kind, 1, 1, updates, 0.5});
      cases.push_back({kind, 19, 67, updates, clipped});
      cases.push_back({kind, 300, 255, updates, 0.5});
    }
    for (const OperandValues special : {OperandValues::zero, OperandValues::denormal,
                                        OperandValues::infinity, OperandValues::not_a_number}) {
      cases.push_back({kind, 7, 37, 3, clipped, special});
    }
  }
  return cases;
}

ModelGraph table_and_norm(const UpdateCase& one) {
  Input sample;
  sample.kind = InputKind::tokens;
  sample.length = 1;
  ModelGraph graph;
  const NodeId tokens = graph.add("sample", sample, {});
  const NodeId rows = graph.add("table", Embedding{one.rows, one.width}, {tokens});
  graph.add("norm", LayerNorm{}, {rows});
  return graph;
}

OptimizerRecipe recipe_of(OptimizerKind kind) {
  OptimizerRecipe recipe;
  recipe.kind = kind;
  recipe.decay_matrices_only = true;
  recipe.weight_decay = 0x1p-4;
  recipe.learning_rate = 0x1p-6;
  recipe.momentum = recipe.beta1 = 1 - 0x1p-3;
  recipe.beta2 = 1 - 0x1p-10;
  recipe.epsilon = 0x1p-27;
  recipe.clip_norm = 1;
  return recipe;
}

class UpdateCheck {
 public:
  UpdateCheck(const UpdateCase& one, Precision precision, std::uint64_t seed, at::Device device)
      : one_(one),
        graph_(table_and_norm(one)),
        recipe_(recipe_of(one.kind)),
        store_(graph_, whole_parameters(graph_), precision, seed, device),
        owned_{3, store_.elements() - 5},
        optimizer_(recipe_, store_, {owned_}) {
    std::uint64_t salt = 0;
    const auto draw = [&](const at::Tensor& like) {
      const at::ScalarType type = like.scalar_type();
      return draw_operand(like.sizes(), one.operands, type, random_bits(seed, ++salt)).to(type);
    };
    weight_ = draw(store_.master());
    gradient_ = draw(store_.reduced_gradient());
    for (const Optimizer::State& state : optimizer_.states()) states_.push_back(draw(state.values));
    if (one.kind == OptimizerKind::adamw) states_[1] = states_[1].square();
  }

  void run(OperatorVerdict& verdict) {
    ResultCheck check(case_text(one_), one_.operands, verdict);
    const std::vector<Rounded> expected = one_.kind == OptimizerKind::adamw ? adamw() : descended();
    const at::ScalarType type = weight_.scalar_type();
    const Tensors actual = updated();
    Approximation weight = Rounded::stored(weight_).approximation();
    weight = {weight.value, at::zeros_like(weight.value)};
    owned(weight.value).copy_(expected[0].value);
    owned(weight.error).copy_(expected[0].approximation().error);
    hold(check, "weight", actual[0], weight, roundoff(type));
    for (std::size_t i = 0; i < states_.size(); ++i) {
      hold(check, optimizer_.states()[i].name, actual[i + 1], expected[i + 1].approximation(),
           roundoff(type));
    }
    if (store_.operator_type() != type) hold_published(check, weight);
    const Tensors again = updated();
    for (std::size_t i = 0; i < actual.size(); ++i) check.repeat(actual[i], again[i]);
  }

 private:
  at::Tensor owned(const at::Tensor& flat) const {
    return flat.narrow(0, owned_.begin, owned_.count());
  }
  /// As eight rows, so that a lean to one side shows.
  static void hold(ResultCheck& check, const std::string& what, const at::Tensor& actual,
                   const Approximation& expected, double u) {
    const auto rows = [](const at::Tensor& flat) { return flat.view({8, -1}); };
    check.hold(what, rows(actual), {rows(expected.value), rows(expected.error)}, u);
  }
  /// Holds the weights as the operators read them.
  void hold_published(ResultCheck& check, const Approximation& weight) const {
    for (std::size_t i = 0; i < store_.count(); ++i) {
      const ParameterStore::Place& place = store_.place(i);
      const auto part = [&](const at::Tensor& flat) {
        return flat.narrow(0, place.offset, place.count);
      };
      const at::Tensor& read = store_.parameter(place.held.node, place.held.index);
      check.hold("published weight", read.to(at::kCPU).reshape({-1}),
                 {part(weight.value), part(weight.error)}, roundoff(read.scalar_type()));
    }
  }

  /// Weights and states behind the update.
  Tensors updated() {
    const std::vector<Optimizer::State> states = optimizer_.states();
    store_.master().copy_(weight_);
    store_.publish();
    store_.reduced_gradient().copy_(gradient_);
    for (std::size_t i = 0; i < states.size(); ++i) states[i].values.copy_(states_[i]);
    optimizer_.restore_updates(one_.updates - 1);
    optimizer_.update(recipe_.learning_rate, one_.norm);
    Tensors result{store_.master().to(at::kCPU, false, true)};
    for (const Optimizer::State& state : states) {
      result.push_back(state.values.to(at::kCPU, false, true));
    }
    return result;
  }

  Rounded factor(double value) const { return Rounded::factor(value, weight_.scalar_type()); }
  Rounded clipped() const {
    const double limit = recipe_.clip_norm;
    return factor(one_.norm > limit ? limit / (one_.norm + added_to_norm) : 1) *
           Rounded::stored(owned(gradient_));
  }
  /// The decay of each element; only a table decays.
  at::Tensor decay() const {
    const at::Tensor decays = at::zeros_like(weight_, at::TensorOptions().dtype(at::kDouble));
    for (const ParameterStore::PartRange& part : store_.parts()) {
      decays.narrow(0, part.begin, part.matrices_end - part.begin).fill_(recipe_.weight_decay);
    }
    return owned(decays);
  }

  std::vector<Rounded> adamw() const {
    const Rounded g = clipped(), w = Rounded::stored(owned(weight_));
    const auto t = static_cast<double>(one_.updates);
    const double beta1 = recipe_.beta1, beta2 = recipe_.beta2, rate = recipe_.learning_rate;
    const Rounded m = factor(beta1) * Rounded::stored(states_[0]) + factor(1 - beta1) * g;
    const Rounded v = factor(beta2) * Rounded::stored(states_[1]) + factor(1 - beta2) * g * g;
    const Rounded root = factor(1 / std::sqrt(1 - std::pow(beta2, t)));
    const Rounded keep = Rounded::factor(1 - rate * decay(), w.type);
    const Rounded step = factor(rate / (1 - std::pow(beta1, t)));
    return {keep * w - step * m / (sqrt(v) * root + factor(recipe_.epsilon)), m, v};
  }
  std::vector<Rounded> descended() const {
    const Rounded w = Rounded::stored(owned(weight_));
    const Rounded b = factor(recipe_.momentum) * Rounded::stored(states_[0]) +
                      (clipped() + Rounded::factor(decay(), w.type) * w);
    return {w - factor(recipe_.learning_rate) * b, b};
  }

  const UpdateCase& one_;
  ModelGraph graph_;
  OptimizerRecipe recipe_;
  ParameterStore store_;
  ArenaRange owned_;
  Optimizer optimizer_;
  at::Tensor weight_, gradient_;
  Tensors states_;
};

/// Two stretches of a flat tensor, with a gap between them. Their squares are added up in float64,
/// and those of numbers that a device may take for zero are missing.
void check_squares(std::int64_t count, OperandValues operands, at::ScalarType type,
                   std::uint64_t seed, at::Device device, OperatorVerdict& verdict) {
  const at::Tensor flat = draw_operand({count + 7}, operands, type, seed).to(type);
  const std::vector<ArenaRange> ranges{{0, count / 2}, {count / 2 + 7, count + 7}};
  at::Tensor expected = at::zeros({1}, at::TensorOptions().dtype(at::kDouble));
  for (const ArenaRange& range : ranges) {
    expected = expected + flat.narrow(0, range.begin, range.count()).to(at::kDouble).square().sum();
  }
  const double n = static_cast<double>(count), u = roundoff(at::kDouble);
  const auto sum = [&] { return at::full_like(expected, square_sum(flat.to(device), ranges)); };
  const at::Tensor made = sum();
  ResultCheck check(fmt::format("sum of squares of {}, {}", count, to_string(operands)), operands,
                    verdict);
  check.hold("sum", made, {expected, root(n) * u * expected + n * smallest(type) * smallest(type)},
             u);
  check.repeat(made, sum());
}

}  // namespace

void check_updates(const ConformanceRequest& request, at::Device device, const CheckOne& check) {
  std::uint64_t salt = 0;
  const auto seed = [&] { return random_bits(request.seed + 1, ++salt); };
  for (const UpdateCase& one : update_cases()) {
    check(to_string(one.kind), [&](OperatorVerdict& verdict) {
      UpdateCheck(one, request.precision, seed(), device).run(verdict);
    });
  }
  const at::ScalarType type = accumulation_type(scalar_type(request.precision));
  const auto squares = [&](std::int64_t count, OperandValues operands) {
    check("sum of squares", [&](OperatorVerdict& verdict) {
      check_squares(count, operands, type, seed(), device, verdict);
    });
  };
  for (const std::int64_t count : {1, 3, 17, 255, 16384, 2 * 16384 + 9, 100003}) {
    squares(count, OperandValues::drawn);
  }
  for (const OperandValues special : {OperandValues::zero, OperandValues::denormal,
                                      OperandValues::infinity, OperandValues::not_a_number}) {
    squares(1000, special);
  }
}

}  // namespace heteroperf
