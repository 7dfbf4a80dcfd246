// This file lists what the operation of each fused chain keeps between its passes.
//
// It is the planner's account of the engine's operators: for every kind of node the tensors that
// its forward pass saves, the statistics beside them, and what its backward pass does with
// gradients. The table of saved tensors in the engine's README is the contract; a change of an
// operator's `saved` has to be made here or in node_rules.cpp as well, or predicted memory is
// wrong. Tensors are named by the node that made them, so one that two operations save is counted
// once.
#include "runners/plan/memory/stage_memory.hpp"

#include <variant>

#include "metrics/base/id.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "workloads/graph/node_rules.hpp"

namespace heteroperf {
namespace {

std::uint64_t u(std::int64_t value) { return static_cast<std::uint64_t>(value); }

std::vector<std::size_t> positions(const std::vector<NodeId>& nodes) {
  std::vector<std::size_t> result;
  for (const NodeId id : nodes) result.push_back(id.index());
  return result;
}

/// Describes what the operators of one stage keep.
class Grouping {
 public:
  Grouping(const StagePart& part, Precision precision)
      : part_(part), graph_(part.shard.graph), rows_(part.rows()), precision_(precision) {}

  /// All of one chain; describe_saved() has the rules by kind.
  MemoryGroup describe(const FusedNodes& chain) const {
    MemoryGroup group;
    group.nodes = positions(chain.nodes);
    group.inputs = positions(chain.inputs);
    const std::size_t first = group.nodes.front(), last = group.nodes.back();
    group.differentiable = node(last).differentiable;
    for (const std::size_t n : group.nodes) {
      group.parameters = group.parameters || has_trained_weight(graph_, node(n));
    }
    describe_saved(group, first, last);
    if (chain.kind == FusedKind::loss_over_logits) group.gives = MemoryGroup::Gives::overwrite;
    return group;
  }

 private:
  const Node& node(std::size_t n) const { return graph_.nodes()[n]; }
  template <class Kind>
  bool is(std::size_t n) const {
    return std::holds_alternative<Kind>(node(n).attributes);
  }

  std::uint64_t bytes(std::size_t n) const {
    return elements(n) * bytes_per_output(node(n), precision_);
  }
  std::uint64_t elements(std::size_t n) const {
    return u(part_.count(node(n)) * element_count(node(n).output));
  }
  /// Statistics of a node, so many for each of its items.
  std::uint64_t statistics(std::size_t n, std::int64_t per_item) const {
    return u(part_.count(node(n)) * per_item) * statistic_bytes(precision_);
  }
  std::int64_t rows(std::size_t n) const {
    return element_count(node(n).output) / node(n).output.back();
  }

  /// The tensors that the engine's operators save (runners/engine/operators/README.md, Saved).
  void describe_saved(MemoryGroup& group, std::size_t first, std::size_t last) const {
    if (is<Linear>(first)) return describe_linear(group);
    if (is<BatchNorm>(first)) return describe_batch_norm(group);
    if (is<LayerNorm>(first) || is<RmsNorm>(first)) {
      group.saved = {group.inputs[0]};
      group.saved_alone = norm_statistics(first);
      group.gives = MemoryGroup::Gives::in_place;
    } else if (is_attention(node(first).attributes)) {
      describe_attention(group);
    } else if (is<MaxPool>(first)) {
      group.saved_alone = elements(last);
    } else if (is<Embedding>(first)) {
      // A rank with a part of the vocabulary keeps indices of its own, others the tokens
      // themselves.
      if (part_.shard.vocabulary[first] > 0 && part_.shard.degree > 1) {
        group.saved_alone = bytes(group.inputs[0]);
      } else {
        group.saved = {group.inputs[0]};
      }
      group.gives = MemoryGroup::Gives::none;
    } else if (is<CrossEntropy>(first)) {
      // The logits, targets of 64 bits, and the log of each row's softmax sum.
      const std::int64_t logit_rows = rows(group.inputs[0]);
      group.saved = {group.inputs[0]};
      group.saved_alone =
          statistics(first, logit_rows) + u(part_.count(node(first)) * logit_rows) * 8;
    } else if (is<Add>(last) || is<PositionEmbedding>(last) || is<TypeEmbedding>(last) ||
               is<Flatten>(last) || is<ToSequence>(last)) {
      group.gives = MemoryGroup::Gives::same;
    } else {
      const KeptTensors kept = kept_tensors(graph_, node(last));
      if (kept.inputs) group.saved = group.inputs;
      if (kept.output) group.saved.push_back(last);
    }
  }

