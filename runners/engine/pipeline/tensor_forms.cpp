#include "runners/engine/pipeline/tensor_forms.hpp"

#include <utility>

#include "metrics/base/quantity.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/engine/operators/row_exchange.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"
#include "runners/engine/pipeline/gradient_slots.hpp"

namespace heteroperf {
namespace {

bool holds(const std::vector<bool>& flags, NodeId node) {
  return !flags.empty() && flags[position(node)];
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

at::Tensor TensorForms::sum(at::Tensor summand) {
  const SumLap timed(clock_);
  if (!held_alone(summand) || !summand.is_contiguous()) {
    summand = summand.clone(at::MemoryFormat::Contiguous);
  }
  all_reduce(*model_.tensor_group, summand, Reduction::sum);
  return summand;
}

at::Tensor TensorForms::sum_to_rows(const at::Tensor& summand) {
  const SumLap timed(clock_);
  return RowExchange(*model_.tensor_group).sum(summand);
}

at::Tensor TensorForms::keep(NodeId node, at::Tensor made, std::int64_t batch) {
  if (model_.tensor_group == nullptr) return made;
  if (model_.output_is_partial[position(node)]) {
    return keeps_rows(node) ? sum_to_rows(made) : sum(std::move(made));
  }
  if (keeps_rows(node) == works_on_rows(node)) return made;
  return keeps_rows(node) ? own_rows(made) : gather(node, made, batch);
}

at::Tensor TensorForms::keep_received(NodeId node, at::Tensor whole) const {
  return keeps_rows(node) ? own_rows(whole) : whole;
}

at::Tensor TensorForms::whole(NodeId node, at::Tensor kept, std::int64_t batch) {
  return keeps_rows(node) ? gather(node, kept, batch) : kept;
}

at::Tensor TensorForms::gradient_for_operation(NodeId node, at::Tensor gradient,
                                               std::int64_t batch) {
  if (model_.tensor_group == nullptr || !gradient.defined()) return gradient;
  if (keeps_rows(node)) return works_on_rows(node) ? gradient : gather(node, gradient, batch);
  if (!model_.gradient_is_partial[position(node)]) {
    return works_on_rows(node) ? own_rows(gradient) : gradient;
  }
  return works_on_rows(node) ? sum_to_rows(gradient) : sum(std::move(gradient));
}

// Where the ranks' gradients are to be summed, one of them brings in what all of them were sent.
at::Tensor TensorForms::keep_received_gradient(NodeId node, at::Tensor whole) const {
  if (keeps_rows(node)) return own_rows(whole);
  const bool summed = model_.tensor_group != nullptr && model_.gradient_is_partial[position(node)];
  return summed && model_.tensor_group->rank() != RankId(0) ? at::Tensor() : whole;
}

at::Tensor TensorForms::whole_gradient(NodeId node, at::Tensor gradient, std::int64_t batch) {
  if (!gradient.defined() || model_.tensor_group == nullptr) return gradient;
  if (keeps_rows(node)) return gather(node, gradient, batch);
  return model_.gradient_is_partial[position(node)] ? sum(std::move(gradient)) : gradient;
}

}  // namespace heteroperf
