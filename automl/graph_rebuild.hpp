#pragma once

#include <cstdint>
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
  explicit GraphRebuild(const ModelGraph& source) : source_(source) { graph_.name = source.name; }

  /// Appends old node `old` with its own or with `changed` attributes, and returns its new id.
  NodeId copy(NodeId old) { return copy(old, source_.node(old).attributes); }
  NodeId copy(NodeId old, Attributes changed);
  /// Appends a new node, whose inputs are new ids, in the branch of its first input.
  NodeId add(std::string name, Attributes attributes, std::vector<NodeId> inputs);
  /// Gives the new node `now` to all nodes copied from now on that take `old`.
  void replace(NodeId old, NodeId now) { now_.at(old.index()) = now; }
  /// Returns the new id that stands for `old`, which must be copied already.
  NodeId now(NodeId old) const { return now_.at(old.index()); }

  ModelGraph finish() && { return std::move(graph_); }

 private:
  const ModelGraph& source_;
  ModelGraph graph_;
  std::vector<NodeId> now_;  ///< new ids by the index of the old ones
};

/// Returns the ids of all nodes in order.
inline IdRange<NodeId> node_ids(const ModelGraph& graph) {
  return first_ids<NodeId>(graph.nodes().size());
}

/// Returns the longest path from the input to the loss; of equal ones, that through earlier inputs.
std::vector<NodeId> main_chain(const ModelGraph& graph);

/// Returns `graph` with dropout and kernel size set.
///
/// - Dropout: every dropout node gets p = `dropout`. A graph without one gets the node "dropout" in
///   front of its last linear layer.
/// - Kernel: the k×k convolutions that deeper morphs have added (named "deeper<n>.…") become
///   `kernel`×`kernel` with padding kernel / 2, but never larger than 2·min(H, W) − 1 on an H×W
///   map: beyond that, weights would only ever meet padding.
///
/// Earlier settings are overwritten: graph_with(graph_with(g, a, b), c, d) = graph_with(g, c, d).
ModelGraph graph_with(const ModelGraph& graph, double dropout, std::int64_t kernel);

/// Returns the architecture behind a trial's graph: dropout 0, kernel 3. Its hash is the trial's
/// identity in the search.
ModelGraph architecture_of(const ModelGraph& graph);

/// Tells which tensors of an image classifier must have the same number of channels: the outputs of
/// a class of nodes. Element-wise sums and products, batch norm, activation, pooling, dropout and
/// depthwise convolution join their inputs and outputs. A class is widened as a whole or not at
/// all.
class ChannelClasses {
 public:
  explicit ChannelClasses(const ModelGraph& graph);

  /// Returns the convolutions and linear layers whose `out_channels` / `out_features` set the
  /// class's width, depthwise ones included.
  const std::vector<NodeId>& producers(NodeId member) const { return at(member).producers; }
  /// Returns false for the channels of the sample and of the classifier, and where nodes tie
  /// channels to something else (tied weights, sequences, sums over flattened maps).
  bool may_widen(NodeId member) const;
  /// Returns the number of which a new width must be a multiple (grouped convolutions).
  std::int64_t granularity(NodeId member) const { return at(member).granularity; }

 private:
  struct Class {
    std::vector<NodeId> producers;
    std::vector<NodeId> derived;  ///< flattened or concatenated outputs in this class
    std::int64_t granularity = 1;
    bool fixed = false;
  };

  const Class& at(NodeId member) const { return classes_[class_of_[member.index()]]; }
  Class& at(NodeId member) { return classes_[class_of_[member.index()]]; }
  void describe(const ModelGraph& graph, NodeId id);
  void fix_sources_of_mixed(const ModelGraph& graph);

  std::vector<std::size_t> class_of_;  ///< the smallest node of each node's class
  std::vector<Class> classes_;         ///< indexed by that node
};

/// Returns true for a convolution with one filter per channel: as many groups as inputs and
/// outputs.
bool is_depthwise(const ModelGraph& graph, NodeId id);

}  // namespace heteroperf
