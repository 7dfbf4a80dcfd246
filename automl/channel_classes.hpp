#pragma once

#include <cstdint>
#include <vector>

#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// Tells which tensors of an image classifier must have the same number of channels, by union-find
/// over node outputs. Element-wise sums and products, batch norm, activation, pooling, dropout and
/// depthwise convolution join their inputs and outputs. A class is widened as a whole or not at
/// all.
class ChannelClasses {
 public:
  explicit ChannelClasses(const ModelGraph& graph);

  /// Returns the class of a node's output, named by its smallest node.
  NodeId class_of(NodeId node) const;
  /// Returns the convolutions and linear layers whose `out_channels` / `out_features` set the
  /// class's width, depthwise ones included.
  const std::vector<NodeId>& producers(NodeId member) const;
  /// Returns false for the channels of the sample and of the classifier, and where nodes tie
  /// channels to something else (tied weights, sequences, sums over flattened maps).
  bool may_widen(NodeId member) const;
  /// Returns the number of which a new width must be a multiple (grouped convolutions).
  std::int64_t granularity(NodeId member) const;

 private:
  struct Class {
    std::vector<NodeId> producers;
    std::vector<NodeId> derived;  ///< flattened or concatenated outputs in this class
    std::int64_t granularity = 1;
    bool fixed = false;
  };

  std::size_t root(std::size_t node) const;
  void unite(NodeId a, NodeId b);
  const Class& at(NodeId member) const;
  Class& at(NodeId member);
  void join(const ModelGraph& graph);
  void describe(const ModelGraph& graph, NodeId id);
  void describe_convolution(const ModelGraph& graph, NodeId id);
  void fix_sources_of_mixed(const ModelGraph& graph);

  mutable std::vector<std::size_t> parent_;
  std::vector<Class> classes_;  ///< indexed by the root of a class
};

/// Returns true for a convolution with one filter per channel: as many groups as inputs and
/// outputs.
bool is_depthwise(const ModelGraph& graph, NodeId id);

}  // namespace heteroperf
