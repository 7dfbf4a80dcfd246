#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "runners/plan/plan.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/graph/sequence_roles.hpp"

namespace heteroperf {

/// Which part of a parameter one rank of a tensor-parallel group holds: rows along `dim`, several
/// intervals one after another (the packed query, key and value heads of a projection).
struct ParameterShard {
  struct Interval {
    std::int64_t first = 0, count = 0;
    friend bool operator==(const Interval&, const Interval&) = default;
  };
  std::size_t dim = 0;
  std::vector<Interval> intervals;  ///< empty: all of it
  bool whole() const { return intervals.empty(); }
  friend bool operator==(const ParameterShard&, const ParameterShard&) = default;
};

/// One rank's share of a model (Shoeybi et al. 2019, arXiv:1909.08053, section 3): linears before
/// attention or an activation keep some of their output columns, those after it some of their input
/// rows, attention some of its heads, embedding, head and loss some of the vocabulary; all else is
/// whole on every rank.
///
/// `graph` has the nodes of the full graph under the same ids and names, with local sizes. The bias
/// of a row linear lives on index 0 alone.
///
/// Context-parallel ranks have a part of every sequence too: sequences of tokens, or with
/// SequenceOrder::patches the rows of pictures, and all that is made of them position by position,
/// have their part's length in `graph`.
struct TensorShard {
  int degree = 1, index = 0;
  SequencePart part = {};
  ModelGraph graph;
  /// By node: its local output is a summand; the sum over the group is the output (row linears,
  /// the embedding).
  std::vector<bool> output_is_partial;
  /// By node: it makes a part of its (whole) inputs, so the gradients it gives them are summands
  /// (column linears).
  std::vector<bool> splits_inputs;
  /// By node: a consumer splits its (whole) output, so the local gradient of it is a summand. What
  /// other consumers give counts on index 0 alone (operator groups see to that).
  std::vector<bool> gradient_is_partial;
  /// By node: its output is one rank's part along the last dimension.
  std::vector<bool> output_is_sharded;
  /// By node: which columns of the full output these are; empty where it is whole.
  std::vector<std::vector<ParameterShard::Interval>> columns;
  /// By node, by parameter of the local node.
  std::vector<std::vector<ParameterShard>> parameters;
  /// By node: first vocabulary entry of this rank for the embedding, the logits and the loss; else
  /// 0.
  std::vector<std::int64_t> first_of_vocabulary;
  /// By node: entries of the whole vocabulary where this rank has some of it; else 0.
  std::vector<std::int64_t> vocabulary;

  /// By node; where `part` is the whole, everything is.
  std::vector<SequenceRole> sequence_role;

  /// Every rank with a part of the sequences has the node's output whole.
  bool each_part_has(NodeId node) const {
    return !part.whole() && sequence_role[node.index()] == SequenceRole::whole;
  }
  /// The node takes a row of sequences of which each rank has a part.
  bool pools_part(NodeId node) const;
  /// Samples have no such vectors here: the rank with the first part of their sequences has them.
  bool is_elsewhere(NodeId node) const {
    return part.index > 0 && sequence_role[node.index()] == SequenceRole::pooled;
  }

  /// Each rank of the group does another part of the node's work.
  bool is_cut(NodeId node) const {
    return output_is_sharded[node.index()] || output_is_partial[node.index()];
  }
};

/// Vocabulary and widths that `degree` does not divide are cut unevenly (part i begins at
/// ⌊i·extent/degree⌋), attention whose heads it does not divide stays whole with its linears.
/// Sequences that `part` does not divide stay whole. Throws UserError for a degree below 1.
TensorShard tensor_shard(const ModelGraph& graph, int degree, int index,
                         const SequencePart& part = {});

/// Notes why `degree` ranks cannot share some components of a model: heads that the degree does not
/// divide, dropout on a cut tensor, and that they would all do most of the same work. Other
/// components are not looked at, for they have degrees of their own.
void check_tensor_degree(const ModelGraph& graph, const std::set<std::string>& components,
                         int degree, ProblemList& problems);
/// The same for all components.
void check_tensor_degree(const ModelGraph& graph, int degree, ProblemList& problems);

/// Notes what context-parallel ranks cannot have parts like `part` of, among the nodes of a stage:
/// sequences of a length that they do not divide, and operations that need more than a position at
/// a time, but for attention and the pooling of a row. Blocks of causal attention would be unequal
/// work. What makes rows to insert out of pictures, or the rows that they take parts of, all of it
/// in the stage, each of them repeats: the gradients that they give it are of their own positions,
/// and add up.
void check_sequence_parts(const ModelGraph& graph, const std::vector<NodeId>& nodes,
                          const SequencePart& part, ProblemList& problems);

/// TensorShard::gradient_is_partial as the consumers in one stage alone make it. Where it holds,
/// the ranks of that stage sum the gradient before it is used or sent to an earlier stage; what a
/// later stage sends back is whole and comes to it after that sum.
std::vector<bool> gradient_is_partial_within(const TensorShard& shard,
                                             const std::vector<StageId>& stage_of, StageId stage);

/// The tensor-parallel shares of one graph, each made once.
class ShardTable {
 public:
  /// The graph outlives the table.
  explicit ShardTable(const ModelGraph& graph) : graph_(graph) {}

  /// The reference stays valid as long as the table. Throws as tensor_shard().
  const TensorShard& of(int degree, int index, const SequencePart& part = {}) {
    const std::tuple key(degree, index, part);
    const auto known = shards_.find(key);
    if (known != shards_.end()) return known->second;
    return shards_.emplace(key, tensor_shard(graph_, degree, index, part)).first->second;
  }

 private:
  const ModelGraph& graph_;
  std::map<std::tuple<int, int, SequencePart>, TensorShard> shards_;
};

}  // namespace heteroperf
