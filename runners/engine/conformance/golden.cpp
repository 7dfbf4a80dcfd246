// The values that a device's operators are held against, and how far rounding may move them.
//
// Values are the reference's: every node runs by itself in float64 (cpu:exact), forward and
// backward, on operands that the device has rounded to its format already.
//
// A bound for the error goes the same way through the nodes. To first order an error e of an input
// arrives at the output as |∂y/∂x| · e, and the node adds its own roundings: √K · u · Σ |a · b| for
// a sum of K products (Higham and Mary, SIAM J. Sci. Comput. 41 (2019): roundings are as good as
// independent, so that they grow as √K and not as K). Most kinds are linear in each of their
// operands with terms that are products; for them Σ |a · b| is what the same operator gives for the
// absolute values of its operands. Norms, activations, attention and the loss have formulas of
// their own below, each the absolute value of a derivative, term by term.
//
// Nodes of a chain may keep what lies between them in memory or not, so a value on the way may have
// been rounded once more.
#include "runners/engine/conformance/golden.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>
#include <map>

#include "runners/engine/operators/active_device.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

/// Keeps each input's gradient; an input that occurs twice has two slots.
class GradientSlots final : public GradientSink {
 public:
  GradientSlots(std::size_t inputs, std::vector<bool> wanted)
      : gradients(inputs), wanted_(std::move(wanted)) {}
  bool wanted(std::size_t input) const override { return wanted_[input]; }
  at::Tensor reusable(std::size_t) override { return {}; }
  void put(std::size_t input, at::Tensor gradient) override {
    gradients[input] = std::move(gradient);
  }
  void replace(std::size_t input, at::Tensor gradient) override { put(input, std::move(gradient)); }

  Tensors gradients;

 private:
  std::vector<bool> wanted_;
};

struct NodeGradients {
  Tensors inputs, parameters;  ///< undefined where an input has none
};

double root(double terms) { return std::sqrt(std::max(1.0, terms)); }
double elements(const at::Tensor& tensor) { return static_cast<double>(tensor.numel()); }

/// A node by itself in float64.
class GoldenNode {
 public:
  GoldenNode(const OperatorCall& call, NodeId id)
      : node(call.graph.node(id)),
        op_(make_operator(call.graph, id, at::kDouble)),
        context_(call.context) {
    context_.node = call.group.nodes.back().value();
    context_.accumulation = Accumulation::overwrite;
  }

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved) {
    return op_->forward(inputs, parameters, saved, context_);
  }
  NodeGradients gradients(const at::Tensor& dy, const Tensors& inputs, const Tensors& parameters,
                          const Tensors& saved) {
    std::vector<bool> wanted;
    for (const at::Tensor& input : inputs) wanted.push_back(input.is_floating_point());
    GradientSlots sink(inputs.size(), wanted);
    Tensors sums;
    for (const at::Tensor& parameter : parameters) sums.push_back(at::zeros_like(parameter));
    op_->backward(dy, parameters, saved, context_, sink, sums);
    return {sink.gradients, sums};
  }

  const Node& node;

 private:
  std::unique_ptr<Operator> op_;
  PassContext context_;
};

/// Calls f on each tensor that holds numbers; indices and targets stay.
template <class F>
Tensors each(const Tensors& tensors, F f) {
  Tensors result;
  for (const at::Tensor& t : tensors) result.push_back(t.is_floating_point() ? f(t) : t);
  return result;
}
Tensors absolute(const Tensors& tensors) {
  return each(tensors, [](const at::Tensor& t) { return t.abs(); });
}

/// One node in its place: operands, result, and what the backward pass needs.
struct Place {
  GoldenNode golden;
  std::vector<Approximation> inputs;
  Tensors parameters;
  Tensors saved = {};
  Approximation output = {};

  Tensors values() const {
    Tensors result;
    for (const Approximation& input : inputs) result.push_back(input.value);
    return result;
  }
  Tensors errors() const {
    Tensors result;
    for (const Approximation& input : inputs) result.push_back(input.error);
    return result;
  }
  const at::Tensor& x() const { return inputs[0].value; }
  const at::Tensor& dx() const { return inputs[0].error; }
};

/// The gradients that a node gives, with their errors.
struct PlacedGradients {
  std::vector<Approximation> inputs, parameters;
};

