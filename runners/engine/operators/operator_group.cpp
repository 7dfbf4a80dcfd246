// Turns the chains that fuse_nodes() finds into operators. Which nodes are joined is decided there,
// for the planner and the engine alike; this file only knows the operator of each kind of chain.
//
// Under tensor parallelism two things are added. Embedding and loss are told their part of the
// vocabulary. And where the ranks sum the gradient of a tensor, a consumer that every rank runs
// alike gives its gradient on one rank only, else the sum would have it once per rank.
#include "runners/engine/operators/operator_group.hpp"

#include <ATen/ops/empty.h>
#include <algorithm>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"
#include "runners/plan/tensor/row_cuts.hpp"

namespace heteroperf {

namespace {

/// Makes the operators of fused chains.
class GroupMaker {
 public:
  GroupMaker(const ModelGraph& graph, at::ScalarType type, const GroupingRules& rules)
      : graph_(graph),
        type_(type),
        groups_(rules.groups),
        stage_of_(rules.stage_of),
        stage_(rules.stage),
        shard_(rules.shard != nullptr && rules.shard->degree > 1 ? rules.shard : nullptr) {}

  OperatorGroup group_of(FusedNodes chain) const {
    OperatorGroup group;
    for (const NodeId id : chain.nodes) add_parameters(id, group);
    group.op = make_operator_of(chain);
    group.nodes = std::move(chain.nodes);
    group.inputs = std::move(chain.inputs);
    return group;
  }

 private:
  template <class Kind>
  const Kind* as(NodeId id) const {
    return std::get_if<Kind>(&graph_.node(id).attributes);
  }

  /// The parameters of a node in the order in which its operator takes them; a tied linear takes
  /// the embedding's weight.
  void add_parameters(NodeId id, OperatorGroup& group) const {
    const auto* linear = as<Linear>(id);
    if (linear != nullptr && !linear->tied_to.empty()) {
      group.parameters.emplace_back(graph_.find(linear->tied_to), 0);
    }
    for (std::size_t i = 0; i < graph_.node(id).parameters.size(); ++i) {
      group.parameters.emplace_back(id, i);
    }
  }

  OperatorPtr make_operator_of(const FusedNodes& chain) const {
    const NodeId first = chain.nodes.front(), last = chain.nodes.back();
    switch (chain.kind) {
      case FusedKind::linear_gelu:
        return make(*as<Linear>(first), place(first),
                    {LinearEpilogue::Kind::gelu, as<Gelu>(last)->form});
      case FusedKind::linear_residual:
        return make(*as<Linear>(first), place(first), {LinearEpilogue::Kind::residual, {}});
      case FusedKind::batch_norm_relu:
        return make(*as<BatchNorm>(first), place(first), BatchNormFusion::relu);
      case FusedKind::batch_norm_residual_relu:
        return make(*as<BatchNorm>(first), place(first), BatchNormFusion::residual_relu);
      case FusedKind::add_relu:
        return make(*as<Add>(first), place(first), Activation::relu);
      case FusedKind::swiglu:
        return make_swiglu();
      case FusedKind::embedding_positions:
        return make(*as<Embedding>(first), place(first), as<PositionEmbedding>(last));
      case FusedKind::loss_over_logits:
        return make_loss(last, Overwrite::allowed);
      case FusedKind::single:
        break;
    }
    if (as<CrossEntropy>(last) != nullptr) return make_loss(last, Overwrite::forbidden);
    if (as<Embedding>(last) != nullptr && cuts_vocabulary(last)) {
      return make_vocabulary_embedding(*as<Embedding>(last), vocabulary_part(last));
    }
    if (groups_.context != nullptr) {
      // An operation that every rank repeats has no parts.
      const Attention* attention = as<Attention>(last);
      if (attention != nullptr && !attention->part.whole()) {
        return make_context_attention(*attention, *groups_.context);
      }
      const auto* taken = as<TakeToken>(last);
      if (taken != nullptr && !taken->part.whole()) {
        return make_context_pool(*taken, *groups_.context);
      }
      const auto* pool = as<TokenPool>(last);
      if (pool != nullptr && !pool->part.whole()) return make_context_pool(*pool, *groups_.context);
      if (as<InsertTokens>(last) != nullptr) {
        return make_context_insertion(*as<InsertTokens>(last), place(last), *groups_.context);
      }
    }
    return make_operator(graph_, last, type_);
  }

  OperatorPlace place(NodeId id) const { return {graph_, graph_.node(id), type_}; }

  OperatorPtr make_loss(NodeId id, Overwrite logits) const {
    const CrossEntropy& attributes = *as<CrossEntropy>(id);
    if (!cuts_vocabulary(id)) return make(attributes, place(id), logits);
    HETEROPERF_EXPECT(groups_.tensor != nullptr);
    return make_vocabulary_cross_entropy(attributes, vocabulary_part(id), *groups_.tensor, logits);
  }

