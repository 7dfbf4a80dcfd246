#include "automl/graph_rebuild.hpp"

#include <algorithm>
#include <optional>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"

namespace heteroperf {

GraphRebuild::GraphRebuild(const ModelGraph& source) : source_(source) {
  graph_.name = source.name;
}

NodeId GraphRebuild::copy(NodeId old) { return copy(old, source_.node(old).attributes); }

NodeId GraphRebuild::copy(NodeId old, Attributes changed) {
  HETEROPERF_EXPECT(position(old) == now_.size());
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

void GraphRebuild::replace(NodeId old, NodeId now) { now_.at(position(old)) = now; }

NodeId GraphRebuild::now(NodeId old) const { return now_.at(position(old)); }

std::vector<NodeId> node_ids(const ModelGraph& graph) {
  std::vector<NodeId> ids;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    ids.emplace_back(static_cast<std::int32_t>(i));
  }
  return ids;
}

std::vector<std::vector<NodeId>> consumer_lists(const ModelGraph& graph) {
  std::vector<std::vector<NodeId>> lists(graph.nodes().size());
  for (NodeId id : node_ids(graph)) {
    for (NodeId input : graph.node(id).inputs) {
      auto& list = lists[position(input)];
      if (list.empty() || list.back() != id) list.push_back(id);
    }
  }
  return lists;
}

std::vector<NodeId> main_chain(const ModelGraph& graph) {
  std::vector<std::size_t> depth;
  const auto deeper_first = [&](NodeId a, NodeId b) {
    return depth[position(a)] < depth[position(b)];
  };
  const auto deepest_input = [&](const Node& node) {
    return *std::max_element(node.inputs.begin(), node.inputs.end(), deeper_first);
  };
  for (const Node& node : graph.nodes()) {
    depth.push_back(node.inputs.empty() ? 0 : depth[position(deepest_input(node))] + 1);
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

}  // namespace heteroperf
