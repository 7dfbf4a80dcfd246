#pragma once

#include <ATen/core/Tensor.h>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/operators/operator.hpp"
#include "runners/plan/memory/fusion.hpp"

namespace heteroperf {

/// A chain of nodes (runners/plan/memory/fusion.hpp) with the Operator that runs it.
struct OperatorGroup {
  std::vector<NodeId> nodes;   ///< in topological order; the last gives the group its output
  std::vector<NodeId> inputs;  ///< nodes outside the group, in the order the operator takes them
  /// (node, index in Node::parameters) of each parameter, in the operator's order. A tied linear
  /// names the embedding that owns the weight.
  std::vector<std::pair<NodeId, std::size_t>> parameters;
  std::unique_ptr<Operator> op;
  /// By input: another rank gives the same gradient, so this one keeps it back. Empty: none is.
  std::vector<bool> withheld = {};

  bool gives_gradient(std::size_t input) const { return withheld.empty() || !withheld[input]; }
};

/// The groups of ranks that a rank computes together with; null: it has that alone.
struct SharingGroups {
  Communicator* tensor = nullptr;   ///< share every layer; needed when the loss is cut
  Communicator* context = nullptr;  ///< share every sequence; needed by attention
};

/// The part of a graph that a rank of a plan runs. With a `shard`, embedding and loss know their
/// part of the vocabulary, and a consumer that does not split a node whose gradient is partial
/// within the stage gives it no gradient except on index 0.
struct GroupingRules : FusionScope {
  SharingGroups groups = {};
};

/// The groups of fuse_nodes(), in its order. The cross_entropy group takes the targets (int64 {B}
/// or {B, T}) as one more input tensor behind `inputs`. `Fusion::off` gives one group per node: the
/// reference that the fused form is tested against.
std::vector<OperatorGroup> make_operator_groups(const ModelGraph& graph, at::ScalarType type,
                                                Fusion fusion = Fusion::on,
                                                const GroupingRules& rules = {});

/// Tensors {B, positions, width} of a tensor-parallel group, whole or by rows: the rows of all
/// samples one after another, of which each rank has its part as {1, rows, width}.
class RowExchange {
 public:
  explicit RowExchange(Communicator& group) : group_(group) {}

  /// This rank's rows of a whole tensor, in memory of their own.
  at::Tensor own(const at::Tensor& whole) const;
  /// The whole of {batch, positions, …}. Collective.
  at::Tensor gather(const at::Tensor& rows, std::int64_t batch, std::int64_t positions) const;
  /// This rank's rows of the sum over the group. Collective.
  at::Tensor sum(const at::Tensor& summand) const;

 private:
  /// Elements by rank.
  std::vector<std::size_t> counts(std::int64_t rows, std::int64_t width) const;

  Communicator& group_;
};

}  // namespace heteroperf