class Rounding {
 public:
  explicit Rounding(const Roundoffs& roundoffs) : u_(roundoffs) {}

  /// Fills the place's output.
  void forward(Place& place) const {
    place.output.value = place.golden.forward(place.values(), place.parameters, place.saved);
    place.output.error = std::visit([&](const auto& kind) { return forward_error(kind, place); },
                                    place.golden.node.attributes);
  }
  PlacedGradients backward(Place& place, const Approximation& g) const {
    const NodeGradients values =
        place.golden.gradients(g.value, place.values(), place.parameters, place.saved);
    const NodeGradients errors =
        std::visit([&](const auto& kind) { return backward_error(kind, place, g, values); },
                   place.golden.node.attributes);
    PlacedGradients result;
    for (std::size_t i = 0; i < values.inputs.size(); ++i) {
      result.inputs.push_back({values.inputs[i], errors.inputs[i]});
    }
    for (std::size_t i = 0; i < values.parameters.size(); ++i) {
      result.parameters.push_back({values.parameters[i], errors.parameters[i]});
    }
    return result;
  }

 private:
  // ---------------------------------------------------------------- sums of products

  template <class Kind>
  static constexpr bool is_product = std::is_same_v<Kind, Linear> || std::is_same_v<Kind, Conv2d>;

  /// The unit roundoff of a kind's terms, and how many of them a result is the sum of.
  template <class Kind>
  double unit(const Kind&) const {
    return is_product<Kind> ? u_.product : u_.accumulated;
  }
  // The terms of the sums of a kind: forward, in the gradient of its input, and in that of its
  // parameters.
  static double rows_of_weight(const Place& place) {
    return elements(place.parameters[0]) / static_cast<double>(place.parameters[0].size(0));
  }
  static double terms(const Linear&, const Place& place) { return rows_of_weight(place) + 1; }
  static double terms(const Conv2d&, const Place& place) { return rows_of_weight(place) + 1; }
  static double terms(const AvgPool& kind, const Place&) { return window(kind); }
  static double terms(const GlobalAvgPool&, const Place& place) {
    return elements(place.x()) / elements(place.output.value);
  }
  template <class Kind>
  static double terms(const Kind&, const Place&) {
    return 1;
  }
  static double back_terms(const Linear&, const Place& place) {
    return static_cast<double>(place.parameters[0].size(0));
  }
  static double back_terms(const Conv2d& kind, const Place& place) {
    return elements(place.parameters[0]) /
           static_cast<double>(place.parameters[0].size(1) * kind.groups);
  }
  static double back_terms(const MaxPool& kind, const Place&) { return window(kind); }
  static double back_terms(const AvgPool& kind, const Place&) { return window(kind); }
  template <class Kind>
  static double back_terms(const Kind&, const Place&) {
    return 1;
  }
  /// Sums of n terms each may lie in memory before W of them are added up, and each step of adding
  /// too: W + W²/2 squares of roundings, each of a size Σ |a · b| / (W √n), so √(1/W + ½) ≤ 1 times
  /// this for two and more. Those are a convolution's windows in the gradient of its input, and its
  /// samples in that of its weights.
  double stored_parts(double n) const { return u_.stored / root(n); }
  double windows_stored(const Conv2d& kind) const {
    const bool meet = kind.kernel[0] > kind.stride[0] || kind.kernel[1] > kind.stride[1];
    return meet ? stored_parts(static_cast<double>(kind.out_channels / kind.groups)) : 0;
  }
  template <class Kind>
  double windows_stored(const Kind&) const {
    return 0;
  }
  template <class Pool>
  static double window(const Pool& kind) {
    return static_cast<double>(kind.kernel[0] * kind.kernel[1]);
  }
  template <class Kind>
  static double parameter_terms(const Kind&, const Place& place, const Approximation& g) {
    return elements(g.value) /
           static_cast<double>(place.parameters[0].size(is_product<Kind> ? 0 : -1));
  }

