#include "tests/unit/runners/engine/reference_model.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

/// Evaluates one node; one overload per kind.
class Evaluator {
 public:
  Evaluator(const ModelGraph& graph, NodeId id, const Tensors& inputs, const Tensors& parameters,
            Tensors& running, const PassContext& context)
      : graph_(graph), id_(id), in_(inputs), p_(parameters), running_(running), context_(context) {}

  at::Tensor operator()(const Input&) const { return in_.at(0); }
  at::Tensor operator()(const Conv2d& a) const {
    return at::conv2d(in_[0], p_[0], a.bias ? std::optional(p_[1]) : std::nullopt, a.stride,
                      a.padding, at::IntArrayRef{1, 1}, a.groups);
  }
  at::Tensor operator()(const Linear& a) const {
    return at::linear(in_[0], p_[0], a.bias ? std::optional(p_[1]) : std::nullopt);
  }
  at::Tensor operator()(const BatchNorm& a) const {
    return at::batch_norm(in_[0], p_[0], p_[1], running_.at(0), running_.at(1),
                          context_.mode == Mode::train, a.momentum, a.eps, false);
  }
  at::Tensor operator()(const LayerNorm& a) const {
    return at::layer_norm(in_[0], {in_[0].size(-1)}, p_[0],
                          a.bias ? std::optional(p_[1]) : std::nullopt, a.eps);
  }
  at::Tensor operator()(const RmsNorm& a) const {
    return in_[0] * at::rsqrt(in_[0].pow(2).mean(-1, true) + a.eps) * p_[0];
  }
  at::Tensor operator()(const Relu&) const { return at::relu(in_[0]); }
  at::Tensor operator()(const Gelu& a) const {
    return at::gelu(in_[0], a.form == GeluForm::tanh ? "tanh" : "none");
  }
  at::Tensor operator()(const Silu&) const { return at::silu(in_[0]); }
  at::Tensor operator()(const Tanh&) const { return at::tanh(in_[0]); }
  at::Tensor operator()(const Add&) const {
    at::Tensor sum = in_[0];
    for (std::size_t i = 1; i < in_.size(); ++i) sum = sum + in_[i];
    return sum;
  }
  at::Tensor operator()(const Multiply&) const { return in_[0] * in_[1]; }
  at::Tensor operator()(const Concat&) const { return at::cat(in_, 1); }
  at::Tensor operator()(const MaxPool& a) const {
    return at::max_pool2d(in_[0], a.kernel, a.stride, a.padding);
  }
  at::Tensor operator()(const AvgPool& a) const {
    return at::avg_pool2d(in_[0], a.kernel, a.stride, a.padding, false, false);
  }
  at::Tensor operator()(const GlobalAvgPool&) const { return in_[0].mean({2, 3}); }
  at::Tensor operator()(const Flatten&) const { return in_[0].flatten(1); }
  at::Tensor operator()(const ToSequence&) const { return in_[0].flatten(2).transpose(1, 2); }
  at::Tensor operator()(const Embedding&) const { return at::embedding(p_[0], in_[0]); }
  at::Tensor operator()(const PositionEmbedding&) const {
    return in_[0] + p_[0].narrow(0, 0, in_[0].size(1));
  }
  at::Tensor operator()(const TypeEmbedding&) const { return in_[0] + p_[0][0]; }
  at::Tensor operator()(const ClassToken&) const {
    return at::cat({p_[0].expand({in_[0].size(0), 1, -1}), in_[0]}, 1);
  }
  at::Tensor operator()(const TakeToken& a) const { return in_[0].select(1, a.index); }
  at::Tensor operator()(const TokenPool& a) const {
    Tensors rows;
    for (std::int64_t b = 0; b < in_[0].size(0); ++b) {
      std::int64_t t = 0;
      while (t + 1 < in_[0].size(1) && in_[1][b][t].item<std::int64_t>() != a.token) ++t;
      rows.push_back(in_[0][b][t]);
    }
    return at::stack(rows);
  }
  at::Tensor operator()(const InsertTokens& a) const {
    const at::Tensor places = in_[1].eq(a.token).unsqueeze(-1).expand_as(in_[0]);
    return in_[0].masked_scatter(places, in_[2]);
  }
  at::Tensor operator()(const Rotary& a) const { return rotate(a); }
  at::Tensor operator()(const Attention& a) const { return attend(a); }
  at::Tensor operator()(const CrossAttention& a) const {
    const std::int64_t share = a.heads / a.kv_heads;
    const at::Tensor query = in_[0].unflatten(2, {a.heads, -1}).transpose(1, 2);
    const Tensors others = in_[1].unflatten(2, {2 * a.kv_heads, -1}).transpose(1, 2).chunk(2, 1);
    const at::Tensor key = others[0].repeat_interleave(share, 1);
    const at::Tensor value = others[1].repeat_interleave(share, 1);
    const at::Tensor scores =
        at::matmul(query, key.transpose(2, 3)) / std::sqrt(static_cast<double>(a.head_dim));
    return at::matmul(at::softmax(scores, -1), value).transpose(1, 2).flatten(2);
  }
  at::Tensor operator()(const Dropout& a) const;
  at::Tensor operator()(const CrossEntropy& a) const {
    const at::Tensor logits = in_[0].flatten(0, -2);
    return at::cross_entropy_loss(logits, in_[1].flatten(), {}, at::Reduction::Mean, -1,
                                  a.label_smoothing)
        .view({1});
  }
  at::Tensor operator()(const SquaredError&) const {
    const at::Tensor counted = in_[1].select(-1, 0).isnan().logical_not();
    const at::Tensor difference = in_[0] - at::nan_to_num(in_[1]);
    return (difference.square().sum(-1) * counted).sum().div(counted.sum()).view({1});
  }
  at::Tensor operator()(const Contrastive&) const {
    const auto unit = [](const at::Tensor& x) { return x / x.norm(2, {-1}, true); };
    const at::Tensor s = at::matmul(unit(in_[0]), unit(in_[1]).t()) * p_[0].exp().clamp_max(100.0);
    const at::Tensor pairs = at::arange(s.size(0), at::kLong);
    return ((at::cross_entropy_loss(s, pairs) + at::cross_entropy_loss(s.t(), pairs)) / 2)
        .view({1});
  }

