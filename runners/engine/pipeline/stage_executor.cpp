#include "runners/engine/pipeline/stage_executor.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/engine/operators/right_predictions.hpp"

namespace heteroperf {
namespace {

double to_double(const at::Tensor& scalar) {
  if (scalar.is_cuda()) return scalar.item().toDouble();
  switch (scalar.scalar_type()) {
    case at::kDouble:
      return *scalar.const_data_ptr<double>();
    case at::kFloat:
      return static_cast<double>(*scalar.const_data_ptr<float>());
    default:
      return scalar.item().toDouble();
  }
}

bool is_attention(const ModelGraph& graph, const OperatorGroup& group) {
  return std::any_of(group.nodes.begin(), group.nodes.end(), [&](NodeId node) {
    return std::holds_alternative<Attention>(graph.node(node).attributes);
  });
}

}  // namespace

/// One micro-batch under way.
struct StageExecutor::Flight {
  Flight(std::size_t nodes, std::size_t groups, const std::vector<bool>& needs_gradient)
      : values(nodes),
        edges_left(nodes),
        saved(groups),
        output_gradients(groups),
        slots(needs_gradient) {}

  void clear() {
    for (at::Tensor& value : values) value.reset();
    for (Tensors& tensors : saved) tensors.clear();
    for (at::Tensor& gradient : output_gradients) gradient.reset();
    slots.clear();
    targets.reset();
    held = 0;
    batch = 0;
    kept = NodeId(-1);
  }

