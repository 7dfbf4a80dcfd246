#pragma once

#include <cstdint>
#include <vector>

#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// Which tensors of an image classifier must have the same number of channels: union-find over node
/// outputs, joined by element-wise sums and products, batch norm, activation, pooling, dropout and
/// depthwise convolution. A class is widened as a whole or not at all.
class ChannelClasses {
 public:
  explicit ChannelClasses(const ModelGraph& graph);

  /// The class of a node's output, as its smallest node.
  NodeId class_of(NodeId node) const;
  /// Convolutions and linear layers whose `out_channels` / `out_features` set the class's width,
  /// depthwise ones included.
  const std::vector<NodeId>& producers(NodeId member) const;
  /// False for the sample's and the classifier's channels and for those of nodes that tie channels
  /// to something else (tied weights, sequences, sums over flattened maps).
  bool may_widen(NodeId member) const;
  /// A new width must be a multiple of this (grouped convolutions).
  std::int64_t granularity(NodeId member) const;

 private:
  struct Class {
    std::vector<NodeId> producers;
    std::vector<NodeId> derived;  // flattened or concatenated outputs in this class
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
  std::vector<Class> classes_;  // at the index of each root
};

/// A convolution with one filter per channel: as many groups as inputs and outputs.
bool is_depthwise(const ModelGraph& graph, NodeId id);

}  // namespace heteroperf
