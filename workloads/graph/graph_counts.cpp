#include "workloads/graph/graph_counts.hpp"

#include <algorithm>

#include "workloads/graph/node_rules.hpp"

// Counting walks over the nodes: node_rules.hpp gives the operator that each node stands for, and
// metrics/operator_counts.hpp has the formulas. Only the facts that depend on the whole graph are
// found here: which node is the first convolution, whose input needs a gradient, how many tokens a
// sample has, and how many samples or items of a batch a node is computed for.

namespace heteroperf {
namespace {

/// Tells if any input of a node depends on a trainable tensor.
InputGradient input_gradient(const ModelGraph& graph, const Node& node) {
  const bool needed = std::any_of(node.inputs.begin(), node.inputs.end(),
                                  [&](NodeId id) { return graph.node(id).differentiable; });
  return needed ? InputGradient::needed : InputGradient::none;
}

WeightGradient weight_gradient(const ModelGraph& graph, const Node& node) {
  const bool frozen = node.weights == Weights::frozen && !has_trained_weight(graph, node);
  return frozen ? WeightGradient::none : WeightGradient::needed;
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

/// Returns the tokens of one sample; nothing outside language models, which read tokens alone.
std::optional<std::uint64_t> sample_tokens(const ModelGraph& graph) {
  const std::vector<NodeId> inputs = graph.inputs();
  if (inputs.size() != 1) return std::nullopt;
  const auto& input = std::get<Input>(graph.node(inputs[0]).attributes);
  if (input.kind != InputKind::tokens) return std::nullopt;
  return static_cast<std::uint64_t>(input.length);
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

Ops padding_node_ops(const ModelGraph& graph, NodeId id, const BatchExtent& batch) {
  const OperatorUse use = operator_use(graph, id);
  return padding_ops(use.shape, use.input_gradient, use.weight_gradient) *
         batch.count(graph, graph.node(id));
}

StrictOps strict_batch_ops(const ModelGraph& graph, const BatchExtent& batch) {
  StrictOps sum;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    add(sum, strict_node_ops(graph, NodeId(i), batch));
  }
  return sum;
}

}  // namespace

std::uint64_t BatchExtent::count(const ModelGraph& graph, const Node& node) const {
  if (!node.items) return samples;
  const auto known = items.find(*node.items);
  if (known != items.end()) return known->second;
  const auto& input = std::get<Input>(graph.node(*node.items).attributes);
  return samples * static_cast<std::uint64_t>(input.items);
}

std::optional<ItemRange> items_of_samples(const ModelGraph& graph) {
  for (const NodeId id : graph.inputs()) {
    const auto& input = std::get<Input>(graph.node(id).attributes);
    if (input.items == 0) continue;
    return ItemRange{static_cast<std::uint64_t>(input.fewest_items),
                     static_cast<std::uint64_t>(input.items)};
  }
  return std::nullopt;
}

BatchExtent extent_with_items(const ModelGraph& graph, std::uint64_t samples, std::uint64_t items) {
  BatchExtent extent(samples);
  for (const NodeId id : graph.inputs()) {
    if (std::get<Input>(graph.node(id).attributes).items > 0) extent.items[id] = items;
  }
  return extent;
}

BatchExtent usual_extent(const ModelGraph& graph, std::uint64_t samples) {
  BatchExtent extent(samples);
  for (const NodeId id : graph.inputs()) {
    const auto& input = std::get<Input>(graph.node(id).attributes);
    if (input.items == 0) continue;
    const auto both = static_cast<std::uint64_t>(input.fewest_items + input.items);
    extent.items[id] = (samples * both + 1) / 2;
  }
  return extent;
}

OperatorUse operator_use(const ModelGraph& graph, NodeId id, std::uint64_t contrasted) {
  const Node& node = graph.node(id);
  OperatorUse use;
  use.shape = operator_shape(graph, node, contrasted);
  use.input_gradient = input_gradient(graph, node);
  use.weight_gradient = weight_gradient(graph, node);
  use.order = is_first_convolution(graph, node) ? ConvolutionOrder::first : ConvolutionOrder::later;
  use.palm_parameters = only_adds_rows(node) ? 0 : parameter_count(node);
  use.tokens = sample_tokens(graph);
  return use;
}

StrictOps strict_node_ops(const ModelGraph& graph, NodeId id, const BatchExtent& batch) {
  const Node& node = graph.node(id);
  StrictOps sum;
  add(sum,
      strict_ops(operator_shape(graph, node, batch.contrasted), input_gradient(graph, node),
                 weight_gradient(graph, node)),
      batch.count(graph, node));
  return sum;
}

GraphCounts count_graph(const ModelGraph& graph, const BatchExtent& batch) {
  GraphCounts counts;
  counts.batch = batch;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const OperatorUse use = operator_use(graph, NodeId(i), batch.contrasted);
    const std::uint64_t times = batch.count(graph, node);
    LayerCounts& layer = counts.layers.emplace_back();
    layer.name = node.name;
    layer.kind = kind_name(node.attributes);
    layer.parameters = parameter_count(node);
    counts.parameters += layer.parameters;
    add(layer.strict, strict_ops(use.shape, use.input_gradient, use.weight_gradient), times);
    add(counts.strict, layer.strict);
    for (Convention convention : all_conventions) {
      add(layer.conventions[convention], count_ops(use, convention), times);
      add(counts.conventions[convention], layer.conventions[convention]);
    }
  }
  return counts;
}

std::vector<std::string> components_of(const ModelGraph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) {
    if (std::ranges::find(names, node.branch) == names.end()) names.push_back(node.branch);
  }
  return names;
}