  PassContext context;
  at::Tensor targets;
  at::Tensor loss;
  NodeId kept{-1};              ///< the logits, in evaluation
  double held = 0;              ///< as StageExecutor::held() counts
  std::int64_t batch = 0;       ///< samples
  Tensors values;               ///< by node
  std::vector<int> edges_left;  ///< by node: to be taken yet
  std::vector<Tensors> saved;   ///< by group
  Tensors output_gradients;     ///< by group: from B to W
  GradientSlots slots;
};

StageExecutor::StageExecutor(StageModel model, ParameterStore& store,
                             std::shared_ptr<Written> written)
    : model_(std::move(model)),
      forms_(model_),
      store_(store),
      type_(store.operator_type()),
      gradient_written_(std::move(written)) {
  if (!gradient_written_) gradient_written_ = std::make_shared<Written>(store.count());
  HETEROPERF_EXPECT(!model_.groups.empty());
  takes_targets_ = std::holds_alternative<CrossEntropy>(
      model_.graph.node(model_.groups.back().nodes.back()).attributes);
  inside_.resize(model_.graph.nodes().size());
  for (const OperatorGroup& group : model_.groups) {
    for (const NodeId node : group.nodes) inside_[position(node)] = true;
    for (const NodeId node : group.inputs) {
      takes_data_ = takes_data_ || node == model_.graph.input();
    }
  }
  plan_parameters();
  plan_releases();
  plan_gradients();
  plan_profile();
}

StageExecutor::~StageExecutor() = default;

void StageExecutor::plan_parameters() {
  for (const OperatorGroup& group : model_.groups) {
    Tensors parameters, gradients;
    std::vector<std::size_t> ordinals;
    for (const auto& [node, index] : group.parameters) {
      parameters.push_back(store_.parameter(node, index));
      gradients.push_back(store_.gradient(node, index));
      ordinals.push_back(store_.ordinal(node, index));
    }
    parameters_.push_back(std::move(parameters));
    gradients_.push_back(std::move(gradients));
    ordinals_.push_back(std::move(ordinals));
  }
  for (std::size_t g = ordinals_.size(); g-- > 0;) {
    written_parameters_.insert(written_parameters_.end(), ordinals_[g].begin(), ordinals_[g].end());
  }
}

void StageExecutor::plan_releases() {
  const std::size_t none = model_.groups.size();
  released_after_.resize(none);
  std::vector<std::size_t> last_use(inside_.size(), none);
  for (std::size_t g = 0; g < none; ++g) {
    for (const NodeId node : model_.groups[g].inputs) last_use[position(node)] = g;
  }
  used_here_.resize(inside_.size());
  for (std::size_t n = 0; n < last_use.size(); ++n) {
    if (last_use[n] == none) continue;
    used_here_[n] = true;
    released_after_[last_use[n]].push_back(NodeId(static_cast<std::int32_t>(n)));
  }
}

void StageExecutor::plan_gradients() {
  needs_gradient_.resize(inside_.size());
  for (std::size_t n = 0; n < inside_.size(); ++n) {
    needs_gradient_[n] = model_.graph.nodes()[n].differentiable;
  }
  for (const OperatorGroup& group : model_.groups) {
    backward_runs_.push_back(needs_gradient_[position(group.nodes.back())]);
  }
}

void StageExecutor::plan_profile() {
  for (const OperatorGroup& group : model_.groups) {
    std::string kind;
    for (const NodeId node : group.nodes) {
      if (!kind.empty()) kind += '+';
      kind += kind_name(model_.graph.node(node).attributes);
    }
    const auto known = std::find_if(times_.begin(), times_.end(),
                                    [&](const GroupTime& time) { return time.kind == kind; });
    time_of_group_.push_back(static_cast<std::size_t>(known - times_.begin()));
    if (known == times_.end()) times_.push_back({kind});
  }
}

StageExecutor::Flight& StageExecutor::flight(int micro_batch) {
  const auto index = static_cast<std::size_t>(micro_batch);
  if (index >= flights_.size()) flights_.resize(index + 1);
  if (flights_[index]) return *flights_[index];
  if (spare_.empty()) {
    flights_[index] =
        std::make_unique<Flight>(inside_.size(), model_.groups.size(), needs_gradient_);
  } else {
    flights_[index] = std::move(spare_.back());
    spare_.pop_back();
  }
  flights_[index]->edges_left = model_.edges_out;
  return *flights_[index];
}

const StageExecutor::Flight& StageExecutor::flight(int micro_batch) const {
  const auto index = static_cast<std::size_t>(micro_batch);
  HETEROPERF_EXPECT(index < flights_.size() && flights_[index]);
  return *flights_[index];
}

void StageExecutor::release(int micro_batch) {
  const auto index = static_cast<std::size_t>(micro_batch);
  flights_[index]->clear();
  spare_.push_back(std::move(flights_[index]));
}

void StageExecutor::put(int micro_batch, NodeId node, at::Tensor value) {
  Flight& own = flight(micro_batch);
  own.batch = value.size(0);
  own.values[position(node)] = forms_.keep_received(node, std::move(value));
}

void StageExecutor::put_targets(int micro_batch, at::Tensor targets) {
  flight(micro_batch).targets = std::move(targets);
}

double StageExecutor::loss(int micro_batch) const { return to_double(loss_value(micro_batch)); }
const at::Tensor& StageExecutor::loss_value(int micro_batch) const {
  return flight(micro_batch).loss;
}

double StageExecutor::held() const {
  double sum = 0;
  for (const std::unique_ptr<Flight>& flight : flights_) sum += flight ? flight->held : 0.0;
  return sum;
}

void StageExecutor::forward(int micro_batch, const PassContext& context) {
  Flight& own = flight(micro_batch);
  own.context = context;
  own.context.mode = Mode::train;
  run_forward(own);
  own.held = 1;
  if (model_.recomputation != Recomputation::full) return;
  for (Tensors& kept : own.saved) kept.clear();
}

void StageExecutor::recompute(int micro_batch) {
  HETEROPERF_EXPECT(model_.recomputation == Recomputation::full);
  Flight& own = flight(micro_batch);
  const at::Tensor loss = own.loss;
  own.context.pass = heteroperf::Pass::recomputation;
  run_forward(own);
  own.context.pass = heteroperf::Pass::first;
  own.loss = loss;
}

void StageExecutor::run_forward(Flight& own) {
  for (std::size_t g = 0; g < model_.groups.size(); ++g) {
    const ScopedSeconds timed(profile_ == Profile::on ? &times_[time_of_group_[g]].forward_s
                                                      : nullptr);
    at::Tensor output = run_group(own, g);
    const NodeId node = model_.groups[g].nodes.back();
    if (loss_group(g)) {
      own.loss = std::move(output);
    } else {
      own.values[position(node)] = std::move(output);
    }
    let_go(own, g);
  }
}

// What other stages have still to take stays, and what a second forward starts from.
void StageExecutor::let_go(Flight& own, std::size_t g) {
  const bool again = own.context.pass == heteroperf::Pass::recomputation;
  const auto drop = [&](NodeId node) {
    if (node == own.kept) return;
    const std::size_t n = position(node);
    if (inside_[n] ? own.edges_left[n] > 0 && !again
                   : model_.recomputation == Recomputation::full && !again &&
                         own.context.mode == Mode::train) {
      return;
    }
    own.values[n].reset();
  };
  for (const NodeId node : released_after_[g]) drop(node);
  const NodeId output = model_.groups[g].nodes.back();
  if (again && !used_here_[position(output)]) own.values[position(output)].reset();
}

bool StageExecutor::keeps_inputs(std::size_t g) const {
  return model_.recomputation == Recomputation::selective &&
         is_attention(model_.graph, model_.groups[g]);
}

at::Tensor StageExecutor::run_group(Flight& own, std::size_t g) {
  const OperatorGroup& group = model_.groups[g];
  Tensors inputs;
  inputs.reserve(group.inputs.size() + 1);
  for (const NodeId node : group.inputs) inputs.push_back(own.values[position(node)]);
  if (loss_group(g)) inputs.push_back(own.targets);
  PassContext context = own.context;
  context.node = group.nodes.back().value();
  own.saved[g].clear();
  at::Tensor output = group.op->forward(inputs, parameters_[g], own.saved[g], context);
  if (own.context.mode == Mode::evaluate) {
    own.saved[g].clear();
  } else if (keeps_inputs(g)) {
    own.saved[g] = std::move(inputs);
  }
  return forms_.keep(group.nodes.back(), std::move(output), own.batch);
}

bool StageExecutor::gradient_is_summand(std::size_t ordinal) const {
  for (std::size_t g = 0; g < ordinals_.size(); ++g) {
    if (!forms_.works_on_rows(model_.groups[g].nodes.back())) continue;
    if (std::find(ordinals_[g].begin(), ordinals_[g].end(), ordinal) != ordinals_[g].end()) {
      return true;
    }
  }
  return false;
}

at::Tensor StageExecutor::output(int micro_batch, NodeId node) {
  Flight& own = flight(micro_batch);
  const std::size_t n = position(node);
  HETEROPERF_EXPECT(own.values[n].defined() && own.edges_left[n] > 0);
  at::Tensor value =
      --own.edges_left[n] > 0 ? own.values[n] : std::exchange(own.values[n], at::Tensor());
  return forms_.whole(node, std::move(value), own.batch);
}

void StageExecutor::put_gradient(int micro_batch, NodeId node, at::Tensor gradient) {
  at::Tensor own = forms_.keep_received_gradient(node, std::move(gradient));
  if (own.defined()) flight(micro_batch).slots.add(node, std::move(own));
}

at::Tensor StageExecutor::gradient(int micro_batch, NodeId node) {
  Flight& own = flight(micro_batch);
  return forms_.whole_gradient(node, own.slots.take(node), own.batch);
}

void StageExecutor::input_gradient(int micro_batch) {
  Flight& own = flight(micro_batch);
  run_backward(own, Gradients::input);
  own.held -= 0.5;
}

void StageExecutor::backward(int micro_batch) {
  Flight& own = flight(micro_batch);
  run_backward(own, Gradients::both);
  own.held -= 1;
}

void StageExecutor::weight_gradient(int micro_batch) {
  Flight& own = flight(micro_batch);
  for (std::size_t g = model_.groups.size(); g-- > 0;) {
    const ScopedSeconds timed(profile_ == Profile::on ? &times_[time_of_group_[g]].backward_s
                                                      : nullptr);
    if (own.output_gradients[g].defined()) weight_gradient_group(own, g);
  }
  own.held -= 0.5;
}

// The loss's own gradient is 1, which an undefined tensor stands for.
void StageExecutor::run_backward(Flight& own, Gradients which) {
  for (std::size_t g = model_.groups.size(); g-- > 0;) {
    const ScopedSeconds timed(profile_ == Profile::on ? &times_[time_of_group_[g]].backward_s
                                                      : nullptr);
    if (backward_runs_[g]) {
      restore(own, g);
      backward_group(own, g, which);
    }
    if (which == Gradients::both || !own.output_gradients[g].defined()) own.saved[g].clear();
  }
}

void StageExecutor::restore(Flight& own, std::size_t g) {
  if (!keeps_inputs(g)) return;
  const Tensors inputs = std::move(own.saved[g]);
  PassContext context = own.context;
  context.pass = heteroperf::Pass::recomputation;
  context.node = model_.groups[g].nodes.back().value();
  own.saved[g].clear();
  model_.groups[g].op->forward(inputs, parameters_[g], own.saved[g], context);
}

void StageExecutor::backward_group(Flight& own, std::size_t g, Gradients which) {
  const OperatorGroup& group = model_.groups[g];
  const NodeId node = group.nodes.back();
  at::Tensor gradient = forms_.gradient_for_operation(node, own.slots.take(node), own.batch);
  HETEROPERF_EXPECT(gradient.defined() || loss_group(g));
  PassContext context = own.context;
  context.node = node.value();
  SlotSink sink(own.slots, group.inputs);
  if (group.parameters.empty() || which == Gradients::input) {
    group.op->input_gradient(gradient, parameters_[g], own.saved[g], context, sink);
    if (!group.parameters.empty()) own.output_gradients[g] = std::move(gradient);
    return;
  }
  context.accumulation = prepare_gradients(g);
  group.op->backward(gradient, parameters_[g], own.saved[g], context, sink, gradients_[g]);
  tell_gradients(g);
}

void StageExecutor::weight_gradient_group(Flight& own, std::size_t g) {
  const at::Tensor gradient = std::exchange(own.output_gradients[g], at::Tensor());
  PassContext context = own.context;
  context.node = model_.groups[g].nodes.back().value();
  context.accumulation = prepare_gradients(g);
  model_.groups[g].op->weight_gradient(gradient, own.saved[g], context, gradients_[g]);
  own.saved[g].clear();
  tell_gradients(g);
}

void StageExecutor::tell_gradients(std::size_t g) const {
  if (!on_gradient_) return;
  for (const std::size_t ordinal : ordinals_[g]) on_gradient_(ordinal);
}

// An operator has one word for all its gradients, so those it meets first are zeroed when another
// (a weight tied to an earlier group's) is not.
Accumulation StageExecutor::prepare_gradients(std::size_t g) {
  const std::vector<std::size_t>& ordinals = ordinals_[g];
  const bool any_written = std::any_of(ordinals.begin(), ordinals.end(),
                                       [&](std::size_t p) { return (*gradient_written_)[p]; });
  for (std::size_t i = 0; i < ordinals.size(); ++i) {
    if (any_written && !(*gradient_written_)[ordinals[i]]) gradients_[g][i].zero_();
    (*gradient_written_)[ordinals[i]] = true;
  }
  return any_written ? Accumulation::add : Accumulation::overwrite;
}

void StageExecutor::overwrite_gradients() {
  for (const std::size_t ordinal : written_parameters_) (*gradient_written_)[ordinal] = false;
}

BatchScore StageExecutor::evaluate(int micro_batch) {
  Flight& own = flight(micro_batch);
  own.context = PassContext();
  own.context.mode = Mode::evaluate;
  // The loss is the last group and its first input the logits: they outlive the pass.
  NodeId logits(-1);
  if (takes_targets_) {
    HETEROPERF_EXPECT(model_.groups.back().nodes.size() == 1);
    logits = model_.groups.back().inputs.front();
    own.kept = logits;
  }
  run_forward(own);
  if (!takes_targets_) return {};
  const at::Tensor& scores = own.values[position(logits)];
  const bool cut = model_.tensor_group != nullptr && model_.output_is_sharded[position(logits)];
  const std::uint64_t right =
      cut ? count_right(scores, own.targets, model_.first_of_vocabulary[position(logits)],
                        *model_.tensor_group)
          : count_right(scores, own.targets);
  return {to_double(own.loss), static_cast<std::uint64_t>(own.targets.numel()), right};
}

Tensors StageExecutor::buffers() const {
  Tensors all;
  for (const OperatorGroup& group : model_.groups) {
    for (const at::Tensor& buffer : group.op->buffers()) all.push_back(buffer);
  }
  return all;
}

std::vector<std::string> StageExecutor::buffer_names() const {
  std::vector<std::string> names;
  for (const OperatorGroup& group : model_.groups) {
    if (group.op->buffers().empty()) continue;
    for (const NodeId id : group.nodes) {
      const Node& node = model_.graph.node(id);
      if (!std::holds_alternative<BatchNorm>(node.attributes)) continue;
      names.push_back(node.name + ".running_mean");
      names.push_back(node.name + ".running_variance");
    }
  }
  HETEROPERF_EXPECT(names.size() == buffers().size());
  return names;
}

}  // namespace heteroperf