  template <class Kind>
  at::Tensor forward_error(const Kind& kind, Place& place) const {
    Tensors scratch;
    const at::Tensor sizes =
        place.golden.forward(absolute(place.values()), absolute(place.parameters), scratch);
    at::Tensor error = root(terms(kind, place)) * unit(kind) * sizes;
    // The product may lie in memory before the bias is added.
    if constexpr (is_product<Kind>) {
      if (place.parameters.size() > 1) {
        Tensors weight_alone = place.parameters;
        weight_alone[1] = at::zeros_like(weight_alone[1]);
        error =
            error + u_.stored * place.golden.forward(place.values(), weight_alone, scratch).abs();
      }
    }
    if (!place.dx().defined() || !place.x().is_floating_point()) return error;
    Tensors without_bias = absolute(place.parameters);
    for (std::size_t i = 1; i < without_bias.size(); ++i) without_bias[i].zero_();
    if (place.parameters.empty() || place.parameters[0].dim() > 1) {
      // A table that is added shifts what passes and has no share in its error.
      if (is_added_table(place)) return error + place.dx();
      error = error + place.golden.forward(place.errors(), without_bias, scratch);
    }
    return error;
  }
  static bool is_added_table(const Place& place) {
    const Attributes& kind = place.golden.node.attributes;
    return std::holds_alternative<PositionEmbedding>(kind) ||
           std::holds_alternative<TypeEmbedding>(kind);
  }

  template <class Kind>
  NodeGradients backward_error(const Kind& kind, Place& place, const Approximation& g,
                               const NodeGradients&) const {
    Tensors saved;
    // The taps of a max pool are those of the true values.
    if constexpr (std::is_same_v<Kind, MaxPool>) {
      saved = place.saved;
    } else {
      place.golden.forward(absolute(place.values()), absolute(place.parameters), saved);
    }
    const Tensors sizes = absolute(place.parameters);
    const auto run = [&](const at::Tensor& gradient, const Tensors& kept) {
      return place.golden.gradients(gradient, place.values(), sizes, kept);
    };
    NodeGradients errors = run(g.value.abs(), saved);
    const NodeGradients passed = run(g.error, saved);
    for (std::size_t i = 0; i < errors.inputs.size(); ++i) {
      if (!errors.inputs[i].defined()) continue;
      const double own = root(back_terms(kind, place)) * unit(kind) + windows_stored(kind);
      errors.inputs[i] = own * errors.inputs[i] + passed.inputs[i];
    }
    for (std::size_t i = 0; i < errors.parameters.size(); ++i) {
      const double terms = parameter_terms(kind, place, g);
      const double samples = std::is_same_v<Kind, Conv2d>
                                 ? stored_parts(terms / static_cast<double>(g.value.size(0)))
                                 : 0;
      errors.parameters[i] =
          (root(terms) * unit(kind) + samples) * errors.parameters[i] + passed.parameters[i];
    }
    // An error of the operands reaches the gradient of the weights.
    const bool moved =
        place.dx().defined() && place.x().is_floating_point() && place.dx().any().item<bool>();
    if (!moved || place.parameters.empty()) return errors;
    Tensors moved_saved;
    place.golden.forward(each(place.errors(), [](const at::Tensor& e) { return e.abs(); }), sizes,
                         moved_saved);
    const NodeGradients of_operands = run(g.value.abs(), moved_saved);
    for (std::size_t i = 0; i < errors.parameters.size(); ++i) {
      errors.parameters[i] = errors.parameters[i] + of_operands.parameters[i];
    }
    return errors;
  }
  // ---------------------------------------------------------------- element by element

  /// f'(x), by the reference's own backward pass.
  static at::Tensor slope(Place& place) {
    return place.golden
        .gradients(at::ones_like(place.output.value), place.values(), {}, place.saved)
        .inputs[0];
  }
  /// It bounds the second derivatives: that of GELU is largest, √(2/π) at 0.
  static constexpr double curvature = 1.2;
  /// Where the slope is 0 an error still arrives by the curvature (Taylor's remainder).
  at::Tensor activation_error(Place& place) const {
    const at::Tensor& dx = place.dx();
    return (slope(place).abs() + curvature / 2 * dx) * dx +
           u_.accumulated * (place.output.value.abs() + place.x().abs());
  }
  NodeGradients activation_gradient(Place& place, const Approximation& g) const {
    const at::Tensor size = g.value.abs();
    return {{slope(place).abs() * g.error +
             size * (curvature * place.dx() + 2 * u_.accumulated * (1 + place.x().abs()))},
            {}};
  }
#define HETEROPERF_SMOOTH(Kind)                                                                 \
  at::Tensor forward_error(const Kind&, Place& place) const { return activation_error(place); } \
  NodeGradients backward_error(const Kind&, Place& place, const Approximation& g,               \
                               const NodeGradients&) const {                                    \
    return activation_gradient(place, g);                                                       \
  }
  HETEROPERF_SMOOTH(Gelu)
  HETEROPERF_SMOOTH(Silu)
#undef HETEROPERF_SMOOTH

