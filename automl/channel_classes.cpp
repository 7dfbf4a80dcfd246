#include "automl/channel_classes.hpp"

#include <algorithm>
#include <numeric>

#include "automl/graph_rebuild.hpp"
#include "metrics/base/quantity.hpp"

// Channels that are added, multiplied or normalised together must be equally many. Union-find joins
// the outputs of all such nodes to classes. A class may be widened if all its widths come from
// convolutions and linear layers, which then get the new width together.

namespace heteroperf {
namespace {

template <class... Kinds>
bool is_any(const Node& node) {
  return (std::holds_alternative<Kinds>(node.attributes) || ...);
}

/// Returns true where channel c of the output depends on the channels c of the inputs alone.
bool keeps_channels(const ModelGraph& graph, NodeId id) {
  return is_any<BatchNorm, Relu, Gelu, Silu, Tanh, Add, Multiply, MaxPool, AvgPool, GlobalAvgPool,
                Dropout>(graph.node(id)) ||
         is_depthwise(graph, id);
}

bool is_derived(const Node& node) { return is_any<Flatten, Concat>(node); }

}  // namespace

bool is_depthwise(const ModelGraph& graph, NodeId id) {
  const auto* conv = std::get_if<Conv2d>(&graph.node(id).attributes);
  return conv != nullptr && conv->groups > 1 && conv->groups == conv->out_channels &&
         conv->groups == graph.node(graph.node(id).inputs[0]).output[0];
}

ChannelClasses::ChannelClasses(const ModelGraph& graph)
    : parent_(graph.nodes().size()), classes_(graph.nodes().size()) {
  std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  join(graph);
  for (NodeId id : node_ids(graph)) describe(graph, id);
  fix_sources_of_mixed(graph);
}

void ChannelClasses::join(const ModelGraph& graph) {
  for (NodeId id : node_ids(graph)) {
    if (!keeps_channels(graph, id)) continue;
    for (NodeId input : graph.node(id).inputs) unite(id, input);
  }
}

/// Notes how a node uses its class: it sets the width, follows it, or fixes it.
void ChannelClasses::describe(const ModelGraph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (is_any<Conv2d>(node)) return describe_convolution(graph, id);
  if (keeps_channels(graph, id)) return;
  if (is_derived(node)) return at(id).derived.push_back(id);
  const auto* linear = std::get_if<Linear>(&node.attributes);
  if (linear != nullptr && linear->tied_to.empty() && node.output.size() == 1) {
    return at(id).producers.push_back(id);
  }
  at(id).fixed = true;
  for (NodeId input : node.inputs) at(input).fixed = true;
}

void ChannelClasses::describe_convolution(const ModelGraph& graph, NodeId id) {
  const auto groups = std::get<Conv2d>(graph.node(id).attributes).groups;
  at(id).producers.push_back(id);
  if (groups == 1 || is_depthwise(graph, id)) return;
  for (NodeId member : {id, graph.node(id).inputs[0]}) {
    at(member).granularity = std::lcm(at(member).granularity, groups);
  }
}

/// Fixes classes that mix sources with flattened or concatenated widths. Such a width follows its
/// source, and nothing else in its class would.
void ChannelClasses::fix_sources_of_mixed(const ModelGraph& graph) {
  std::vector<NodeId> ids = node_ids(graph);
  std::reverse(ids.begin(), ids.end());  // a class that is fixed later fixes its sources before it
  for (NodeId id : ids) {
    if (!is_derived(graph.node(id))) continue;
    const Class& out = at(id);
    const bool alone = out.producers.empty() && out.derived.size() == 1;
    if (alone && !out.fixed && out.granularity == 1) continue;
    for (NodeId input : graph.node(id).inputs) at(input).fixed = true;
  }
}

NodeId ChannelClasses::class_of(NodeId node) const {
  return NodeId(static_cast<std::int32_t>(root(position(node))));
}

const std::vector<NodeId>& ChannelClasses::producers(NodeId member) const {
  return at(member).producers;
}

bool ChannelClasses::may_widen(NodeId member) const {
  return !at(member).fixed && !at(member).producers.empty() && at(member).derived.empty();
}

std::int64_t ChannelClasses::granularity(NodeId member) const { return at(member).granularity; }

std::size_t ChannelClasses::root(std::size_t node) const {
  while (parent_[node] != node) node = parent_[node] = parent_[parent_[node]];
  return node;
}

void ChannelClasses::unite(NodeId a, NodeId b) {
  const auto [low, high] = std::minmax({root(position(a)), root(position(b))});
  parent_[high] = low;
}

const ChannelClasses::Class& ChannelClasses::at(NodeId member) const {
  return classes_[root(position(member))];
}

ChannelClasses::Class& ChannelClasses::at(NodeId member) {
  return classes_[root(position(member))];
}

}  // namespace heteroperf
