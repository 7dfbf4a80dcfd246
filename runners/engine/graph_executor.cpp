#include "runners/engine/graph_executor.hpp"

#include <ATen/ops/argmax.h>
#include <ATen/ops/eq.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "metrics/error.hpp"
#include "runners/engine/peak_rate.hpp"

namespace heteroperf {
namespace {

std::size_t position(NodeId node) { return static_cast<std::size_t>(node.value()); }

double to_double(const at::Tensor& scalar) {
  switch (scalar.scalar_type()) {
    case at::kDouble:
      return *scalar.const_data_ptr<double>();
    case at::kFloat:
      return static_cast<double>(*scalar.const_data_ptr<float>());
    default:
      return scalar.item().toDouble();
  }
}

std::uint64_t count_right(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor right = at::argmax(logits, -1).eq(targets);
  return static_cast<std::uint64_t>(right.sum().item().toLong());
}

/// Adds the time of its life to `total`, when there is one.
class Lap {
 public:
  explicit Lap(double* total) : total_(total) {
    if (total_ != nullptr) start_ = std::chrono::steady_clock::now();
  }
  ~Lap() {
    if (total_ == nullptr) return;
    *total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Lap(const Lap&) = delete;
  Lap& operator=(const Lap&) = delete;

 private:
  double* total_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

GraphExecutor::GraphExecutor(const ModelGraph& graph, ParameterStore& store, Fusion fusion)
    : input_(graph.input()), type_(store.operator_type()) {
  groups_ = make_operator_groups(graph, type_, fusion);
  HETEROPERF_EXPECT(!groups_.empty() && groups_.back().nodes.back() == graph.loss());
  for (const OperatorGroup& group : groups_) {
    Tensors parameters, gradients;
    std::vector<std::size_t> ordinals;
    for (const auto& [node, index] : group.parameters) {
      parameters.push_back(store.parameter(node, index));
      gradients.push_back(store.gradient(node, index));
      ordinals.push_back(store.ordinal(node, index));
    }
    parameters_.push_back(std::move(parameters));
    gradients_.push_back(std::move(gradients));
    ordinals_.push_back(std::move(ordinals));
  }
  gradient_written_.resize(store.count());
  values_.resize(graph.nodes().size());
  saved_.resize(groups_.size());
  needs_gradient_.resize(graph.nodes().size());
  plan_releases();
  plan_gradients();
  plan_profile(graph);
  slots_ = GradientSlots(needs_gradient_);
}

void GraphExecutor::plan_releases() {
  released_after_.resize(groups_.size());
  std::vector<std::size_t> last_use(values_.size(), groups_.size());
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const NodeId node : groups_[g].inputs) last_use[position(node)] = g;
  }
  for (std::size_t n = 0; n < last_use.size(); ++n) {
    if (last_use[n] == groups_.size()) continue;
    released_after_[last_use[n]].push_back(NodeId(static_cast<std::int32_t>(n)));
  }
}

void GraphExecutor::plan_gradients() {
  for (const OperatorGroup& group : groups_) {
    bool needed = !group.parameters.empty();
    for (const NodeId node : group.inputs) needed = needed || needs_gradient_[position(node)];
    needs_gradient_[position(group.nodes.back())] = needed;
    backward_runs_.push_back(needed);
  }
}

void GraphExecutor::plan_profile(const ModelGraph& graph) {
  for (const OperatorGroup& group : groups_) {
    std::string kind;
    for (const NodeId node : group.nodes) {
      if (!kind.empty()) kind += '+';
      kind += kind_name(graph.node(node).attributes);
    }
    const auto known = std::find_if(times_.begin(), times_.end(),
                                    [&](const GroupTime& time) { return time.kind == kind; });
    time_of_group_.push_back(static_cast<std::size_t>(known - times_.begin()));
    if (known == times_.end()) times_.push_back({kind});
  }
}

double GraphExecutor::train(const at::Tensor& sample, const at::Tensor& targets,
                            PassContext context) {
  context.mode = Mode::train;
  const at::Tensor loss = forward(sample, targets, context);
  backward(context);
  return to_double(loss);
}

BatchScore GraphExecutor::evaluate(const at::Tensor& sample, const at::Tensor& targets) {
  PassContext context;
  context.mode = Mode::evaluate;
  // The loss is the last group and its first input the logits: they outlive the pass.
  const OperatorGroup& last = groups_.back();
  HETEROPERF_EXPECT(last.nodes.size() == 1);
  const at::Tensor loss = forward(sample, targets, context);
  const at::Tensor logits = std::exchange(values_[position(last.inputs.front())], at::Tensor());
  return {to_double(loss), static_cast<std::uint64_t>(targets.numel()),
          count_right(logits, targets)};
}

at::Tensor GraphExecutor::forward(const at::Tensor& sample, const at::Tensor& targets,
                                  const PassContext& context) {
  values_[position(input_)] = sample;
  at::Tensor output;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Lap lap(profile_ == Profile::on ? &times_[time_of_group_[g]].forward_s : nullptr);
    output = run_group(g, targets, context);
    values_[position(groups_[g].nodes.back())] = output;
    if (context.mode == Mode::evaluate) {
      saved_[g].clear();
      if (takes_targets(g)) break;
    }
    for (const NodeId node : released_after_[g]) values_[position(node)].reset();
  }
  values_[position(groups_.back().nodes.back())].reset();
  return output;
}

at::Tensor GraphExecutor::run_group(std::size_t g, const at::Tensor& targets,
                                    const PassContext& context) {
  const OperatorGroup& group = groups_[g];
  Tensors inputs;
  inputs.reserve(group.inputs.size() + 1);
  for (const NodeId node : group.inputs) inputs.push_back(values_[position(node)]);
  if (takes_targets(g)) inputs.push_back(targets);
  PassContext own = context;
  own.node = group.nodes.back().value();
  saved_[g].clear();
  return group.op->forward(inputs, parameters_[g], saved_[g], own);
}

// The loss's own gradient is 1, which an undefined tensor stands for.
void GraphExecutor::backward(const PassContext& context) {
  std::fill(gradient_written_.begin(), gradient_written_.end(), false);
  for (std::size_t g = groups_.size(); g-- > 0;) {
    const Lap lap(profile_ == Profile::on ? &times_[time_of_group_[g]].backward_s : nullptr);
    if (backward_runs_[g]) backward_group(g, slots_.take(groups_[g].nodes.back()), context);
    saved_[g].clear();
  }
}

void GraphExecutor::backward_group(std::size_t g, at::Tensor gradient, const PassContext& context) {
  const OperatorGroup& group = groups_[g];
  HETEROPERF_EXPECT(gradient.defined() || takes_targets(g));
  PassContext own = context;
  own.node = group.nodes.back().value();
  own.accumulation = prepare_gradients(g, context.accumulation);
  SlotSink sink(slots_, group.inputs);
  group.op->backward(gradient, parameters_[g], saved_[g], own, sink, gradients_[g]);
}

// A weight tied to another's is written by two groups: the second adds. An operator has one word
// for all its gradients, so those it meets first are zeroed when another is not.
Accumulation GraphExecutor::prepare_gradients(std::size_t g, Accumulation micro_batch) {
  if (micro_batch == Accumulation::add) return Accumulation::add;
  const std::vector<std::size_t>& ordinals = ordinals_[g];
  const bool any_written = std::any_of(ordinals.begin(), ordinals.end(),
                                       [&](std::size_t p) { return gradient_written_[p]; });
  for (std::size_t i = 0; i < ordinals.size(); ++i) {
    if (any_written && !gradient_written_[ordinals[i]]) gradients_[g][i].zero_();
    gradient_written_[ordinals[i]] = true;
  }
  return any_written ? Accumulation::add : Accumulation::overwrite;
}

Tensors GraphExecutor::buffers() const {
  Tensors all;
  for (const OperatorGroup& group : groups_) {
    for (const at::Tensor& buffer : group.op->buffers()) all.push_back(buffer);
  }
  return all;
}

}  // namespace heteroperf
