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
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <map>

#include "runners/engine/operators/active_device.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

struct NodeGradients {
  Tensors inputs, parameters;  ///< undefined where an input has none
};

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
    const Tensors running = buffers();
    for (std::size_t i = 0; i < running.size(); ++i) running[i].copy_(call.buffers[i]);
  }

  Tensors buffers() const { return op_->buffers(); }

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved) {
    return op_->forward(inputs, parameters, saved, context_);
  }
  NodeGradients gradients(const at::Tensor& dy, const Tensors& inputs, const Tensors& parameters,
                          const Tensors& saved) {
    CheckedSlots sink(inputs);
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
  std::vector<Approximation> buffers = {};

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
  template <class Kind>
  static double terms(const Kind& kind, const Place& place) {
    if constexpr (is_product<Kind>) return rows_of_weight(place) + 1;
    if constexpr (std::is_same_v<Kind, AvgPool>) return window(kind);
    if constexpr (std::is_same_v<Kind, GlobalAvgPool>) {
      return elements(place.x()) / elements(place.output.value);
    }
    return 1;
  }
  template <class Kind>
  static double back_terms(const Kind& kind, const Place& place) {
    if constexpr (is_product<Kind>) {
      return elements(place.parameters[0]) /
             static_cast<double>(place.parameters[0].size(1) * groups(kind));
    }
    if constexpr (is_window<Kind>) return window(kind);
    return 1;
  }
  static std::int64_t groups(const Linear&) { return 1; }
  static std::int64_t groups(const Conv2d& kind) { return kind.groups; }
  template <class Kind>
  static constexpr bool is_window = std::is_same_v<Kind, MaxPool> || std::is_same_v<Kind, AvgPool>;
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
  template <class Kind>
  static constexpr bool is_smooth =
      std::is_same_v<Kind, Gelu> || std::is_same_v<Kind, Silu> || std::is_same_v<Kind, Tanh>;
  /// Where the slope is 0 an error still arrives by the curvature (Taylor's remainder).
  template <class Kind>
  requires is_smooth<Kind> at::Tensor forward_error(const Kind&, Place& place)
  const {
    const at::Tensor& dx = place.dx();
    return (slope(place).abs() + curvature / 2 * dx) * dx +
           u_.accumulated * (place.output.value.abs() + place.x().abs());
  }
  template <class Kind>
  requires is_smooth<Kind> NodeGradients backward_error(const Kind&, Place& place,
                                                        const Approximation& g,
                                                        const NodeGradients&)
  const {
    const at::Tensor size = g.value.abs();
    at::Tensor error = slope(place).abs() * g.error +
                       size * (curvature * place.dx() + 2 * u_.accumulated * (1 + place.x().abs()));
    // Tanh's slope 1 − y² is made from the stored y.
    if constexpr (std::is_same_v<Kind, Tanh>) {
      error = error + 2 * u_.stored * size * place.output.value.square();
    }
    return {{error}, {}};
  }

  at::Tensor forward_error(const Relu&, Place& place) const { return place.dx(); }
  /// An element that rounding may carry over 0 may pass its gradient on or keep it.
  NodeGradients backward_error(const Relu&, Place& place, const Approximation& g,
                               const NodeGradients&) const {
    const at::Tensor doubtful = place.x().abs() <= 8 * place.dx() + u_.smallest;
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

  /// Which elements a norm joins, and whether it takes their mean away.
  struct Norm {
    std::vector<std::int64_t> dims;
    bool centred;
    double eps;
  };
  static Norm norm_of(const BatchNorm& kind) { return {{0, 2, 3}, true, kind.eps}; }
  static Norm norm_of(const LayerNorm& kind) { return {{-1}, true, kind.eps}; }
  static Norm norm_of(const RmsNorm& kind) { return {{-1}, false, kind.eps}; }
  template <class Kind>
  static constexpr bool is_norm = std::is_same_v<Kind, BatchNorm> ||
                                  std::is_same_v<Kind, LayerNorm> || std::is_same_v<Kind, RmsNorm>;
  static at::Tensor weight_of(const Place& place) {
    const at::Tensor& weight = place.parameters[0];
    return place.x().dim() == 4 ? weight.reshape({1, -1, 1, 1}) : weight;
  }

  /// The normalised values x̂ = d · r with d = x − m, and the errors of d and x̂.
  struct Normalised {
    Norm norm;
    double terms = 1;
    at::Tensor m, d, r, value, d_error, error;

    at::Tensor mean(const at::Tensor& x) const { return at::mean(x, norm.dims, true); }
    /// The subtracted mean brings this in.
    at::Tensor shift(const at::Tensor& x) const {
      return norm.centred ? mean(x) : at::zeros_like(m);
    }
  };
  Normalised normalised(const Norm& norm, const Place& place) const {
    const at::Tensor& x = place.x();
    Normalised n{norm, 1, {}, {}, {}, {}, {}, {}};
    n.m = n.mean(x);
    n.d = norm.centred ? x - n.m : x;
    n.terms = elements(x) / elements(n.m);
    n.r = at::rsqrt(n.mean(n.d * n.d) + norm.eps);
    n.value = n.d * n.r;
    // The mean may cancel most of x, so that the errors are those of x and not those of x − m.
    const double u = root(n.terms) * u_.accumulated;
    n.d_error = u * (x.abs() + n.shift(x.abs())) + place.dx() + n.shift(place.dx());
    const at::Tensor own = n.r * n.d_error;
    n.error = own + n.value.abs() * n.mean(n.value.abs() * own) + u * n.value.abs();
    return n;
  }
  template <class Kind>
  requires is_norm<Kind> at::Tensor forward_error(const Kind& kind, Place& place)
  const {
    const Normalised n = normalised(norm_of(kind), place);
    if constexpr (std::is_same_v<Kind, BatchNorm>) follow_statistics(kind, n, place);
    const at::Tensor weight = weight_of(place);
    return weight.abs() * n.error +
           u_.accumulated * ((weight * n.value).abs() + place.output.value.abs());
  }
  /// s ← (1 − μ) s + μ b with b the batch's mean or its variance v · n / (n − 1). Both terms and
  /// factors are rounded; b has the error of a mean, or of one of squares d², which is 2 |d| that
  /// of d.
  void follow_statistics(const BatchNorm& kind, const Normalised& n, Place& place) const {
    const Tensors after = place.golden.buffers();
    const double u = root(n.terms) * u_.accumulated, mu = kind.momentum;
    const at::Tensor squares = n.mean(n.d * n.d);
    const double unbiased = n.terms > 1 ? n.terms / (n.terms - 1) : 1;
    const at::Tensor own[] = {
        u * n.mean(place.x().abs()) + n.mean(place.dx()),
        unbiased * (2 * n.mean(n.d.abs() * n.d_error) + u * squares),
    };
    const at::Tensor joined[] = {n.m, unbiased * squares};
    for (std::size_t i = 0; i < after.size(); ++i) {
      const at::Tensor added = (mu * joined[i]).reshape(after[i].sizes());
      place.buffers.push_back(
          {after[i].clone(), mu * own[i].reshape(after[i].sizes()) +
                                 2 * u_.accumulated * (added.abs() + (after[i] - added).abs())});
    }
  }
  /// dx = r (q − mean q − x̂ mean(q x̂)) with q = g w; the gradient of w is Σ g x̂, that of b Σ g.
  template <class Kind>
  requires is_norm<Kind> NodeGradients backward_error(const Kind& kind, Place& place,
                                                      const Approximation& g,
                                                      const NodeGradients& values)
  const {
    const Normalised n = normalised(norm_of(kind), place);
    const at::Tensor weight = weight_of(place);
    const double u = u_.accumulated, k = root(n.terms);
    const at::Tensor q = g.value * weight, size = q.abs(), x = n.value.abs();
    const at::Tensor q_error = g.error * weight.abs() + u * size;
    const at::Tensor sums = n.shift(size) + x * n.mean(size * x);
    at::Tensor error = q_error + n.shift(q_error) + x * n.mean(x * q_error) +
                       k * u * (size + sums) + n.error * n.mean(size * x) +
                       x * n.mean(size * n.error);
    error = n.r * error + values.inputs[0].abs() * (n.mean(x * n.error) + k * u);
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

  /// x − t is rounded once, and its square and their sum are.
  at::Tensor forward_error(const SquaredError&, Place& place) const {
    const at::Tensor d = place.x() - place.inputs[1].value;
    const at::Tensor of_d = place.dx() + u_.accumulated * d.abs();
    const double rows = elements(d) / static_cast<double>(d.size(-1));
    const at::Tensor terms = 2 * d.abs() * of_d + (root(elements(d)) + 1) * u_.accumulated * d * d;
    return (terms.sum() / rows + u_.accumulated * place.output.value.abs()).reshape({1});
  }
  NodeGradients backward_error(const SquaredError&, Place& place, const Approximation& g,
                               const NodeGradients& values) const {
    const at::Tensor d = place.x() - place.inputs[1].value;
    const double rows = elements(d) / static_cast<double>(d.size(-1));
    const at::Tensor scale = 2 * g.value.abs() * loss_scale / rows;
    return {{scale * (place.dx() + u_.accumulated * d.abs()) +
                 2 * u_.accumulated * values.inputs[0].abs(),
             at::Tensor()},
            {}};
  }

  at::Tensor forward_error(const Contrastive&, Place& place) const {
    return contrast_errors(place.x(), place.inputs[1].value, place.parameters[0], 1, u_).loss;
  }
  NodeGradients backward_error(const Contrastive&, Place& place, const Approximation& g,
                               const NodeGradients& values) const {
    const double upstream = g.value.item<double>() * loss_scale;
    ContrastErrors errors =
        contrast_errors(place.x(), place.inputs[1].value, place.parameters[0], upstream, u_);
    // The mean is divided once more.
    for (std::size_t i = 0; i < errors.vectors.size(); ++i) {
      errors.vectors[i] = errors.vectors[i] + 2 * u_.accumulated * values.inputs[i].abs();
    }
    return {{errors.vectors[0], errors.vectors[1]}, {errors.scale}};
  }

  /// Rows that only move take their errors along.
  template <class Kind>
  static constexpr bool is_moved =
      std::is_same_v<Kind, TokenPool> || std::is_same_v<Kind, InsertTokens>;
  template <class Kind>
  requires is_moved<Kind> at::Tensor forward_error(const Kind&, Place& place)
  const {
    Tensors errors = place.errors(), scratch;
    errors[1] = place.inputs[1].value;
    return place.golden.forward(errors, {}, scratch);
  }
  template <class Kind>
  requires is_moved<Kind> NodeGradients backward_error(const Kind&, Place& place,
                                                       const Approximation& g, const NodeGradients&)
  const { return place.golden.gradients(g.error, place.values(), {}, place.saved); }

  at::Tensor forward_error(const CrossAttention& kind, Place& place) const {
    return attention_error(kind, place.x(), place.inputs[1].value, u_);
  }
  NodeGradients backward_error(const CrossAttention& kind, Place& place, const Approximation& g,
                               const NodeGradients&) const {
    const auto [queries, others] =
        attention_gradient_error(kind, place.x(), place.inputs[1].value, g.value, u_);
    return {{queries, others}, {}};
  }

  at::Tensor forward_error(const Attention& kind, Place& place) const {
    return attention_error(kind, place.x(), u_);
  }
  NodeGradients backward_error(const Attention& kind, Place& place, const Approximation& g,
                               const NodeGradients&) const {
    return {{attention_gradient_error(kind, place.x(), g.value, u_)}, {}};
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

double root(double terms) { return std::sqrt(std::max(1.0, terms)); }

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

  GoldenResult result{places.back().output, {}, {}, {}};
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
  for (const Place& place : places) {
    result.buffers.insert(result.buffers.end(), place.buffers.begin(), place.buffers.end());
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
