#include "runners/plan/memory_groups.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "metrics/base/quantity.hpp"
#include "runners/plan/plan_bytes.hpp"

namespace heteroperf {
namespace {

std::uint64_t u(std::int64_t value) { return static_cast<std::uint64_t>(value); }

/// Groups of one stage.
class Grouping {
 public:
  Grouping(const StagePart& part, Precision precision)
      : part_(part), graph_(part.shard.graph), rows_(part.rows()), precision_(precision) {}

  std::vector<MemoryGroup> run() {
    std::vector<MemoryGroup> groups = fused();
    for (MemoryGroup& group : groups) describe(group);
    return groups;
  }

  /// With their nodes and inputs alone.
  std::vector<MemoryGroup> fused() const {
    std::vector<bool> taken(graph_.nodes().size(), false);
    std::vector<MemoryGroup> groups;
    const std::vector<NodeId>& nodes = part_.staged.nodes[static_cast<std::size_t>(part_.stage)];
    for (std::size_t i = nodes.size(); i-- > 0;) {
      const std::size_t n = position(nodes[i]);
      if (taken[n] || is<Input>(n)) continue;
      groups.push_back(fuse(n));
      for (const std::size_t one : groups.back().nodes) taken[one] = true;
    }
    std::reverse(groups.begin(), groups.end());
    return groups;
  }

 private:
  const Node& node(std::size_t n) const { return graph_.nodes()[n]; }
  template <class Kind>
  bool is(std::size_t n) const {
    return std::holds_alternative<Kind>(node(n).attributes);
  }
  std::size_t input(std::size_t n, std::size_t i) const { return position(node(n).inputs[i]); }

  template <class Kind>
  bool inner(std::size_t n) const {
    if (!is<Kind>(n)) return false;
    const std::vector<NodeId> users = graph_.consumers(NodeId(static_cast<std::int32_t>(n)));
    return users.size() == 1 && node(position(users[0])).branch == node(n).branch &&
           part_.staged.stage_of[position(users[0])] == part_.stage &&
           part_.staged.stage_of[n] == part_.stage && !part_.shard.output_is_partial[n] &&
           !part_.shard.gradient_is_partial[n];
  }

  std::vector<std::size_t> inputs_of(std::size_t n) const {
    std::vector<std::size_t> result;
    for (const NodeId id : node(n).inputs) result.push_back(position(id));
    return result;
  }

  MemoryGroup fuse(std::size_t n) const {
    if (is<Gelu>(n) && inner<Linear>(input(n, 0))) return chain({input(n, 0), n});
    if (is<PositionEmbedding>(n) && inner<Embedding>(input(n, 0))) return chain({input(n, 0), n});
    if (is<Relu>(n)) return fuse_relu(n);
    if (is<Add>(n) && node(n).inputs.size() == 2) {
      for (const std::size_t side : {1, 0}) {
        const std::size_t own = input(n, side), other = input(n, 1 - side);
        if (own != other && inner<Linear>(own)) return joined({own, n}, other);
      }
    }
    if (is<Multiply>(n)) {
      for (const std::size_t side : {0, 1}) {
        const std::size_t own = input(n, side), other = input(n, 1 - side);
        if (own != other && inner<Silu>(own)) return joined({own, n}, other);
      }
    }
    return chain({n});
  }

  MemoryGroup fuse_relu(std::size_t n) const {
    const std::size_t before = input(n, 0);
    if (inner<BatchNorm>(before)) return chain({before, n});
    if (!inner<Add>(before)) return chain({n});
    for (const std::size_t side : {0, 1}) {
      if (node(before).inputs.size() != 2) break;
      const std::size_t own = input(before, side), other = input(before, 1 - side);
      if (own != other && inner<BatchNorm>(own)) return joined({own, before, n}, other);
    }
    return chain({before, n});
  }

  MemoryGroup chain(std::vector<std::size_t> nodes) const {
    MemoryGroup group;
    group.inputs = inputs_of(nodes.front());
    group.nodes = std::move(nodes);
    return group;
  }

  MemoryGroup joined(std::vector<std::size_t> nodes, std::size_t other) const {
    MemoryGroup group = chain(std::move(nodes));
    group.inputs.push_back(other);
    return group;
  }

  std::uint64_t bytes(std::size_t n) const {
    return u(part_.samples * element_count(node(n).output)) * bytes_per_output(node(n), precision_);
  }
  std::uint64_t statistics(std::int64_t per_sample) const {
    return u(part_.samples * per_sample) * statistic_bytes(precision_);
  }
  std::int64_t rows(std::size_t n) const {
    return element_count(node(n).output) / node(n).output.back();
  }

