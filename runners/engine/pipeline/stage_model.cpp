// Cuts a stage out of a model for one rank, and brings its tensors into the form in which the rank
// keeps them. Tensor parallelism has three cases: a tensor is *whole* on every rank; it is
// *partial*, a summand that becomes whole by a sum over the group; or, with sequence parallelism,
// every rank keeps its own *rows* of it, and sums become exchanges of rows.
#include "runners/engine/pipeline/stage_model.hpp"

#include <utility>

#include "metrics/base/id.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/engine/operators/operator_group.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"
#include "runners/engine/pipeline/gradient_slots.hpp"

namespace heteroperf {
StageModel whole_model(const ModelGraph& graph, at::ScalarType type, Fusion fusion) {
  return {graph, make_operator_groups(graph, type, fusion), std::vector<int>(graph.nodes().size())};
}

// Groups are made for this stage and shard; edges are counted once per stage that takes a node's
// output.
StageModel stage_model(const RankShare& share, const RankShare::Part& part,
                       const StagedGraph& staged, const Plan& plan, at::ScalarType type,
                       const SharingGroups& groups) {
  const TensorShard& shard = share.shards[part.shard];
  const StageId stage = part.role.stage;
  const bool cut = shard.degree > 1;
  GroupingRules rules;
  rules.stage_of = &staged.stage_of;
  rules.stage = stage;
  rules.shard = cut ? &shard : nullptr;
  rules.groups = groups;
  StageModel model{shard.graph,
                   make_operator_groups(shard.graph, type, Fusion::on, rules),
                   std::vector<int>(shard.graph.nodes().size()),
                   plan.stages[stage].recomputation,
                   cut ? groups.tensor : nullptr,
                   groups.context,
                   &shard,
                   gradient_is_partial_within(shard, staged.stage_of, stage)};
  if (plan.sequence_parallel && cut) model.rows = row_cuts(shard, staged.stage_of, stage);
  for (const StageEdge& edge : staged.edges) {
    if (edge.from != stage) continue;
    for (const NodeId node : edge.nodes) ++model.edges_out[node.index()];
  }
  return model;
}

namespace {

bool holds(const std::vector<bool>& flags, NodeId node) {
  return !flags.empty() && flags[node.index()];
}

}  // namespace

bool TensorForms::keeps_rows(NodeId node) const { return holds(model_.rows.keeps, node); }
bool TensorForms::works_on_rows(NodeId node) const { return holds(model_.rows.works, node); }

at::Tensor TensorForms::own_rows(const at::Tensor& whole) const {
  return RowExchange(*model_.tensor_group).own(whole);
}

at::Tensor TensorForms::gather(NodeId node, const at::Tensor& rows, std::int64_t batch) {
  const SumLap timed(clock_);
  return RowExchange(*model_.tensor_group)
      .gather(rows, batch, model_.graph.node(node).output.front());
}

// In place where nobody else holds the summand.
at::Tensor TensorForms::sum(at::Tensor summand, Communicator& group) {
  const SumLap timed(clock_);
  if (!held_alone(summand) || !summand.is_contiguous()) {
    summand = summand.clone(at::MemoryFormat::Contiguous);
  }
  all_reduce(group, summand, Reduction::sum);
  return summand;
}

at::Tensor TensorForms::sum_to_rows(const at::Tensor& summand) {
  const SumLap timed(clock_);
  return RowExchange(*model_.tensor_group).sum(summand);
}

// Two questions decide: is the made tensor a summand, and does the rank keep rows of it? An
// operation that works on rows makes rows.
at::Tensor TensorForms::keep(NodeId node, at::Tensor made, std::int64_t batch) {
  if (model_.tensor_group == nullptr) return made;
  if (model_.shard->output_is_partial[node.index()]) {
    return keeps_rows(node) ? sum_to_rows(made) : sum(std::move(made), *model_.tensor_group);
  }
  if (keeps_rows(node) == works_on_rows(node)) return made;
  return keeps_rows(node) ? own_rows(made) : gather(node, made, batch);
}

at::Tensor TensorForms::gradient_for_operation(NodeId node, at::Tensor gradient,
                                               std::int64_t batch) {
  if (model_.tensor_group == nullptr || !gradient.defined()) return gradient;
  if (keeps_rows(node)) return works_on_rows(node) ? gradient : gather(node, gradient, batch);
  if (!model_.gradient_is_partial[node.index()]) {
    return works_on_rows(node) ? own_rows(gradient) : gradient;
  }
  return works_on_rows(node) ? sum_to_rows(gradient)
                             : sum(std::move(gradient), *model_.tensor_group);
}

// Where the ranks' gradients are to be summed, one of them brings in what all of them were sent.
at::Tensor TensorForms::keep_received_gradient(NodeId node, at::Tensor whole) const {
  if (keeps_rows(node)) return own_rows(whole);
  const bool summed = model_.tensor_group != nullptr && model_.gradient_is_partial[node.index()];
  return summed && model_.tensor_group->rank() != RankId(0) ? at::Tensor() : whole;
}

// Each rank with a part of the sequences gives what all of them have a gradient of its positions.
at::Tensor TensorForms::whole_gradient(NodeId node, at::Tensor gradient, std::int64_t batch) {
  if (!gradient.defined()) return gradient;
  if (model_.tensor_group != nullptr) {
    if (keeps_rows(node)) {
      gradient = gather(node, gradient, batch);
    } else if (model_.gradient_is_partial[node.index()]) {
      gradient = sum(std::move(gradient), *model_.tensor_group);
    }
  }
  const bool of_own_positions = model_.shard != nullptr && model_.shard->each_part_has(node);
  return of_own_positions ? sum(std::move(gradient), *model_.context_group) : gradient;
}

}  // namespace heteroperf
