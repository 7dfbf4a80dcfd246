#include "automl/graph_rebuild.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "metrics/base/error.hpp"

namespace heteroperf {

NodeId GraphRebuild::copy(NodeId old, Attributes changed) {
  HETEROPERF_EXPECT(old.index() == now_.size());
  const Node& node = source_.node(old);
  std::vector<NodeId> inputs;
  for (NodeId input : node.inputs) inputs.push_back(now(input));
  now_.push_back(graph_.add(node.name, std::move(changed), std::move(inputs), node.branch));
  return now_.back();
}

NodeId GraphRebuild::add(std::string name, Attributes attributes, std::vector<NodeId> inputs) {
  HETEROPERF_EXPECT(!inputs.empty());
  std::string branch = graph_.node(inputs.front()).branch;
  return graph_.add(std::move(name), std::move(attributes), std::move(inputs), std::move(branch));
}

std::vector<NodeId> main_chain(const ModelGraph& graph) {
  std::vector<std::size_t> depth;
  const auto deeper_first = [&](NodeId a, NodeId b) { return depth[a.index()] < depth[b.index()]; };
  const auto deepest_input = [&](const Node& node) {
    return *std::max_element(node.inputs.begin(), node.inputs.end(), deeper_first);
  };
  for (const Node& node : graph.nodes()) {
    depth.push_back(node.inputs.empty() ? 0 : depth[deepest_input(node).index()] + 1);
  }
  std::vector<NodeId> chain{graph.loss()};
  while (!graph.node(chain.back()).inputs.empty()) {
    chain.push_back(deepest_input(graph.node(chain.back())));
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

namespace {

/// Recognises a layer of a deeper morph by its name, "deeper<n>.…".
bool is_added_by_deeper_morph(const Node& node) {
  const std::string_view name = node.name;
  return name.starts_with("deeper") && name.size() > 6 && name[6] >= '0' && name[6] <= '9';
}

/// Returns a node's attributes with the dropout and the kernel of a trial.
Attributes with_settings(const Node& node, double dropout, std::int64_t kernel) {
  Attributes attributes = node.attributes;
  if (auto* drop = std::get_if<Dropout>(&attributes)) drop->p = dropout;
  if (auto* conv = std::get_if<Conv2d>(&attributes); conv && is_added_by_deeper_morph(node)) {
    const std::int64_t side = std::min(node.output[1], node.output[2]);
    const std::int64_t k = std::min(kernel, 2 * side - 1);
    conv->kernel = {k, k};
    conv->padding = {k / 2, k / 2};
  }
  return attributes;
}

/// Returns the last linear layer of a graph that has no dropout node, else nothing.
std::optional<NodeId> place_for_dropout(const ModelGraph& graph) {
  std::optional<NodeId> last;
  for (NodeId id : node_ids(graph)) {
    if (std::holds_alternative<Dropout>(graph.node(id).attributes)) return std::nullopt;
    if (std::holds_alternative<Linear>(graph.node(id).attributes)) last = id;
  }
  return last;
}

}  // namespace

ModelGraph graph_with(const ModelGraph& graph, double dropout, std::int64_t kernel) {
  HETEROPERF_EXPECT(dropout >= 0.0 && dropout < 1.0 && kernel >= 1 && kernel % 2 == 1);
  const std::optional<NodeId> classifier = place_for_dropout(graph);
  GraphRebuild next(graph);
  for (NodeId id : node_ids(graph)) {
    const Node& node = graph.node(id);
    if (classifier == id) {
      const NodeId input = node.inputs[0];
      next.replace(input, next.add("dropout", Dropout{dropout}, {next.now(input)}));
    }
    next.copy(id, with_settings(node, dropout, kernel));
  }
  return std::move(next).finish();
}

ModelGraph architecture_of(const ModelGraph& graph) { return graph_with(graph, 0.0, 3); }

// Channels that are added, multiplied or normalised together must be equally many. The outputs of
// all such nodes are joined to classes. A class may be widened if all its widths come from
// convolutions and linear layers, which then get the new width together.

namespace {

template <class... Kinds>
bool is_any(const Node& node) {
  return (std::holds_alternative<Kinds>(node.attributes) || ...);
}

/// Returns true where channel c of the output depends on the channels c of the inputs alone.
bool keeps_channels(const ModelGraph& graph, NodeId id) {
  const Node& node = graph.node(id);
  return is_element_wise(node.attributes) || is_depthwise(graph, id) ||
         is_any<BatchNorm, MaxPool, AvgPool, GlobalAvgPool>(node);
}

bool is_derived(const Node& node) { return is_any<Flatten, Concat>(node); }

}  // namespace

bool is_depthwise(const ModelGraph& graph, NodeId id) {
  const auto* conv = std::get_if<Conv2d>(&graph.node(id).attributes);
  return conv != nullptr && conv->groups > 1 && conv->groups == conv->out_channels &&
         conv->groups == graph.node(graph.node(id).inputs[0]).output[0];
}

ChannelClasses::ChannelClasses(const ModelGraph& graph)
    : class_of_(graph.nodes().size()), classes_(graph.nodes().size()) {
  for (NodeId id : node_ids(graph)) {
    class_of_[id.index()] = id.index();
    if (!keeps_channels(graph, id)) continue;
    for (NodeId input : graph.node(id).inputs) {
      const auto [low, high] = std::minmax({class_of_[id.index()], class_of_[input.index()]});
      std::replace(class_of_.begin(), class_of_.begin() + id.value() + 1, high, low);
    }
  }
  for (NodeId id : node_ids(graph)) describe(graph, id);
  fix_sources_of_mixed(graph);
}

/// Notes how a node uses its class: it sets the width, follows it, or fixes it.
void ChannelClasses::describe(const ModelGraph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const auto* linear = std::get_if<Linear>(&node.attributes);
  if (const auto* conv = std::get_if<Conv2d>(&node.attributes)) {
    at(id).producers.push_back(id);
    if (conv->groups == 1 || is_depthwise(graph, id)) return;
    for (NodeId member : {id, node.inputs[0]}) {
      at(member).granularity = std::lcm(at(member).granularity, conv->groups);
    }
  } else if (linear != nullptr && linear->tied_to.empty() && node.output.size() == 1) {
    at(id).producers.push_back(id);
  } else if (is_derived(node)) {
    at(id).derived.push_back(id);
  } else if (!keeps_channels(graph, id)) {
    at(id).fixed = true;
    for (NodeId input : node.inputs) at(input).fixed = true;
  }
}

/// Fixes classes that mix sources with flattened or concatenated widths. Such a width follows its
/// source, and nothing else in its class would.
void ChannelClasses::fix_sources_of_mixed(const ModelGraph& graph) {
  // A class that is fixed later fixes its sources before it.
  for (NodeId id(graph.nodes().size()); id > 0;) {
    id = id - 1;
    if (!is_derived(graph.node(id))) continue;
    const Class& out = at(id);
    const bool alone = out.producers.empty() && out.derived.size() == 1;
    if (alone && !out.fixed && out.granularity == 1) continue;
    for (NodeId input : graph.node(id).inputs) at(input).fixed = true;
  }
}

bool ChannelClasses::may_widen(NodeId member) const {
  return !at(member).fixed && !at(member).producers.empty() && at(member).derived.empty();
}

}  // namespace heteroperf
