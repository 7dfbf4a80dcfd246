#pragma once

#include <string>
#include <utility>
#include <vector>

#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// Makes a changed copy of a graph, node by node through ModelGraph::add, so that every shape is
/// inferred and checked again. Copy the nodes in order; between two copies, add new nodes and let
/// them take an old node's place.
class GraphRebuild {
 public:
  explicit GraphRebuild(const ModelGraph& source);

  /// Appends old node `old` with its own or with `changed` attributes; returns its new id.
  NodeId copy(NodeId old);
  NodeId copy(NodeId old, Attributes changed);
  /// Appends a new node on new ids, in the branch of its first input.
  NodeId add(std::string name, Attributes attributes, std::vector<NodeId> inputs);
  /// Nodes copied from now on that take `old` get the new node `now` instead.
  void replace(NodeId old, NodeId now);
  /// The new id that stands for `old`, which is copied already.
  NodeId now(NodeId old) const;

  ModelGraph finish() && { return std::move(graph_); }

 private:
  const ModelGraph& source_;
  ModelGraph graph_;
  std::vector<NodeId> now_;
};

/// Ids of all nodes in order.
std::vector<NodeId> node_ids(const ModelGraph& graph);

/// Every node's consumers, in order (ModelGraph::consumers for all at once).
std::vector<std::vector<NodeId>> consumer_lists(const ModelGraph& graph);

/// The longest path from the input to the loss; among equals the one through earlier inputs.
std::vector<NodeId> main_chain(const ModelGraph& graph);

}  // namespace heteroperf