std::vector<ComponentCounts> by_component(const ModelGraph& graph, const GraphCounts& counts) {
  std::vector<ComponentCounts> components;
  for (const std::string& name : components_of(graph)) components.push_back({name, 0, 0, {}, {}});
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    ComponentCounts& component =
        *std::ranges::find(components, node.branch, &ComponentCounts::name);
    component.parameters += parameter_count(node);
    component.trained_parameters += trained_parameter_count(node);
    add(component.strict, counts.layers[i].strict);
    component.padding += padding_node_ops(graph, NodeId(i), counts.batch);
  }
  return components;
}

Ops strict_train_ops(const ModelGraph& graph, const BatchExtent& batch) {
  return strict_batch_ops(graph, batch).train();
}

Ops padding_train_ops(const ModelGraph& graph, const BatchExtent& batch) {
  Ops sum;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    sum += padding_node_ops(graph, NodeId(i), batch);
  }
  return sum;
}

Ops strict_forward_ops(const ModelGraph& graph, const BatchExtent& batch) {
  return strict_batch_ops(graph, batch).forward;
}

std::optional<ContrastOver> contrast_of(const ModelGraph& graph) {
  const auto* loss = std::get_if<Contrastive>(&graph.node(graph.loss()).attributes);
  return loss == nullptr ? std::nullopt : std::optional(loss->over);
}

Ops strict_evaluation_ops(const ModelGraph& graph, const BatchExtent& batch) {
  if (!contrast_of(graph)) return strict_forward_ops(graph, batch);
  // The last set may be smaller.
  return strict_forward_ops(graph, evaluated_pairs) * (batch.samples / evaluated_pairs) +
         strict_forward_ops(graph, batch.samples % evaluated_pairs);
}

BatchExtent part_of_step(const ModelGraph& graph, std::uint64_t samples, std::uint64_t in_step,
                         std::uint64_t in_micro_batch) {
  BatchExtent extent(samples);
  if (const auto contrast = contrast_of(graph)) {
    extent.contrasted = *contrast == ContrastOver::step ? in_step : in_micro_batch;
  }
  return extent;
}

}  // namespace heteroperf
