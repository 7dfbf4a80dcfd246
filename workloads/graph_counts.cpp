#include "workloads/graph_counts.hpp"

#include <algorithm>

namespace heteroperf {
namespace {

std::uint64_t u(std::int64_t value) { return static_cast<std::uint64_t>(value); }

std::uint64_t own_parameters(const Node& node) {
  std::uint64_t count = 0;
  for (const Parameter& parameter : node.parameters) count += u(element_count(parameter.shape));
  return count;
}

/// The operator shape of every kind of node.
class ShapeOf {
 public:
  ShapeOf(const Shape& in, const Shape& out) : in_(in), out_(out) {}

  OperatorShape operator()(const Conv2d& a) const {
    return Conv2dShape{u(in_[0]),      u(a.out_channels), u(a.groups), u(a.kernel[0]),
                       u(a.kernel[1]), u(out_[1]),        u(out_[2])};
  }
  OperatorShape operator()(const Linear& a) const {
    return GemmShape{u(element_count(in_) / in_.back()), u(in_.back()), u(a.out_features)};
  }
  OperatorShape operator()(const Attention& a) const {
    return AttentionShape{u(a.heads), u(a.head_dim), u(in_[0]),
                          a.causal ? AttentionMask::causal : AttentionMask::full};
  }
  OperatorShape operator()(const MaxPool& a) const {
    return MaxPoolShape{u(element_count(in_)), u(a.kernel[0] * a.kernel[1]),
                        u(a.stride[0] * a.stride[1])};
  }
  OperatorShape operator()(const GlobalAvgPool&) const {
    return GlobalPoolShape{u(in_[0]), u(in_[1] * in_[2])};
  }
  OperatorShape operator()(const CrossEntropy&) const {
    if (in_.size() != 1) return elementwise(ElementwiseKind::other);
    return SoftmaxShape{u(in_[0])};
  }
  OperatorShape operator()(const BatchNorm&) const {
    return elementwise(ElementwiseKind::batch_norm);
  }
  OperatorShape operator()(const Relu&) const { return elementwise(ElementwiseKind::relu); }
  OperatorShape operator()(const Add&) const { return elementwise(ElementwiseKind::add); }
  OperatorShape operator()(const Input&) const { return elementwise(ElementwiseKind::moved); }
  OperatorShape operator()(const Concat&) const { return elementwise(ElementwiseKind::moved); }
  OperatorShape operator()(const Flatten&) const { return elementwise(ElementwiseKind::moved); }
  OperatorShape operator()(const Dropout&) const { return elementwise(ElementwiseKind::moved); }
  template <class Kind>
  OperatorShape operator()(const Kind&) const {
    return elementwise(ElementwiseKind::other);
  }

 private:
  OperatorShape elementwise(ElementwiseKind kind) const {
    return ElementwiseShape{kind, u(element_count(out_))};
  }

