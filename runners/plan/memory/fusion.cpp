// Fusion joins a node with the cheap element-wise nodes behind it, so that one pass over the memory
// does the work of several. The search walks the graph from its end: a chain is decided at its last
// node, which makes the longest chain win. The rules stand in ChainFinder::find, one line per kind.
//
// A node may lie inside a chain only if nobody else needs its output: one consumer, in the same
// branch and stage, and no sum over tensor-parallel ranks in between.
#include "runners/plan/memory/fusion.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "metrics/base/id.hpp"
#include "runners/plan/staged_graph.hpp"

namespace heteroperf {
namespace {

class ChainFinder {
 public:
  ChainFinder(const ModelGraph& graph, const FusionScope& scope)
      : graph_(graph),
        scope_(scope),
        users_(all_consumers(graph)),
        shard_(scope.shard != nullptr && scope.shard->degree > 1 ? scope.shard : nullptr) {}

  std::optional<FusedNodes> find(NodeId last) const {
    if (is<Gelu>(last)) return behind<Linear>(FusedKind::linear_gelu, last);
    if (is<Relu>(last)) return find_relu(last);
    if (is<Add>(last)) return beside<Linear>(FusedKind::linear_residual, last, {1, 0});
    if (is<Multiply>(last)) return beside<Silu>(FusedKind::swiglu, last, {0, 1});
    if (is<PositionEmbedding>(last)) {
      return behind<Embedding>(FusedKind::embedding_positions, last);
    }
    if (is<CrossEntropy>(last) && is_inner<Linear>(inputs(last)[0])) {
      return FusedNodes{FusedKind::loss_over_logits, {last}, inputs(last)};
    }
    return std::nullopt;
  }

  bool in_scope(NodeId id) const {
    if (is<Input>(id)) return false;
    return !scope_.stage || (*scope_.stage_of)[id.index()] == *scope_.stage;
  }

  const std::vector<NodeId>& inputs(NodeId id) const { return graph_.node(id).inputs; }

 private:
  template <class Kind>
  bool is(NodeId id) const {
    return std::holds_alternative<Kind>(graph_.node(id).attributes);
  }

  /// The node is a Kind whose output need not exist: one node of its branch and stage uses it, and
  /// no sum over ranks lies between the two.
  template <class Kind>
  bool is_inner(NodeId id) const {
    if (!is<Kind>(id)) return false;
    const std::vector<NodeId>& users = users_[id.index()];
    if (users.size() != 1 || graph_.node(users[0]).branch != graph_.node(id).branch) return false;
    const std::vector<StageId>* stages = scope_.stage_of;
    if (stages != nullptr && (*stages)[users[0].index()] != (*stages)[id.index()]) return false;
    return shard_ == nullptr ||
           (!shard_->output_is_partial[id.index()] && !shard_->gradient_is_partial[id.index()]);
  }

  /// `last` takes the output of an inner Before.
  template <class Before>
  std::optional<FusedNodes> behind(FusedKind kind, NodeId last) const {
    const NodeId before = inputs(last)[0];
    if (!is_inner<Before>(before)) return std::nullopt;
    return FusedNodes{kind, {before, last}, inputs(before)};
  }

  /// `last` joins the output of an inner Branch with a second input. `sides` says which of its
  /// inputs is looked at first.
  template <class Branch>
  std::optional<FusedNodes> beside(FusedKind kind, NodeId last,
                                   std::array<std::size_t, 2> sides) const {
    if (inputs(last).size() != 2) return std::nullopt;
    for (const std::size_t side : sides) {
      const NodeId branch = inputs(last)[side], second = inputs(last)[1 - side];
      if (branch == second || !is_inner<Branch>(branch)) continue;
      return FusedNodes{kind, {branch, last}, {inputs(branch)[0], second}};
    }
    return std::nullopt;
  }

  std::optional<FusedNodes> find_relu(NodeId relu) const {
    if (auto chain = behind<BatchNorm>(FusedKind::batch_norm_relu, relu)) return chain;
    const NodeId add = inputs(relu)[0];
    if (!is_inner<Add>(add)) return std::nullopt;
    if (auto chain = beside<BatchNorm>(FusedKind::batch_norm_residual_relu, add, {0, 1})) {
      chain->nodes.push_back(relu);
      return chain;
    }
    return behind<Add>(FusedKind::add_relu, relu);
  }

  const ModelGraph& graph_;
  const FusionScope& scope_;
  std::vector<std::vector<NodeId>> users_;
  const TensorShard* shard_;
};

}  // namespace

std::vector<FusedNodes> fuse_nodes(const ModelGraph& graph, const FusionScope& scope,
                                   Fusion fusion) {
  const ChainFinder finder(graph, scope);
  std::vector<bool> taken(graph.nodes().size());
  std::vector<FusedNodes> chains;
  for (std::size_t i = taken.size(); i-- > 0;) {
    const NodeId last(static_cast<std::int32_t>(i));
    if (taken[i] || !finder.in_scope(last)) continue;
    std::optional<FusedNodes> chain;
    if (fusion == Fusion::on) chain = finder.find(last);
    if (!chain) chain = FusedNodes{FusedKind::single, {last}, finder.inputs(last)};
    for (const NodeId node : chain->nodes) taken[node.index()] = true;
    chains.push_back(std::move(*chain));
  }
  std::ranges::reverse(chains);
  return chains;
}

}  // namespace heteroperf