 private:
  at::Tensor rotate(const Rotary& a) const;
  at::Tensor attend(const Attention& a) const;
  at::Tensor heads(std::int64_t first, std::int64_t count, std::int64_t width) const {
    return in_[0].narrow(2, first * width, count * width).unflatten(2, {count, width});
  }

  const ModelGraph& graph_;
  NodeId id_;
  const Tensors& in_;
  const Tensors& p_;
  Tensors& running_;
  const PassContext& context_;
};

at::Tensor Evaluator::rotate(const Rotary& a) const {
  const std::int64_t length = in_[0].size(1), half = a.head_dim / 2;
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor exponent = at::arange(half, wide) * (-2.0 / static_cast<double>(a.head_dim));
  const at::Tensor angle = at::outer(at::arange(length, wide), at::pow(a.base, exponent));
  const at::Tensor cosine = angle.cos().to(in_[0].scalar_type()).view({1, length, 1, half});
  const at::Tensor sine = angle.sin().to(in_[0].scalar_type()).view({1, length, 1, half});
  const std::int64_t turned = a.heads + a.kv_heads;
  const at::Tensor x = heads(0, turned, a.head_dim);
  const at::Tensor first = x.narrow(3, 0, half), second = x.narrow(3, half, half);
  const at::Tensor y =
      at::cat({first * cosine - second * sine, second * cosine + first * sine}, 3).flatten(2);
  return at::cat({y, heads(turned, a.kv_heads, a.head_dim).flatten(2)}, 2);
}

