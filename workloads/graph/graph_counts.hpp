#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
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

/// The extent of a batch. A number of samples stands for those with as many items as they may have,
/// all of which a contrastive loss holds against one another.
struct BatchExtent {
  BatchExtent(std::uint64_t batch_samples = 1)  // NOLINT(google-explicit-constructor)
      : samples(batch_samples), contrasted(batch_samples) {}

  std::uint64_t samples;
  /// Per input node whose items samples have any number of, all the batch's.
  std::map<NodeId, std::uint64_t> items;
  /// The samples that each one is held against, itself included: more than the batch's own where
  /// it is a part of a step.
  std::uint64_t contrasted;

  /// The samples or items that a node is computed for.
  std::uint64_t count(const ModelGraph& graph, const Node& node) const;
};
/// The numbers of items that a sample may have of an input.
struct ItemRange {
  std::uint64_t fewest = 0, most = 0;
};
/// Returns those of the first input that has items; nothing where none has.
std::optional<ItemRange> items_of_samples(const ModelGraph& graph);
/// Returns the extent of samples that have so many items of every input with items.
BatchExtent extent_with_items(const ModelGraph& graph, std::uint64_t samples, std::uint64_t items);
/// Returns an extent for times to come: of every input with items the samples have the middle
/// between the fewest and the most, rounded up over the batch.
BatchExtent usual_extent(const ModelGraph& graph, std::uint64_t samples);

/// The counts of one node.
struct LayerCounts {
  std::string name;
  std::string kind;
  std::uint64_t parameters = 0;  ///< elements of the tensors that the node owns
  StrictOps strict;              ///< its backward pass is split into input and weight gradient
  ConventionCounts conventions;
};

/// The counts of a graph for a number of samples. A total is the sum over the layers; it is absent
/// when one layer's count is.
struct GraphCounts {
  BatchExtent batch;
  std::uint64_t parameters = 0;
  std::vector<LayerCounts> layers;  ///< one per node of the graph, in order
  StrictOps strict;
  ConventionCounts conventions;
};

/// Names the components of a model, its branches, in the order in which the graph begins them.
std::vector<std::string> components_of(const ModelGraph& graph);

/// The counts of a component, the nodes of one branch of the graph.
struct ComponentCounts {
  std::string name;
  std::uint64_t parameters = 0, trained_parameters = 0;
  StrictOps strict;
  Ops padding;  ///< those of a training pass that multiply with the padding around images
};
/// Sums up the layers of every component, in the order of components_of().
std::vector<ComponentCounts> by_component(const ModelGraph& graph, const GraphCounts& counts);

/// Returns the operator behind a node, with its shapes for one sample, or for one item where the
/// node works on those. The first operator of a raw sample (with no trained tensor before it) needs
/// no input gradient.
OperatorUse operator_use(const ModelGraph& graph, NodeId id, std::uint64_t contrasted = 1);
/// Counts the strict operations of one node.
StrictOps strict_node_ops(const ModelGraph& graph, NodeId id, const BatchExtent& batch = {});

GraphCounts count_graph(const ModelGraph& graph, const BatchExtent& batch = {});

/// Counts the strict operations of one training pass (forward and backward), without the
/// recomputation that a plan may add. It is cheap enough for every step.
Ops strict_train_ops(const ModelGraph& graph, const BatchExtent& batch);
/// Counts those of strict_train_ops() that multiply with the padding around images.
Ops padding_train_ops(const ModelGraph& graph, const BatchExtent& batch);
/// Counts the strict operations of one evaluation pass (forward only).
Ops strict_forward_ops(const ModelGraph& graph, const BatchExtent& batch);

/// Tells over which samples a contrastive loss goes; nothing for other losses.
std::optional<ContrastOver> contrast_of(const ModelGraph& graph);
/// The validation samples that a contrastive loss holds against one another. It is the same at
/// every scale, so that losses compare, where a training step contrasts as many as it has.
inline constexpr std::uint64_t evaluated_pairs = 64;
/// Counts those of an evaluation of such an extent.
Ops strict_evaluation_ops(const ModelGraph& graph, const BatchExtent& batch);
/// Returns the extent of a part of a step: `samples` of the `in_step` that the step has, in
/// micro-batches of `in_micro_batch`.
BatchExtent part_of_step(const ModelGraph& graph, std::uint64_t samples, std::uint64_t in_step,
                         std::uint64_t in_micro_batch);

}  // namespace heteroperf
