// One rank's share of a model under tensor parallelism, as a graph of its own.
//
// TensorRoles says for every node what the ranks do with it: all the same, some columns, some rows.
// Here these roles become local sizes. The local graph has the same nodes under the same ids, so
// stages, fusion and schedules of the full graph apply to it without translation. Beside the sizes
// the shard says where sums over the group are due: an output that is a *summand* (row linears, the
// embedding) is summed in the forward pass, and a gradient that several ranks give a part of (in
// front of column linears) in the backward pass.
#include "runners/plan/tensor/tensor_parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "runners/plan/tensor/tensor_roles.hpp"

namespace heteroperf {
namespace {

using Intervals = std::vector<ParameterShard::Interval>;

std::int64_t total(const Intervals& intervals) {
  std::int64_t sum = 0;
  for (const ParameterShard::Interval& interval : intervals) sum += interval.count;
  return sum;
}

/// Builds one rank's graph node by node.
class ShardMaker {
 public:
  ShardMaker(const ModelGraph& full, int degree, int index) : full_(full) {
    shard_.degree = degree;
    shard_.index = index;
  }

  TensorShard run() {
    const std::size_t count = full_.nodes().size();
    if (shard_.degree > 1) {
      roles_ = find_tensor_roles(full_, shard_.degree);
    } else {
      roles_.role.assign(count, TensorRole::whole);
      roles_.packing.assign(count, {});
    }
    shard_.graph.name = full_.name;
    shard_.first_of_vocabulary.assign(count, 0);
    shard_.vocabulary.assign(count, 0);
    for (std::size_t n = 0; n < count; ++n) add(NodeId(n));
    return std::move(shard_);
  }

 private:
  TensorRole role(NodeId id) const { return roles_.role[id.index()]; }
  bool splits(NodeId id) const { return role(id) == TensorRole::column; }

  void add(NodeId id) {
    const Node& node = full_.node(id);
    const bool loss = std::holds_alternative<CrossEntropy>(node.attributes);
    const bool sharded = roles_.cuts_output(id) && !loss;
    const std::vector<NodeId> users = full_.consumers(id);
    shard_.columns.push_back(sharded ? columns(id) : Intervals{});
    shard_.output_is_sharded.push_back(sharded);
    shard_.output_is_partial.push_back(role(id) == TensorRole::row ||
                                       role(id) == TensorRole::vocabulary);
    shard_.splits_inputs.push_back(splits(id));
    shard_.gradient_is_partial.push_back(
        node.differentiable &&
        std::any_of(users.begin(), users.end(), [&](NodeId user) { return splits(user); }));
    note_vocabulary(id);
    shard_.graph.add(node.name, local_attributes(id), node.inputs, node.branch);
    shard_.parameters.push_back(parameters(id));
  }

  /// ⌊i · extent / degree⌋ … ⌊(i + 1) · extent / degree⌋ − 1.
  ParameterShard::Interval part(std::int64_t extent) const {
    const std::int64_t first = extent * shard_.index / shard_.degree;
    return {first, extent * (shard_.index + 1) / shard_.degree - first};
  }

  Intervals columns(NodeId id) const {
    const HeadPacking& packing = roles_.packing[id.index()];
    if (packing.plain()) return {part(full_.node(id).output.back())};
    const auto heads = [&](std::int64_t before, std::int64_t of_kind) {
      const ParameterShard::Interval own = part(of_kind);
      return ParameterShard::Interval{(before + own.first) * packing.head_dim,
                                      own.count * packing.head_dim};
    };
    return {heads(0, packing.heads), heads(packing.heads, packing.kv_heads),
            heads(packing.heads + packing.kv_heads, packing.kv_heads)};
  }

  /// Remembers which classes the embedding, the logits and the loss of this rank have.
  void note_vocabulary(NodeId id) {
    const Node& node = full_.node(id);
    const auto note = [&](NodeId whose, std::int64_t extent) {
      shard_.first_of_vocabulary[whose.index()] = part(extent).first;
      shard_.vocabulary[whose.index()] = extent;
    };
    if (role(id) == TensorRole::vocabulary)
      note(id, std::get<Embedding>(node.attributes).vocabulary);
    if (!std::holds_alternative<CrossEntropy>(node.attributes) || role(id) != TensorRole::local) {
      return;
    }
    const NodeId logits = node.inputs[0];
    note(id, full_.node(logits).output.back());
    note(logits, full_.node(logits).output.back());
  }

  Attributes local_attributes(NodeId id) const {
    Attributes attributes = full_.node(id).attributes;
    if (role(id) == TensorRole::whole) return attributes;
    if (auto* linear = std::get_if<Linear>(&attributes)) {
      if (role(id) == TensorRole::column) linear->out_features = total(shard_.columns[id.index()]);
      // The bias is added once to the sum, not once per rank.
      if (role(id) == TensorRole::row) linear->bias = linear->bias && shard_.index == 0;
    } else if (auto* table = std::get_if<Embedding>(&attributes)) {
      table->vocabulary = part(table->vocabulary).count;
    } else if (auto* rotary = std::get_if<Rotary>(&attributes)) {
      keep_heads(*rotary);
    } else if (auto* attention = std::get_if<Attention>(&attributes)) {
      if (attention->alibi) {
        // The slopes of ALiBi depend on a head's number in the whole model.
        attention->all_heads = attention->heads;
        attention->first_head = part(attention->heads).first;
      }
      keep_heads(*attention);
    }
    return attributes;
  }

  template <class Heads>
  void keep_heads(Heads& attributes) const {
    attributes.heads = part(attributes.heads).count;
    attributes.kv_heads = part(attributes.kv_heads).count;
  }

  /// The local node's parameters come in the order of the full node's.
  std::vector<ParameterShard> parameters(NodeId id) const {
    std::vector<ParameterShard> shards(shard_.graph.node(id).parameters.size());
    if (shards.empty()) return shards;
    const Node& node = full_.node(id);
    switch (role(id)) {
      case TensorRole::column:
        for (ParameterShard& shard : shards) shard.intervals = shard_.columns[id.index()];
        break;
      case TensorRole::row:
        shards[0] = {1, shard_.columns[node.inputs[0].index()]};
        break;
      case TensorRole::vocabulary:
        shards[0] = {0, {part(node.parameters[0].shape[0])}};
        break;
      default:
        break;
    }
    return shards;
  }

  const ModelGraph& full_;
  TensorRoles roles_;
  TensorShard shard_;
};

}  // namespace

TensorShard tensor_shard(const ModelGraph& graph, int degree, int index) {
  if (degree < 1) {
    throw UserError(fmt::format("{} tensor-parallel ranks", degree), "it takes at least 1");
  }
  HETEROPERF_EXPECT(index >= 0 && index < degree);
  return ShardMaker(graph, degree, index).run();
}

std::vector<bool> gradient_is_partial_within(const TensorShard& shard,
                                             const std::vector<StageId>& stage_of, StageId stage) {
  std::vector<bool> partial(shard.gradient_is_partial.size());
  for (std::size_t n = 0; n < partial.size(); ++n) {
    if (stage_of[n] != stage || !shard.splits_inputs[n]) continue;
    for (const NodeId input : shard.graph.nodes()[n].inputs) {
      partial[input.index()] = shard.gradient_is_partial[input.index()];
    }
  }
  return partial;
}

}  // namespace heteroperf
