#include "runners/engine/operators/operator_group.hpp"

#include <algorithm>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

/// Finds chains of nodes that one fused operator runs. A chain is decided at its last node, walking
/// backwards from it.
class Fuser {
 public:
  Fuser(const ModelGraph& graph, at::ScalarType type, const GroupingRules& rules)
      : graph_(graph), type_(type), rules_(rules) {
    if (!cut()) rules_.shard = nullptr;
  }

  std::vector<OperatorGroup> run(Fusion fusion);

 private:
  template <class Kind>
  const Kind* as(NodeId id) const {
    return std::get_if<Kind>(&graph_.node(id).attributes);
  }
  /// `id` as a Kind whose output need not exist.
  template <class Kind>
  const Kind* inner(NodeId id) const {
    return may_be_inner(id) ? as<Kind>(id) : nullptr;
  }
  /// One node alone uses it, of its own branch and stage, and no sum over ranks lies between.
  bool may_be_inner(NodeId id) const;
  bool cut() const { return rules_.shard != nullptr && rules_.shard->degree > 1; }
  bool of_stage(NodeId id) const {
    return !rules_.stage || (*rules_.stage_of)[position(id)] == *rules_.stage;
  }
  const std::vector<NodeId>& inputs(NodeId id) const { return graph_.node(id).inputs; }

  std::optional<OperatorGroup> fuse(NodeId last) const;
  std::optional<OperatorGroup> fuse_gelu(NodeId gelu) const;
  std::optional<OperatorGroup> fuse_relu(NodeId relu) const;
  std::optional<OperatorGroup> fuse_residual_relu(NodeId add, NodeId relu) const;
  std::optional<OperatorGroup> fuse_add(NodeId add) const;
  std::optional<OperatorGroup> fuse_multiply(NodeId multiply) const;
  std::optional<OperatorGroup> fuse_positions(NodeId positions) const;
  std::optional<OperatorGroup> fuse_loss(NodeId loss) const;

  OperatorGroup group(std::vector<NodeId> nodes, std::vector<NodeId> inputs, OperatorPtr op) const;
  void add_parameters(NodeId id, OperatorGroup& group) const;
  OperatorPtr norm(NodeId id, BatchNormFusion fusion) const {
    return make_batch_norm(*as<BatchNorm>(id), graph_.node(id).output[0], type_, fusion);
  }

  OperatorPtr single(NodeId id) const;
  bool cuts_vocabulary(NodeId id) const {
    return cut() && rules_.shard->vocabulary[position(id)] > 0;
  }
  VocabularyPart vocabulary_part(NodeId id) const {
    return {rules_.shard->first_of_vocabulary[position(id)],
            rules_.shard->vocabulary[position(id)]};
  }
  OperatorPtr loss(NodeId id, Overwrite logits) const;

  const ModelGraph& graph_;
  at::ScalarType type_;
  GroupingRules rules_;
};

bool Fuser::may_be_inner(NodeId id) const {
  const std::vector<NodeId> users = graph_.consumers(id);
  if (users.size() != 1 || graph_.node(users[0]).branch != graph_.node(id).branch) return false;
  const std::vector<int>* stages = rules_.stage_of;
  if (stages != nullptr && (*stages)[position(users[0])] != (*stages)[position(id)]) return false;
  return !cut() || (!rules_.shard->output_is_partial[position(id)] &&
                    !rules_.shard->gradient_is_partial[position(id)]);
}

OperatorPtr Fuser::loss(NodeId id, Overwrite logits) const {
  const CrossEntropy& attributes = *as<CrossEntropy>(id);
  if (!cuts_vocabulary(id)) return make_cross_entropy(attributes, logits);
  HETEROPERF_EXPECT(rules_.tensor_group != nullptr);
  return make_vocabulary_cross_entropy(attributes, vocabulary_part(id), *rules_.tensor_group,
                                       logits);
}