  /// The tensors that the engine's operators save (runners/engine/operators/README.md, Saved).
  void describe(MemoryGroup& group) const {
    const std::size_t first = group.nodes.front(), last = group.nodes.back();
    group.differentiable = node(last).differentiable;
    for (const std::size_t n : group.nodes) {
      const auto* linear = std::get_if<Linear>(&node(n).attributes);
      group.parameters = group.parameters || !node(n).parameters.empty() ||
                         (linear != nullptr && !linear->tied_to.empty());
    }
    if (is<Linear>(first)) return describe_linear(group);
    if (is<BatchNorm>(first)) return describe_batch_norm(group);
    if (is<LayerNorm>(first) || is<RmsNorm>(first)) {
      group.saved = {group.inputs[0]};
      group.saved_alone = norm_statistics(first);
      group.gives = MemoryGroup::Gives::in_place;
    } else if (is<Conv2d>(first) || is<Gelu>(first) || (is<Silu>(first) && first == last)) {
      group.saved = {group.inputs[0]};
    } else if (is<Multiply>(last)) {
      group.saved = {group.inputs[0], group.inputs[1]};
    } else if (is<Relu>(last) || is<Tanh>(last)) {
      group.saved = {last};
    } else if (is<Attention>(first)) {
      describe_attention(group);
    } else if (is<MaxPool>(first)) {
      group.saved_alone = u(part_.samples * element_count(node(last).output));
    } else if (is<Embedding>(first)) {
      describe_embedding(group);
    } else if (is<CrossEntropy>(first)) {
      describe_loss(group);
    } else if (is<Add>(last) || is<PositionEmbedding>(last) || is<TypeEmbedding>(last) ||
               is<Flatten>(last) || is<ToSequence>(last)) {
      group.gives = MemoryGroup::Gives::same;
    }
  }

  std::uint64_t norm_statistics(std::size_t n) const {
    std::int64_t all = part_.samples * rows(n);
    if (!rows_.works.empty() && rows_.works[n]) {
      all = rows_of_rank(all, part_.shard.index, part_.shard.degree).count;
    }
    return u((is<LayerNorm>(n) ? 2 : 1) * all) * statistic_bytes(precision_);
  }

  void describe_linear(MemoryGroup& group) const {
    const std::size_t first = group.nodes.front(), last = group.nodes.back();
    group.saved = {group.inputs[0]};
    group.gives = MemoryGroup::Gives::in_place;
    group.passes_residual = is<Add>(last);
    if (!is<Gelu>(last)) return;
    group.saved.push_back(first);
    group.temporary = group.weight_temporary = bytes(last);
  }

  void describe_batch_norm(MemoryGroup& group) const {
    const std::size_t first = group.nodes.front(), last = group.nodes.back();
    const std::uint64_t channels = u(node(first).output[0]) * statistic_bytes(precision_);
    group.saved = {group.inputs[0]};
    group.saved_alone = 2 * channels;
    if (!is<Relu>(last)) return;
    group.saved.push_back(last);
    group.saved_alone += 2 * channels;
  }

  void describe_attention(MemoryGroup& group) const {
    const auto& attention = std::get<Attention>(node(group.nodes[0]).attributes);
    group.saved = {group.inputs[0], group.nodes[0]};
    group.saved_alone = statistics(attention.heads * node(group.nodes[0]).output[0]);
    group.temporary = bytes(group.inputs[0]);  // gradients of queries, keys, values apart
    if (part_.recomputation != Recomputation::selective) return;
    group.saved.pop_back();
    group.recomputed = group.saved_alone + bytes(group.nodes[0]);
    group.saved_alone = 0;
  }

  void describe_embedding(MemoryGroup& group) const {
    const std::size_t first = group.nodes.front();
    if (part_.shard.vocabulary[first] > 0 && part_.shard.degree > 1) {
      group.saved_alone = bytes(group.inputs[0]);
    } else {
      group.saved = {group.inputs[0]};
    }
    group.gives = MemoryGroup::Gives::none;
  }

  void describe_loss(MemoryGroup& group) const {
    const std::size_t logits = group.inputs[0];
    group.saved = {logits};
    group.saved_alone = statistics(rows(logits)) + targets_bytes(logits);
    if (inner<Linear>(logits)) group.gives = MemoryGroup::Gives::overwrite;
  }

  std::uint64_t targets_bytes(std::size_t logits) const {
    return u(part_.samples * rows(logits)) * 8;
  }

  const StagePart& part_;
  const ModelGraph& graph_;
  RowCuts rows_;
  Precision precision_;
};

}  // namespace

std::vector<std::vector<std::size_t>> fused_nodes(const StagePart& part) {
  std::vector<std::vector<std::size_t>> nodes;
  for (const MemoryGroup& group : Grouping(part, Precision::fp32).fused()) {
    nodes.push_back(group.nodes);
  }
  return nodes;
}

std::vector<MemoryGroup> memory_groups(const StagePart& part, Precision precision) {
  return Grouping(part, precision).run();
}

}  // namespace heteroperf