  at::Tensor forward_error(const Tanh&, Place& place) const { return activation_error(place); }
  /// 1 − y² is made from the stored y.
  NodeGradients backward_error(const Tanh&, Place& place, const Approximation& g,
                               const NodeGradients&) const {
    NodeGradients errors = activation_gradient(place, g);
    const at::Tensor& y = place.output.value;
    errors.inputs[0] = errors.inputs[0] + 2 * u_.stored * g.value.abs() * y * y;
    return errors;
  }

  at::Tensor forward_error(const Relu&, Place& place) const { return place.dx(); }
  /// An element that rounding may carry over 0 may pass its gradient on or keep it.
  NodeGradients backward_error(const Relu&, Place& place, const Approximation& g,
                               const NodeGradients&) const {
    const at::Tensor doubtful = place.x().abs() <= 8 * place.dx();
    const at::Tensor doubt =
        at::where(doubtful.logical_and(place.dx() > 0), g.value.abs(), at::zeros_like(g.value));
    return {{g.error + doubt}, {}};
  }

  at::Tensor forward_error(const Multiply&, Place& place) const {
    const Approximation &a = place.inputs[0], &b = place.inputs[1];
    return a.value.abs() * b.error + b.value.abs() * a.error +
           u_.accumulated * (a.value * b.value).abs();
  }
  NodeGradients backward_error(const Multiply&, Place& place, const Approximation& g,
                               const NodeGradients&) const {
    const auto of = [&](const Approximation& other) {
      return g.value.abs() * (other.error + u_.accumulated * other.value.abs()) +
             g.error * other.value.abs();
    };
    return {{of(place.inputs[1]), of(place.inputs[0])}, {}};
  }

  /// A turn by an angle: each of the two terms is at most as large as operand and result together.
  at::Tensor forward_error(const Rotary&, Place& place) const {
    return 2 * u_.accumulated * (2 * place.x().abs() + place.output.value.abs());
  }
  NodeGradients backward_error(const Rotary&, Place&, const Approximation& g,
                               const NodeGradients& values) const {
    return {{2 * u_.accumulated * (2 * g.value.abs() + values.inputs[0].abs())}, {}};
  }

  // ---------------------------------------------------------------- norms

  /// The normalised values x̂ = (x − m) · r over `dims`, and their errors.
  struct Normalised {
    std::vector<std::int64_t> dims;
    double terms = 1;
    at::Tensor r, value, error;