at::Tensor Evaluator::attend(const Attention& a) const {
  const std::int64_t length = in_[0].size(1), share = a.heads / a.kv_heads;
  const auto repeated = [&](std::int64_t first) {
    const at::Tensor one = heads(first, a.kv_heads, a.head_dim).transpose(1, 2);
    return share == 1 ? one : one.repeat_interleave(share, 1);
  };
  const at::Tensor query = heads(0, a.heads, a.head_dim).transpose(1, 2);
  // What eager PyTorch runs: float32 models serve comparisons of speed.
  if (in_[0].scalar_type() == at::kFloat && a.heads == a.kv_heads && !a.alibi) {
    return at::scaled_dot_product_attention(query, repeated(a.heads), repeated(2 * a.heads), {},
                                            0.0, a.causal)
        .transpose(1, 2)
        .flatten(2);
  }
  at::Tensor scores = at::matmul(query, repeated(a.heads).transpose(2, 3)) /
                      std::sqrt(static_cast<double>(a.head_dim));
  if (a.alibi) {
    const auto options = in_[0].options();
    const at::Tensor t = at::arange(length, options), head = at::arange(1, a.heads + 1, options);
    const at::Tensor slope = at::pow(2.0, head * (-8.0 / static_cast<double>(a.heads)));
    scores = scores - slope.view({-1, 1, 1}) * (t.view({-1, 1}) - t);
  }
  if (a.causal) {
    const at::Tensor future =
        at::ones({length, length}, at::TensorOptions().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(future, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor weights = at::softmax(scores, -1);
  return at::matmul(weights, repeated(a.heads + a.kv_heads)).transpose(1, 2).flatten(2);
}

// The mask is the operator's own (its statistics have tests of their own): a constant factor.
at::Tensor Evaluator::operator()(const Dropout&) const {
  PassContext own = context_;
  own.node = id_.value();
  Tensors saved;
  const at::Tensor ones = at::ones_like(in_[0].detach());
  return in_[0] * make_operator(graph_, id_, ones.scalar_type())->forward({ones}, {}, saved, own);
}

bool is_norm_weight(const Node& node, std::size_t index) {
  const auto& a = node.attributes;
  return index == 0 && (std::holds_alternative<BatchNorm>(a) ||
                        std::holds_alternative<LayerNorm>(a) || std::holds_alternative<RmsNorm>(a));
}

at::Tensor initial_parameter(const Node& node, std::size_t index, at::ScalarType type,
                             std::uint64_t seed) {
  const Shape& shape = node.parameters[index].shape;
  const at::Tensor values = random_tensor(shape, at::kDouble, seed);
  if (is_norm_weight(node, index)) return (1.0 + 0.2 * values).to(type);
  const double fan_in =
      shape.size() < 2 ? 16.0
                       : static_cast<double>(element_count(shape)) / static_cast<double>(shape[0]);
  return (values * std::sqrt(3.0 / fan_in)).to(type);
}

}  // namespace

at::Tensor random_tensor(at::IntArrayRef sizes, at::ScalarType type, std::uint64_t seed) {
  at::Tensor values = at::empty(sizes, at::TensorOptions().dtype(at::kDouble));
  RandomStream stream(seed);
  auto* data = values.data_ptr<double>();
  for (std::int64_t i = 0; i < values.numel(); ++i) data[i] = 2.0 * stream.unit() - 1.0;
  return values.to(type);
}

at::Tensor random_indices(at::IntArrayRef sizes, std::int64_t bound, std::uint64_t seed) {
  at::Tensor values = at::empty(sizes, at::TensorOptions().dtype(at::kLong));
  RandomStream stream(seed);
  auto* data = values.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    data[i] = static_cast<std::int64_t>(stream.below(static_cast<std::uint64_t>(bound)));
  }
  return values;
}

std::vector<std::int64_t> batched(std::int64_t batch, const Shape& shape) {
  std::vector<std::int64_t> sizes{batch};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return sizes;
}

at::Tensor random_sample(const ModelGraph& graph, std::int64_t batch, at::ScalarType type,
                         std::uint64_t seed) {
  return random_input(graph, graph.input(), batch, type, seed);
}

at::Tensor random_input(const ModelGraph& graph, NodeId input, std::int64_t batch,
                        at::ScalarType type, std::uint64_t seed) {
  const std::vector<std::int64_t> sizes = batched(batch, graph.node(input).output);
  for (const NodeId user : graph.consumers(input)) {
    if (const auto* table = std::get_if<Embedding>(&graph.node(user).attributes)) {
      return random_indices(sizes, table->vocabulary, seed);
    }
  }
  return random_tensor(sizes, type, seed);
}

at::Tensor random_targets(const ModelGraph& graph, std::int64_t batch, std::uint64_t seed,
                          std::int64_t uncounted) {
  const Node& loss = graph.node(graph.loss());
  std::vector<std::int64_t> sizes = batched(batch, graph.node(loss.inputs[0]).output);
  const std::int64_t classes = sizes.back();
  if (std::holds_alternative<SquaredError>(loss.attributes)) {
    const at::Tensor targets = random_tensor(sizes, at::kDouble, seed);
    targets.view({-1, classes}).narrow(0, 0, uncounted).fill_(std::nan(""));
    return targets;
  }
  sizes.pop_back();
  const at::Tensor targets = random_indices(sizes, classes, seed);
  targets.view({-1}).narrow(0, 0, uncounted).fill_(-1);
  return targets;
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes()) return infinity;
  if (a.numel() == 0) return 0;
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  const double difference = (x - y).abs().max().item<double>();
  const double scale = y.abs().max().item<double>();
  if (!std::isfinite(difference) || !std::isfinite(scale)) return infinity;
  return scale == 0.0 ? difference : difference / scale;
}