  const Shape& in_;
  const Shape& out_;
};

const Shape& input_shape(const ModelGraph& graph, const Node& node) {
  return node.inputs.empty() ? node.output : graph.node(node.inputs[0]).output;
}

InputGradient input_gradient(const ModelGraph& graph, const Node& node) {
  const bool needed = std::any_of(node.inputs.begin(), node.inputs.end(),
                                  [&](NodeId id) { return graph.node(id).differentiable; });
  return needed ? InputGradient::needed : InputGradient::none;
}

template <class Kind>
bool is(const Node& node) {
  return std::holds_alternative<Kind>(node.attributes);
}

bool is_first_convolution(const ModelGraph& graph, const Node& node) {
  if (!is<Conv2d>(node)) return false;
  const auto& nodes = graph.nodes();
  const auto first = std::find_if(nodes.begin(), nodes.end(), is<Conv2d>);
  return &*first == &node;
}

bool only_adds_rows(const Node& node) {
  return is<PositionEmbedding>(node) || is<TypeEmbedding>(node) || is<ClassToken>(node);
}

std::optional<std::uint64_t> sample_tokens(const ModelGraph& graph) {
  for (const Node& node : graph.nodes()) {
    const auto* input = std::get_if<Input>(&node.attributes);
    if (input != nullptr && input->kind == InputKind::tokens) return u(input->length);
  }
  return std::nullopt;
}

void add(std::optional<Ops>& sum, const std::optional<Ops>& term) {
  if (sum && term) {
    *sum += *term;
  } else {
    sum.reset();
  }
}

void scale(PassOps& ops, std::uint64_t factor) {
  if (ops.forward) *ops.forward *= factor;
  if (ops.backward) *ops.backward *= factor;
}

StrictOps scaled(const StrictOps& ops, std::uint64_t factor) {
  return {ops.forward * factor, ops.input_gradient * factor, ops.weight_gradient * factor};
}

StrictOps& operator+=(StrictOps& sum, const StrictOps& term) {
  sum.forward += term.forward;
  sum.input_gradient += term.input_gradient;
  sum.weight_gradient += term.weight_gradient;
  return sum;
}

LayerCounts count_layer(const ModelGraph& graph, NodeId id, std::uint64_t samples) {
  const Node& node = graph.node(id);
  const OperatorUse use = operator_use(graph, id);
  LayerCounts layer;
  layer.name = node.name;
  layer.kind = kind_name(node.attributes);
  layer.parameters = own_parameters(node);
  layer.strict = scaled(strict_ops(use.shape, use.input_gradient), samples);
  for (Convention convention : all_conventions) {
    layer.conventions[convention] = count_ops(use, convention);
    scale(layer.conventions[convention], samples);
  }
  return layer;
}

void add_to_totals(GraphCounts& counts, const LayerCounts& layer) {
  counts.parameters += layer.parameters;
  counts.strict += layer.strict;
  for (Convention convention : all_conventions) {
    add(counts.conventions[convention].forward, layer.conventions[convention].forward);
    add(counts.conventions[convention].backward, layer.conventions[convention].backward);
  }
}

StrictOps strict_sample_ops(const ModelGraph& graph) {
  StrictOps sum;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    sum += strict_node_ops(graph, NodeId(static_cast<std::int32_t>(i)));
  }
  return sum;
}

OperatorShape operator_shape(const ModelGraph& graph, const Node& node) {
  return std::visit(ShapeOf(input_shape(graph, node), node.output), node.attributes);
}

}  // namespace

OperatorUse operator_use(const ModelGraph& graph, NodeId id) {
  const Node& node = graph.node(id);
  OperatorUse use;
  use.shape = operator_shape(graph, node);
  use.input_gradient = input_gradient(graph, node);
  use.order = is_first_convolution(graph, node) ? ConvolutionOrder::first : ConvolutionOrder::later;
  use.palm_parameters = only_adds_rows(node) ? 0 : own_parameters(node);
  use.tokens = sample_tokens(graph);
  return use;
}

StrictOps strict_node_ops(const ModelGraph& graph, NodeId id) {
  const Node& node = graph.node(id);
  return strict_ops(operator_shape(graph, node), input_gradient(graph, node));
}

GraphCounts count_graph(const ModelGraph& graph, std::uint64_t samples) {
  GraphCounts counts;
  counts.samples = samples;
  for (Convention convention : all_conventions) {
    counts.conventions[convention] = {Ops(), Ops()};
  }
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    counts.layers.push_back(count_layer(graph, NodeId(static_cast<std::int32_t>(i)), samples));
    add_to_totals(counts, counts.layers.back());
  }
  return counts;
}

Ops strict_train_ops(const ModelGraph& graph, std::uint64_t samples) {
  return strict_sample_ops(graph).train() * samples;
}

Ops strict_forward_ops(const ModelGraph& graph, std::uint64_t samples) {
  return strict_sample_ops(graph).forward * samples;
}

}  // namespace heteroperf