    at::Tensor mean(const at::Tensor& x) const { return at::mean(x, dims, true); }
  };
  Normalised normalised(const Place& place, std::vector<std::int64_t> dims, bool centred,
                        double eps) const {
    const at::Tensor& x = place.x();
    Normalised n{std::move(dims), 1, {}, {}, {}};
    const at::Tensor m = n.mean(x), d = centred ? x - m : x;
    n.terms = elements(x) / elements(m);
    n.r = at::rsqrt(n.mean(d * d) + eps);
    n.value = d * n.r;
    // The mean may cancel most of x, so that the errors are those of x and not those of x − m.
    const at::Tensor sizes = centred ? n.r * (x.abs() + n.mean(x.abs())) : n.value.abs();
    const at::Tensor own = root(n.terms) * u_.accumulated * sizes + n.r * place.dx() +
                           (centred ? n.r * n.mean(place.dx()) : at::zeros_like(m));
    n.error = own + n.value.abs() * n.mean(n.value.abs() * own) +
              root(n.terms) * u_.accumulated * n.value.abs();
    return n;
  }
  at::Tensor norm_error(const Normalised& n, const at::Tensor& weight,
                        const at::Tensor& output) const {
    return weight.abs() * n.error + u_.accumulated * ((weight * n.value).abs() + output.abs());
  }
  /// dx = r (q − mean q − x̂ mean(q x̂)) with q = g w; the gradient of w is Σ g x̂, that of b Σ g.
  NodeGradients norm_gradient(const Normalised& n, const at::Tensor& weight, const Approximation& g,
                              bool centred, const NodeGradients& values) const {
    const double u = u_.accumulated, k = root(n.terms);
    const at::Tensor q = g.value * weight, size = q.abs(), x = n.value.abs();
    const at::Tensor q_error = g.error * weight.abs() + u * size;
    const auto mean = [&](const at::Tensor& t) { return n.mean(t); };
    const at::Tensor nothing = at::zeros_like(n.r);
    const at::Tensor sums = (centred ? mean(size) : nothing) + x * mean(size * x);
    at::Tensor error = q_error + (centred ? mean(q_error) : nothing) + x * mean(x * q_error) +
                       k * u * (size + sums) + n.error * mean(size * x) + x * mean(size * n.error);
    error = n.r * error + values.inputs[0].abs() * (mean(x * n.error) + k * u);
    const double rows = elements(g.value) / elements(weight);
    const auto over_rows = [&](const at::Tensor& t) {
      return t.sum_to_size(weight.sizes()).reshape(values.parameters[0].sizes());
    };
    NodeGradients errors{{error}, {}};
    errors.parameters.push_back(
        over_rows(root(rows) * u * g.value.abs() * x + g.error * x + g.value.abs() * n.error));
    if (values.parameters.size() > 1) {
      errors.parameters.push_back(over_rows(root(rows) * u * g.value.abs() + g.error));
    }
    return errors;
  }

  static at::Tensor channel_weight(const Place& place) {
    return place.parameters[0].reshape({1, -1, 1, 1});
  }
  Normalised of_channels(const BatchNorm& kind, const Place& place) const {
    return normalised(place, {0, 2, 3}, true, kind.eps);
  }
  at::Tensor forward_error(const BatchNorm& kind, Place& place) const {
    return norm_error(of_channels(kind, place), channel_weight(place), place.output.value);
  }
  NodeGradients backward_error(const BatchNorm& kind, Place& place, const Approximation& g,
                               const NodeGradients& values) const {
    return norm_gradient(of_channels(kind, place), channel_weight(place), g, true, values);
  }
  at::Tensor forward_error(const LayerNorm& kind, Place& place) const {
    return norm_error(normalised(place, {-1}, true, kind.eps), place.parameters[0],
                      place.output.value);
  }
  NodeGradients backward_error(const LayerNorm& kind, Place& place, const Approximation& g,
                               const NodeGradients& values) const {
    return norm_gradient(normalised(place, {-1}, true, kind.eps), place.parameters[0], g, true,
                         values);
  }
  at::Tensor forward_error(const RmsNorm& kind, Place& place) const {
    return norm_error(normalised(place, {-1}, false, kind.eps), place.parameters[0],
                      place.output.value);
  }
  NodeGradients backward_error(const RmsNorm& kind, Place& place, const Approximation& g,
                               const NodeGradients& values) const {
    return norm_gradient(normalised(place, {-1}, false, kind.eps), place.parameters[0], g, false,
                         values);
  }

  // ---------------------------------------------------------------- the loss

  /// An error of the logits' exponentials, relative: of the row's largest, and of the sum.
  at::Tensor softmax_doubt(const at::Tensor& logits) const {
    const at::Tensor largest = logits.abs().amax({-1}, true);
    return u_.accumulated *
           (root(static_cast<double>(logits.size(-1))) + logits.abs() + 3 * largest);
  }
  at::Tensor forward_error(const CrossEntropy&, Place& place) const {
    const at::Tensor logits = place.x();
    const at::Tensor row =
        softmax_doubt(logits).amax({-1}) + u_.accumulated * at::logsumexp(logits, {-1}).abs();
    return at::mean(row).reshape({1});
  }
  NodeGradients backward_error(const CrossEntropy&, Place& place, const Approximation& g,
                               const NodeGradients& values) const {
    const at::Tensor logits = place.x();
    const double rows = elements(logits) / static_cast<double>(logits.size(-1));
    const at::Tensor scale = g.value.abs() * loss_scale / rows;
    const at::Tensor p = at::softmax(logits, -1);
    return {{scale * p * softmax_doubt(logits) +
                 2 * u_.accumulated * (scale * p + values.inputs[0].abs()),
             at::Tensor()},
            {}};
  }