at::Tensor reference_output(const ModelGraph& graph, NodeId node, const Tensors& inputs,
                            const Tensors& parameters, Tensors& running,
                            const PassContext& context) {
  return std::visit(Evaluator(graph, node, inputs, parameters, running, context),
                    graph.node(node).attributes);
}

ReferenceModel::ReferenceModel(const ModelGraph& graph, at::ScalarType type, std::uint64_t seed)
    : graph_(graph), parameters_(graph.nodes().size()), running_(graph.nodes().size()) {
  for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
    const Node& node = graph_.nodes()[n];
    for (std::size_t i = 0; i < node.parameters.size(); ++i) {
      at::Tensor values = initial_parameter(node, i, type, random_bits(seed, n, i));
      parameters_[n].push_back(values.requires_grad_());
    }
    if (std::holds_alternative<BatchNorm>(node.attributes)) {
      const auto options = at::TensorOptions().dtype(type);
      running_[n] = {at::zeros({node.output[0]}, options), at::ones({node.output[0]}, options)};
    }
  }
}

const at::Tensor& ReferenceModel::parameter(NodeId node, std::size_t index) const {
  return parameters_.at(node.index()).at(index);
}

at::Tensor ReferenceModel::gradient(NodeId node, std::size_t index) const {
  return parameter(node, index).grad();
}

void ReferenceModel::zero_gradients() {
  for (Tensors& tensors : parameters_) {
    for (at::Tensor& tensor : tensors) tensor.mutable_grad().reset();
  }
}

Tensors ReferenceModel::parameters_of(NodeId node) const {
  const auto* linear = std::get_if<Linear>(&graph_.node(node).attributes);
  Tensors all;
  if (linear != nullptr && !linear->tied_to.empty())
    all.push_back(parameter(graph_.find(linear->tied_to), 0));
  const Tensors& own = parameters_[node.index()];
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

at::Tensor ReferenceModel::forward(const at::Tensor& sample, const at::Tensor& targets,
                                   const PassContext& context) {
  outputs_.clear();
  for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
    const NodeId id(static_cast<std::int32_t>(n));
    const Node& node = graph_.nodes()[n];
    Tensors inputs;
    for (const NodeId input : node.inputs) inputs.push_back(output(input));
    if (std::holds_alternative<Input>(node.attributes)) inputs.push_back(sample);
    if (takes_targets(node.attributes)) inputs.push_back(targets);
    outputs_.push_back(
        reference_output(graph_, id, inputs, parameters_of(id), running_[n], context));
  }
  return outputs_.back();
}

}  // namespace heteroperf