OperatorPtr Fuser::single(NodeId id) const {
  if (as<CrossEntropy>(id) != nullptr) return loss(id, Overwrite::forbidden);
  if (as<Embedding>(id) != nullptr && cuts_vocabulary(id)) {
    return make_vocabulary_embedding(*as<Embedding>(id), vocabulary_part(id));
  }
  return make_operator(graph_, id, type_);
}

void Fuser::add_parameters(NodeId id, OperatorGroup& group) const {
  const auto* linear = as<Linear>(id);
  if (linear != nullptr && !linear->tied_to.empty()) {
    group.parameters.emplace_back(graph_.find(linear->tied_to), 0);
  }
  for (std::size_t i = 0; i < graph_.node(id).parameters.size(); ++i) {
    group.parameters.emplace_back(id, i);
  }
}

OperatorGroup Fuser::group(std::vector<NodeId> nodes, std::vector<NodeId> inputs,
                           OperatorPtr op) const {
  OperatorGroup result;
  for (const NodeId id : nodes) add_parameters(id, result);
  result.nodes = std::move(nodes);
  result.inputs = std::move(inputs);
  result.op = std::move(op);
  return result;
}

std::optional<OperatorGroup> Fuser::fuse_gelu(NodeId gelu) const {
  const NodeId before = inputs(gelu)[0];
  const auto* linear = inner<Linear>(before);
  if (linear == nullptr) return std::nullopt;
  const LinearEpilogue epilogue{LinearEpilogue::Kind::gelu, as<Gelu>(gelu)->form};
  return group({before, gelu}, inputs(before), make_linear(*linear, epilogue));
}

std::optional<OperatorGroup> Fuser::fuse_residual_relu(NodeId add, NodeId relu) const {
  for (const std::size_t side : {0, 1}) {
    const NodeId branch = inputs(add)[side], other = inputs(add)[1 - side];
    if (inner<BatchNorm>(branch) == nullptr || branch == other) continue;
    return group({branch, add, relu}, {inputs(branch)[0], other},
                 norm(branch, BatchNormFusion::residual_relu));
  }
  return std::nullopt;
}

std::optional<OperatorGroup> Fuser::fuse_relu(NodeId relu) const {
  const NodeId before = inputs(relu)[0];
  if (inner<BatchNorm>(before) != nullptr) {
    return group({before, relu}, inputs(before), norm(before, BatchNormFusion::relu));
  }
  if (inner<Add>(before) == nullptr) return std::nullopt;
  if (inputs(before).size() == 2) {
    if (auto fused = fuse_residual_relu(before, relu)) return fused;
  }
  return group({before, relu}, inputs(before), make_add(inputs(before).size(), Activation::relu));
}

std::optional<OperatorGroup> Fuser::fuse_add(NodeId add) const {
  if (inputs(add).size() != 2) return std::nullopt;
  for (const std::size_t side : {1, 0}) {
    const NodeId branch = inputs(add)[side], other = inputs(add)[1 - side];
    const auto* linear = inner<Linear>(branch);
    if (linear == nullptr || branch == other) continue;
    return group({branch, add}, {inputs(branch)[0], other},
                 make_linear(*linear, {LinearEpilogue::Kind::residual, {}}));
  }
  return std::nullopt;
}

std::optional<OperatorGroup> Fuser::fuse_multiply(NodeId multiply) const {
  for (const std::size_t side : {0, 1}) {
    const NodeId gate = inputs(multiply)[side], up = inputs(multiply)[1 - side];
    if (inner<Silu>(gate) == nullptr || gate == up) continue;
    return group({gate, multiply}, {inputs(gate)[0], up}, make_swiglu());
  }
  return std::nullopt;
}

std::optional<OperatorGroup> Fuser::fuse_positions(NodeId positions) const {
  const NodeId before = inputs(positions)[0];
  const auto* embedding = inner<Embedding>(before);
  if (embedding == nullptr) return std::nullopt;
  return group({before, positions}, inputs(before), make_embedding(*embedding, Positions::learned));
}