  /// Layer norm keeps two numbers per row, RMS norm one; under sequence parallelism of a rank's own
  /// rows.
  std::uint64_t norm_statistics(std::size_t n) const {
    std::int64_t all = part_.count(node(n)) * rows(n);
    if (!rows_.works.empty() && rows_.works[n]) {
      all = rows_of_rank(all, part_.shard.index, part_.shard.degree).count;
    }
    return u((is<LayerNorm>(n) ? 2 : 1) * all) * statistic_bytes(precision_);
  }

  /// A linear keeps its input unless its weight is frozen; with a gelu behind it also the sum
  /// before the gelu.
  void describe_linear(MemoryGroup& group) const {
    const std::size_t first = group.nodes.front(), last = group.nodes.back();
    if (has_trained_weight(graph_, node(first))) group.saved = {group.inputs[0]};
    group.gives = MemoryGroup::Gives::in_place;
    group.passes_residual = is<Add>(last);
    if (!is<Gelu>(last)) return;
    group.saved.push_back(first);
    group.temporary = group.weight_temporary = bytes(last);
  }

  /// Batch norm keeps mean and 1/deviation per channel; with a ReLU behind it the output and a
  /// scale and shift per channel are counted too.
  void describe_batch_norm(MemoryGroup& group) const {
    const std::size_t first = group.nodes.front(), last = group.nodes.back();
    const std::uint64_t channels = u(node(first).output[0]) * statistic_bytes(precision_);
    group.saved = {group.inputs[0]};
    group.saved_alone = 2 * channels;
    if (!is<Relu>(last)) return;
    group.saved.push_back(last);
    group.saved_alone += 2 * channels;
  }

  /// Attention keeps its inputs, its output and the logs of its softmax sums; under selective
  /// recomputation the inputs alone.
  void describe_attention(MemoryGroup& group) const {
    const Node& attention = node(group.nodes[0]);
    group.saved = group.inputs;
    group.saved.push_back(group.nodes[0]);
    group.saved_alone = statistics(
        group.nodes[0], attention_heads(attention.attributes)->heads * attention.output[0]);
    group.temporary = bytes(group.inputs.back());  // gradients of what is packed, apart
    const auto* own_sequence = std::get_if<Attention>(&attention.attributes);
    if (own_sequence != nullptr && !own_sequence->part.whole()) {
      // Keys and values of the block at hand and of the next. Outputs of two blocks, one of them in
      // float32 or wider, while they are joined. In the backward pass the gradients of the queries
      // in that width, and three such sums of gradients of keys and values: this part's own, one
      // that goes and one that comes; of more than two parts also what a block gives.
      const std::int64_t own =
          2 * own_sequence->kv_heads * own_sequence->head_dim * attention.output[0];
      const std::uint64_t small = u(part_.count(attention) * own) * bytes_per_element(precision_);
      const std::uint64_t output = bytes(group.nodes[0]);
      const std::uint64_t wide_output = statistics(group.nodes[0], element_count(attention.output));
      const std::uint64_t joined = (wide_output > output ? 2 : 1) * wide_output;
      const bool two = own_sequence->part.parts == 2;
      group.forward_temporary =
          two ? std::max(2 * small + joined - wide_output, small + joined) : 2 * small + joined;
      group.temporary = wide_output + (two ? 0 : 3 * small) + 3 * statistics(group.nodes[0], own);
    }
    if (part_.recomputation != Recomputation::selective) return;
    group.saved.pop_back();
    group.recomputed = group.saved_alone + bytes(group.nodes[0]);
    group.saved_alone = 0;
  }

  const StagePart& part_;
  const ModelGraph& graph_;
  RowCuts rows_;
  Precision precision_;
};

}  // namespace

std::vector<FusedNodes> fused_nodes(const StagePart& part) {
  return fuse_nodes(part.shard.graph, {&part.staged.stage_of, part.stage, &part.shard});
}

std::vector<MemoryGroup> memory_groups(const StagePart& part, Precision precision) {
  const Grouping grouping(part, precision);
  std::vector<MemoryGroup> groups;
  for (const FusedNodes& chain : fused_nodes(part)) groups.push_back(grouping.describe(chain));
  return groups;
}

}  // namespace heteroperf