  // ---------------------------------------------------------------- attention

  struct Heads {
    at::Tensor q, k, v;
  };
  static at::Tensor repeated(const at::Tensor& heads, std::int64_t times) {
    return times == 1 ? heads : heads.repeat_interleave(times, 1);
  }
  static at::Tensor by_head(const at::Tensor& rows, std::int64_t first, std::int64_t heads,
                            std::int64_t width) {
    return rows.narrow(2, first * width, heads * width)
        .reshape({rows.size(0), rows.size(1), heads, width})
        .transpose(1, 2);
  }
  static Heads split(const Attention& a, const at::Tensor& packed) {
    const std::int64_t times = a.heads / a.kv_heads;
    return {by_head(packed, 0, a.heads, a.head_dim),
            repeated(by_head(packed, a.heads, a.kv_heads, a.head_dim), times),
            repeated(by_head(packed, a.heads + a.kv_heads, a.kv_heads, a.head_dim), times)};
  }
  /// The probabilities, and their relative errors.
  struct Probabilities {
    Heads heads;
    double scale = 1, d = 1, t = 1;
    at::Tensor p, doubt;
  };
  Probabilities probabilities(const Attention& a, const at::Tensor& packed) const {
    Probabilities s{split(a, packed), 1 / std::sqrt(static_cast<double>(a.head_dim)), 1, 1, {}, {}};
    s.d = root(static_cast<double>(a.head_dim));
    s.t = root(static_cast<double>(packed.size(1)));
    at::Tensor scores = at::matmul(s.heads.q, s.heads.k.transpose(2, 3)) * s.scale;
    const std::int64_t length = packed.size(1);
    at::Tensor added = at::zeros({a.heads, length, length}, scores.options());
    for (std::int64_t head = 0; a.alibi && head < a.heads; ++head) {
      const double slope =
          std::exp2(-8.0 * static_cast<double>(head + 1) / static_cast<double>(a.heads));
      const at::Tensor plane = added[head];
      auto of_head = plane.accessor<double, 2>();
      for (std::int64_t i = 0; i < length; ++i) {
        for (std::int64_t j = 0; j < length; ++j) {
          of_head[i][j] = -slope * static_cast<double>(i - j);
        }
      }
    }
    scores = scores + added;
    if (a.causal) {
      const at::Tensor later =
          at::ones({length, length}, scores.options().dtype(at::kBool)).triu_(1);
      scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
    }
    s.p = at::softmax(scores, -1);
    const at::Tensor of_scores =
        s.d * u_.product * s.scale * at::matmul(s.heads.q.abs(), s.heads.k.abs().transpose(2, 3)) +
        2 * u_.accumulated * (at::where(s.p > 0, scores.abs(), at::zeros_like(s.p)) + added.abs());
    s.doubt = of_scores + (s.p * of_scores).sum(-1, true) + s.t * u_.accumulated + u_.attention;
    return s;
  }
  static at::Tensor rows_of(const at::Tensor& heads) {
    return heads.transpose(1, 2).reshape({heads.size(0), heads.size(2), -1});
  }
  at::Tensor forward_error(const Attention& a, Place& place) const {
    const Probabilities s = probabilities(a, place.x());
    return rows_of(at::matmul(s.p * (s.doubt + s.t * u_.accumulated), s.heads.v.abs()));
  }
  NodeGradients backward_error(const Attention& a, Place& place, const Approximation& g,
                               const NodeGradients&) const {
    const Probabilities s = probabilities(a, place.x());
    const at::Tensor gradient = by_head(g.value, 0, a.heads, a.head_dim);
    const at::Tensor size = gradient.abs();
    const at::Tensor dp = at::matmul(gradient, s.heads.v.transpose(2, 3));
    const at::Tensor dp_error =
        s.d * u_.product * at::matmul(size, s.heads.v.abs().transpose(2, 3));
    const at::Tensor sum = (s.p * dp).sum(-1, true);
    const at::Tensor out = at::matmul(s.p, s.heads.v);
    const at::Tensor sum_error =
        (s.p * (s.doubt * dp.abs() + dp_error)).sum(-1, true) +
        (s.d * u_.accumulated + u_.stored) * (size * out.abs()).sum(-1, true);
    const at::Tensor ds = s.p * (dp - sum);
    const at::Tensor ds_error =
        ds.abs() * (s.doubt + u_.attention) +
        s.p * (dp_error + sum_error + 2 * u_.accumulated * (dp.abs() + sum.abs()));
    const double from_sum = s.t * std::max(u_.product, u_.attention);
    const auto gathered = [&](const at::Tensor& heads) {
      const std::int64_t times = a.heads / a.kv_heads;
      if (times == 1) return heads;
      return heads.reshape({heads.size(0), a.kv_heads, times, heads.size(2), heads.size(3)}).sum(2);
    };
    const at::Tensor through = ds_error + from_sum * ds.abs();
    const at::Tensor dq = s.scale * at::matmul(through, s.heads.k.abs());
    const at::Tensor dk = gathered(s.scale * at::matmul(through.transpose(2, 3), s.heads.q.abs()));
    const at::Tensor dv = gathered(at::matmul((s.p * (s.doubt + from_sum)).transpose(2, 3), size));
    return {{at::cat({rows_of(dq), rows_of(dk), rows_of(dv)}, 2)}, {}};
  }

