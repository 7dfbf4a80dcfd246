#include "automl/graph_rebuild.hpp"

#include <algorithm>

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

}  // namespace heteroperf