// The logits may be overwritten when the loss alone uses them and their maker keeps no output.
std::optional<OperatorGroup> Fuser::fuse_loss(NodeId loss) const {
  if (inner<Linear>(inputs(loss)[0]) == nullptr) return std::nullopt;
  return group({loss}, inputs(loss), this->loss(loss, Overwrite::allowed));
}

std::optional<OperatorGroup> Fuser::fuse(NodeId last) const {
  if (as<Gelu>(last) != nullptr) return fuse_gelu(last);
  if (as<Relu>(last) != nullptr) return fuse_relu(last);
  if (as<Add>(last) != nullptr) return fuse_add(last);
  if (as<Multiply>(last) != nullptr) return fuse_multiply(last);
  if (as<PositionEmbedding>(last) != nullptr) return fuse_positions(last);
  if (as<CrossEntropy>(last) != nullptr) return fuse_loss(last);
  return std::nullopt;
}

// From the end, so that the longest chain wins; the order of the last nodes is topological.
std::vector<OperatorGroup> Fuser::run(Fusion fusion) {
  const std::size_t count = graph_.nodes().size();
  std::vector<bool> taken(count);
  std::vector<OperatorGroup> groups;
  for (std::size_t i = count; i-- > 0;) {
    const NodeId id(static_cast<std::int32_t>(i));
    if (taken[i] || as<Input>(id) != nullptr || !of_stage(id)) continue;
    std::optional<OperatorGroup> fused;
    if (fusion == Fusion::on) fused = fuse(id);
    if (!fused) fused = group({id}, inputs(id), single(id));
    for (const NodeId node : fused->nodes) taken[position(node)] = true;
    groups.push_back(std::move(*fused));
  }
  std::reverse(groups.begin(), groups.end());
  return groups;
}

/// Whether all nodes of the group that take `input` leave it whole.
bool takes_whole(const OperatorGroup& group, NodeId input, const ModelGraph& graph,
                 const TensorShard& shard) {
  return std::none_of(group.nodes.begin(), group.nodes.end(), [&](NodeId node) {
    const std::vector<NodeId>& inputs = graph.node(node).inputs;
    return shard.splits_inputs[position(node)] &&
           std::find(inputs.begin(), inputs.end(), input) != inputs.end();
  });
}

void count_whole_gradients_once(std::vector<OperatorGroup>& groups, const ModelGraph& graph,
                                const GroupingRules& rules) {
  const TensorShard& shard = *rules.shard;
  if (shard.index == 0) return;
  const std::vector<bool> partial =
      rules.stage ? gradient_is_partial_within(shard, *rules.stage_of, *rules.stage)
                  : shard.gradient_is_partial;
  for (OperatorGroup& group : groups) {
    std::vector<bool> given;
    for (const NodeId input : group.inputs) {
      given.push_back(!partial[position(input)] || !takes_whole(group, input, graph, shard));
    }
    const bool all = std::find(given.begin(), given.end(), false) == given.end();
    if (!all) group.op = make_withholding(std::move(group.op), std::move(given));
  }
}

}  // namespace

std::vector<OperatorGroup> make_operator_groups(const ModelGraph& graph, at::ScalarType type,
                                                Fusion fusion) {
  return make_operator_groups(graph, type, fusion, {});
}

std::vector<OperatorGroup> make_operator_groups(const ModelGraph& graph, at::ScalarType type,
                                                Fusion fusion, const GroupingRules& rules) {
  HETEROPERF_EXPECT(!rules.stage || rules.stage_of != nullptr);
  std::vector<OperatorGroup> groups = Fuser(graph, type, rules).run(fusion);
  if (rules.shard != nullptr) count_whole_gradients_once(groups, graph, rules);
  return groups;
}

}  // namespace heteroperf