 public:
  double loss_scale = 1;

 private:
  Roundoffs u_;
};

void add(std::optional<Approximation>& sum, const Approximation& gradient) {
  if (!gradient.value.defined()) return;
  sum = sum ? Approximation{sum->value + gradient.value, sum->error + gradient.error} : gradient;
}

at::Tensor in_float64(const at::Tensor& tensor) {
  return tensor.is_floating_point() ? canonical(tensor.to(at::kDouble)) : tensor;
}

}  // namespace

GoldenResult golden_result(const OperatorCall& call, const Roundoffs& roundoffs) {
  ActiveDevice exact(read_device("cpu:exact"));
  const DeviceScope scope(exact);
  Rounding rounding(roundoffs);
  rounding.loss_scale = call.context.loss_scale;

  std::map<std::int32_t, Approximation> values;
  const auto exactly = [](const at::Tensor& tensor) {
    const at::Tensor wide = in_float64(tensor);
    return Approximation{wide, wide.is_floating_point() ? at::zeros_like(wide) : at::Tensor()};
  };
  for (std::size_t i = 0; i < call.group.inputs.size(); ++i) {
    values[call.group.inputs[i].value()] = exactly(call.inputs[i]);
  }
  std::vector<Place> places;
  std::size_t next_parameter = 0;
  for (const NodeId id : call.group.nodes) {
    Place place{GoldenNode(call, id), {}, {}};
    for (const NodeId input : place.golden.node.inputs) {
      place.inputs.push_back(values.at(input.value()));
    }
    if (call.inputs.size() > call.group.inputs.size()) {
      place.inputs.push_back(exactly(call.inputs.back()));
    }
    while (next_parameter < call.group.parameters.size() &&
           (call.group.nodes.size() == 1 ||
            place.parameters.size() < place.golden.node.parameters.size())) {
      place.parameters.push_back(in_float64(call.parameters[next_parameter++]));
    }
    rounding.forward(place);
    if (id != call.group.nodes.back()) {
      place.output.error = place.output.error + roundoffs.stored * place.output.value.abs();
    }
    values[id.value()] = place.output;
    places.push_back(std::move(place));
  }

  GoldenResult result{places.back().output, {}, {}};
  std::map<std::int32_t, std::optional<Approximation>> gradients;
  gradients[call.group.nodes.back().value()] = exactly(call.output_gradient);
  std::vector<std::vector<Approximation>> of_parameters(places.size());
  for (std::size_t p = places.size(); p-- > 0;) {
    Approximation g = *gradients.at(call.group.nodes[p].value());
    if (p + 1 < places.size()) g.error = g.error + roundoffs.stored * g.value.abs();
    const PlacedGradients given = rounding.backward(places[p], g);
    of_parameters[p] = given.parameters;
    const std::vector<NodeId>& inputs = places[p].golden.node.inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      add(gradients[inputs[i].value()], given.inputs[i]);
    }
  }
  for (const NodeId input : call.group.inputs) {
    result.input_gradients.push_back(gradients[input.value()]);
  }
  for (const auto& list : of_parameters) {
    result.parameter_gradients.insert(result.parameter_gradients.end(), list.begin(), list.end());
  }
  return result;
}

}  // namespace heteroperf