  bool cuts_vocabulary(NodeId id) const {
    return shard_ != nullptr && shard_->vocabulary[id.index()] > 0;
  }
  VocabularyPart vocabulary_part(NodeId id) const {
    return {shard_->first_of_vocabulary[id.index()], shard_->vocabulary[id.index()]};
  }

  const ModelGraph& graph_;
  at::ScalarType type_;
  SharingGroups groups_;
  const std::vector<StageId>* stage_of_;
  std::optional<StageId> stage_;
  const TensorShard* shard_;
};

/// None of the group's nodes that take `input` splits it between the ranks.
bool takes_whole(const OperatorGroup& group, NodeId input, const ModelGraph& graph,
                 const TensorShard& shard) {
  return std::none_of(group.nodes.begin(), group.nodes.end(), [&](NodeId node) {
    const std::vector<NodeId>& inputs = graph.node(node).inputs;
    return shard.splits_inputs[node.index()] &&
           std::find(inputs.begin(), inputs.end(), input) != inputs.end();
  });
}

/// Where the ranks of a group add up the gradients of a tensor, a consumer that every rank runs on
/// the whole tensor gives the same gradient everywhere: only index 0 brings it into the sum.
void count_whole_gradients_once(std::vector<OperatorGroup>& groups, const ModelGraph& graph,
                                const GroupingRules& rules) {
  const TensorShard& shard = *rules.shard;
  if (shard.index == 0) return;
  const std::vector<bool> partial =
      rules.stage ? gradient_is_partial_within(shard, *rules.stage_of, *rules.stage)
                  : shard.gradient_is_partial;
  for (OperatorGroup& group : groups) {
    for (const NodeId input : group.inputs) {
      group.withheld.push_back(partial[input.index()] && takes_whole(group, input, graph, shard));
    }
  }
}

}  // namespace

std::vector<OperatorGroup> make_operator_groups(const ModelGraph& graph, at::ScalarType type,
                                                Fusion fusion, const GroupingRules& rules) {
  HETEROPERF_EXPECT(!rules.stage || rules.stage_of != nullptr);
  const GroupMaker maker(graph, type, rules);
  std::vector<OperatorGroup> groups;
  for (FusedNodes& chain : fuse_nodes(graph, rules, fusion)) {
    groups.push_back(maker.group_of(std::move(chain)));
  }
  if (rules.shard != nullptr) count_whole_gradients_once(groups, graph, rules);
  return groups;
}

// Sequence parallelism: tensor-parallel ranks keep rows of a tensor instead of all of it. A sum
// over the group becomes a reduce-scatter, and an operation that needs the whole tensor gathers it.
//
// The rows of all samples follow one another, and rank i has the i-th stretch of them
// (rows_of_rank()), which may begin in the middle of a sample. Both collectives move what an
// all-reduce of the whole tensor would move in one of its two phases. Tensors on a device go
// through host memory unless the group's transport takes device memory.

at::Tensor RowExchange::own(const at::Tensor& whole) const {
  const at::Tensor rows = whole.contiguous().view({1, -1, whole.size(-1)});
  const RowRangeOfRank range = rows_of_rank(rows.size(1), group_.rank().value(), group_.size());
  return rows.narrow(1, range.first, range.count).clone();
}

// Ranks may have one row more than others.
std::vector<std::size_t> RowExchange::counts(std::int64_t rows, std::int64_t width) const {
  std::vector<std::size_t> elements;
  for (int rank = 0; rank < group_.size(); ++rank) {
    elements.push_back(
        static_cast<std::size_t>(rows_of_rank(rows, rank, group_.size()).count * width));
  }
  return elements;
}

// The ranks' rows follow one another in the whole tensor, so gathering needs no second copy.
at::Tensor RowExchange::gather(const at::Tensor& rows, std::int64_t batch,
                               std::int64_t positions) const {
  const std::int64_t width = rows.size(-1);
  const at::Tensor whole = at::empty({batch, positions, width}, rows.options());
  HostCopies copies(group_);
  const at::Tensor part = copies.of(rows.contiguous()), all = copies.of(whole);
  group_.all_gather(buffer_of(part), buffer_of(all), counts(batch * positions, width));
  copies.put_back();
  return whole;
}

at::Tensor RowExchange::sum(const at::Tensor& summand) const {
  const at::Tensor whole = summand.contiguous();
  const std::int64_t width = whole.size(-1), rows = whole.numel() / width;
  const RowRangeOfRank range = rows_of_rank(rows, group_.rank().value(), group_.size());
  const at::Tensor part = at::empty({1, range.count, width}, whole.options());
  HostCopies copies(group_);
  const at::Tensor all = copies.of(whole), result = copies.of(part);
  group_.reduce_scatter(buffer_of(all), buffer_of(result), counts(rows, width), Reduction::sum);
  copies.put_back();
  return part;
}

}  // namespace heteroperf
