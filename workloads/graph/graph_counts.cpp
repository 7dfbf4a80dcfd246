#include "workloads/graph/graph_counts.hpp"

#include <algorithm>

#include "workloads/graph/node_rules.hpp"

// Counting walks over the nodes: node_rules.hpp gives the operator that each node stands for, and
// metrics/operator_counts.hpp has the formulas. Only the facts that depend on the whole graph are
// found here: which node is the first convolution, whose input needs a gradient, and how many
// tokens a sample has.

namespace heteroperf {
namespace {

/// Tells if any input of a node depends on a trainable tensor.
InputGradient input_gradient(const ModelGraph& graph, const Node& node) {
  const bool needed = std::any_of(node.inputs.begin(), node.inputs.end(),
                                  [&](NodeId id) { return graph.node(id).differentiable; });
  return needed ? InputGradient::needed : InputGradient::none;
}

template <class Kind>
bool is(const Node& node) {
  return std::holds_alternative<Kind>(node.attributes);
}

/// AIPerf's formulas treat the first convolution of the graph apart.
bool is_first_convolution(const ModelGraph& graph, const Node& node) {
  if (!is<Conv2d>(node)) return false;
  const auto& nodes = graph.nodes();
  const auto first = std::find_if(nodes.begin(), nodes.end(), is<Conv2d>);
  return &*first == &node;
}

/// Returns true for tables whose rows are added and never multiplied; PaLM's N leaves them out.
bool only_adds_rows(const Node& node) {
  return is<PositionEmbedding>(node) || is<TypeEmbedding>(node) || is<ClassToken>(node);
}

/// Returns the tokens of one sample; nothing outside language models.
std::optional<std::uint64_t> sample_tokens(const ModelGraph& graph) {
  for (const Node& node : graph.nodes()) {
    const auto* input = std::get_if<Input>(&node.attributes);
    if (input != nullptr && input->kind == InputKind::tokens) {
      return static_cast<std::uint64_t>(input->length);
    }
  }
  return std::nullopt;
}

/// Adds `factor` times the counts of a term to a sum.
void add(StrictOps& sum, const StrictOps& term, std::uint64_t factor = 1) {
  for (const auto pass :
       {&StrictOps::forward, &StrictOps::input_gradient, &StrictOps::weight_gradient}) {
    sum.*pass += term.*pass * factor;
  }
}

/// The same for a convention; a pass becomes absent with its first absent term.
void add(PassOps& sum, const PassOps& term, std::uint64_t factor = 1) {
  for (const auto pass : {&PassOps::forward, &PassOps::backward}) {
    if (sum.*pass && term.*pass) {
      *(sum.*pass) += *(term.*pass) * factor;
    } else {
      (sum.*pass).reset();
    }
  }
}

StrictOps strict_sample_ops(const ModelGraph& graph) {
  StrictOps sum;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    add(sum, strict_node_ops(graph, NodeId(i)));
  }
  return sum;
}

}  // namespace

OperatorUse operator_use(const ModelGraph& graph, NodeId id) {
  const Node& node = graph.node(id);
  OperatorUse use;
  use.shape = operator_shape(graph, node);
  use.input_gradient = input_gradient(graph, node);
  use.order = is_first_convolution(graph, node) ? ConvolutionOrder::first : ConvolutionOrder::later;
  use.palm_parameters = only_adds_rows(node) ? 0 : parameter_count(node);
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
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const OperatorUse use = operator_use(graph, NodeId(i));
    LayerCounts& layer = counts.layers.emplace_back();
    layer.name = node.name;
    layer.kind = kind_name(node.attributes);
    layer.parameters = parameter_count(node);
    counts.parameters += layer.parameters;
    add(layer.strict, strict_ops(use.shape, use.input_gradient), samples);
    add(counts.strict, layer.strict);
    for (Convention convention : all_conventions) {
      add(layer.conventions[convention], count_ops(use, convention), samples);
      add(counts.conventions[convention], layer.conventions[convention]);
    }
  }
  return counts;
}

Ops strict_train_ops(const ModelGraph& graph, std::uint64_t samples) {
  return strict_sample_ops(graph).train() * samples;
}

Ops padding_train_ops(const ModelGraph& graph, std::uint64_t samples) {
  Ops sum;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const OperatorUse use = operator_use(graph, NodeId(i));
    sum += padding_ops(use.shape, use.input_gradient);
  }
  return sum * samples;
}

Ops strict_forward_ops(const ModelGraph& graph, std::uint64_t samples) {
  return strict_sample_ops(graph).forward * samples;
}

}  // namespace heteroperf
