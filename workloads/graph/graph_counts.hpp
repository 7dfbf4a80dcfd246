#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "metrics/operator_counts.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// Holds one `PassOps` per convention, which begin at 0.
class ConventionCounts {
 public:
  ConventionCounts() { counts_.fill({Ops(), Ops()}); }
  const PassOps& operator[](Convention convention) const { return counts_[index(convention)]; }
  PassOps& operator[](Convention convention) { return counts_[index(convention)]; }

 private:
  static std::size_t index(Convention convention) { return static_cast<std::size_t>(convention); }
  std::array<PassOps, all_conventions.size()> counts_;
};

/// The counts of one node.
struct LayerCounts {
  std::string name;
  std::string kind;
  std::uint64_t parameters = 0;  ///< trainable elements that the node owns
  StrictOps strict;              ///< its backward pass is split into input and weight gradient
  ConventionCounts conventions;
};

/// The counts of a graph for a number of samples. A total is the sum over the layers; it is absent
/// when one layer's count is.
struct GraphCounts {
  std::uint64_t samples = 1;
  std::uint64_t parameters = 0;
  std::vector<LayerCounts> layers;  ///< one per node of the graph, in order
  StrictOps strict;
  ConventionCounts conventions;
};

/// Returns the operator behind a node, with its shapes for one sample. The first operator of a raw
/// sample (with no trainable tensor before it) needs no input gradient.
OperatorUse operator_use(const ModelGraph& graph, NodeId id);
/// Counts the strict operations of one node for one sample.
StrictOps strict_node_ops(const ModelGraph& graph, NodeId id);

GraphCounts count_graph(const ModelGraph& graph, std::uint64_t samples = 1);

/// Counts the strict operations of one training pass (forward and backward) over `samples`, without
/// the recomputation that a plan may add. It is cheap enough for every step.
Ops strict_train_ops(const ModelGraph& graph, std::uint64_t samples);
/// Counts those of strict_train_ops() that multiply with the padding around images.
Ops padding_train_ops(const ModelGraph& graph, std::uint64_t samples);
/// Counts the strict operations of one evaluation pass (forward only).
Ops strict_forward_ops(const ModelGraph& graph, std::uint64_t samples);

}  // namespace heteroperf
