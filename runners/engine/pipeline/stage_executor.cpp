// A stage is a list of *groups* of nodes, each run by one operator. The executor runs them forwards
// and backwards for several micro-batches at a time; all that it keeps of one of them is a
// *flight*. The lifetime of every tensor is planned once, in the constructor: after which group a
// value is let go (plan_releases), and after which group a parameter's gradient is complete
// (plan_parameters). The passes themselves only follow these
// plans.
#include "runners/engine/pipeline/stage_executor.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/pipeline/gradient_slots.hpp"

namespace heteroperf {
namespace {

/// A loss, which is float or double.
double to_double(const at::Tensor& scalar) {
  if (scalar.is_cuda()) return scalar.item().toDouble();
  return scalar.scalar_type() == at::kDouble ? *scalar.const_data_ptr<double>()
                                             : static_cast<double>(*scalar.const_data_ptr<float>());
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
    counted_targets.reset();
    held = 0;
    batch = 0;
    items.clear();
    kept = NodeId(-1);
  }

  PassContext context;
  at::Tensor targets;
  std::optional<std::int64_t> counted_targets;  ///< as PassContext::targets
  at::Tensor loss;
  NodeId kept{-1};         ///< the logits, in evaluation
  double held = 0;         ///< as StageExecutor::held() counts
  std::int64_t batch = 0;  ///< samples
  /// By input whose items samples have any number of: all the samples'.
  std::map<NodeId, std::int64_t> items;
  Tensors values;               ///< by node
  std::vector<int> edges_left;  ///< by node: to be taken yet
  std::vector<Tensors> saved;   ///< by group
  Tensors output_gradients;     ///< by group: from B to W
  GradientSlots slots;
};

StageExecutor::StageExecutor(StageModel model, ParameterStore& store)
    : StageExecutor(std::move(model), std::make_shared<WeightGradients>(store)) {}

StageExecutor::StageExecutor(StageModel model, std::shared_ptr<WeightGradients> gradients,
                             StepClock* clock)
    : model_(std::move(model)), forms_(model_, clock), gradients_(std::move(gradients)) {
  HETEROPERF_EXPECT(!model_.groups.empty());
  const OperatorGroup& last = model_.groups.back();
  const Attributes& kind = model_.graph.node(last.nodes.back()).attributes;
  has_loss_ = is_loss(kind);
  set_loss_ = dynamic_cast<SetLoss*>(last.op.get());
  // The graph knows which outputs depend on a parameter; only these have a gradient.
  for (const Node& node : model_.graph.nodes()) needs_gradient_.push_back(node.differentiable);
  inside_.resize(model_.graph.nodes().size());
  for (const OperatorGroup& group : model_.groups) {
    for (const NodeId node : group.nodes) inside_[node.index()] = true;
    for (const NodeId node : group.inputs) {
      const bool known =
          std::find(data_inputs_.begin(), data_inputs_.end(), node) != data_inputs_.end();
      if (!known && std::holds_alternative<Input>(model_.graph.node(node).attributes))
        data_inputs_.push_back(node);
    }
  }
  find_what_is_elsewhere();
  takes_targets_ = heteroperf::takes_targets(kind) && !elsewhere_[last.nodes.back().index()];
  plan_parameters();
  plan_releases();
}

StageExecutor::~StageExecutor() = default;

// Ranks with later parts of sequences pool vectors for the first one, and have none behind that.
void StageExecutor::find_what_is_elsewhere() {
  elsewhere_.resize(model_.graph.nodes().size());
  if (model_.shard == nullptr) return;
  for (std::size_t n = 0; n < elsewhere_.size(); ++n) {
    const bool pools_here = inside_[n] && model_.shard->pools_part(NodeId(n));
    elsewhere_[n] = model_.shard->is_elsewhere(NodeId(n)) && !pools_here;
  }
}

// A backward pass runs the groups from the last to the first, so a parameter that several groups
// use is complete after the first of them.
void StageExecutor::plan_parameters() {
  const ParameterStore& store = gradients_->store();
  for (const OperatorGroup& group : model_.groups) {
    Tensors parameters, gradients;
    std::vector<std::size_t> ordinals;
    for (const auto& [node, index] : group.parameters) {
      parameters.push_back(store.parameter(node, index));
      if (store.is_frozen(node, index)) continue;
      gradients.push_back(store.gradient(node, index));
      ordinals.push_back(store.ordinal(node, index));
    }
    // An operator makes the gradients of all its parameters or of none.
    HETEROPERF_EXPECT(ordinals.empty() || ordinals.size() == parameters.size());
    parameters_.push_back(std::move(parameters));
    parameter_gradients_.push_back(std::move(gradients));
    ordinals_.push_back(std::move(ordinals));
  }
  for (std::size_t g = ordinals_.size(); g-- > 0;) {
    written_parameters_.insert(written_parameters_.end(), ordinals_[g].begin(), ordinals_[g].end());
  }
  std::vector<bool> written(store.count());
  for (const std::vector<std::size_t>& ordinals : ordinals_) {
    std::vector<std::size_t>& finished = finished_after_.emplace_back();
    for (const std::size_t ordinal : ordinals) {
      if (!written[ordinal]) finished.push_back(ordinal);
      written[ordinal] = true;
    }
  }
}

// A value is let go after the last group that takes it. Values that nobody here takes are outputs.
void StageExecutor::plan_releases() {
  const std::size_t none = model_.groups.size();
  released_after_.resize(none);
  std::vector<std::size_t> last_use(inside_.size(), none);
  for (std::size_t g = 0; g < none; ++g) {
    for (const NodeId node : model_.groups[g].inputs) last_use[node.index()] = g;
  }
  used_here_.resize(inside_.size());
  for (std::size_t n = 0; n < last_use.size(); ++n) {
    if (last_use[n] == none) continue;
    used_here_[n] = true;
    released_after_[last_use[n]].push_back(NodeId(n));
  }
}

// Flights are used again, so that a step in steady state allocates nothing but tensors.
StageExecutor::Flight& StageExecutor::flight(MicroBatchId micro_batch) {
  if (!flights_.contains(micro_batch)) flights_.resize(micro_batch.index() + 1);
  if (flights_[micro_batch]) return *flights_[micro_batch];
  if (spare_.empty()) {
    flights_[micro_batch] =
        std::make_unique<Flight>(inside_.size(), model_.groups.size(), needs_gradient_);
  } else {
    flights_[micro_batch] = std::move(spare_.back());
    spare_.pop_back();
  }
  flights_[micro_batch]->edges_left = model_.edges_out;
  return *flights_[micro_batch];
}

void StageExecutor::release(MicroBatchId micro_batch) {
  flights_[micro_batch]->clear();
  spare_.push_back(std::move(flights_[micro_batch]));
}

void StageExecutor::put(MicroBatchId micro_batch, NodeId node, at::Tensor value) {
  Flight& flight = this->flight(micro_batch);
  const std::optional<NodeId> items = model_.graph.node(node).items;
  if (!elsewhere_[node.index()]) {
    (items ? flight.items[*items] : flight.batch) = value.size(0);
  }
  flight.values[node.index()] = forms_.keep_received(node, std::move(value));
}

void StageExecutor::put_targets(MicroBatchId micro_batch, at::Tensor targets,
                                std::optional<std::int64_t> counted) {
  Flight& flight = this->flight(micro_batch);
  flight.targets = std::move(targets);
  flight.counted_targets = counted;
}

std::optional<std::int64_t> StageExecutor::counted_targets(MicroBatchId micro_batch) const {
  return flights_[micro_batch]->counted_targets;
}

double StageExecutor::loss(MicroBatchId micro_batch) { return to_double(loss_value(micro_batch)); }
const at::Tensor& StageExecutor::loss_value(MicroBatchId micro_batch) {
  return flight(micro_batch).loss;
}

double StageExecutor::held() const {
  double sum = 0;
  for (const std::unique_ptr<Flight>& flight : flights_) sum += flight ? flight->held : 0.0;
  return sum;
}

// With full recomputation the first pass keeps nothing but the inputs of the stage. What has no
// gradient keeps nothing.
void StageExecutor::forward(MicroBatchId micro_batch, const PassContext& context) {
  Flight& flight = this->flight(micro_batch);
  flight.context = context;
  const bool again = context.pass == heteroperf::Pass::recomputation;
  for (std::size_t g = 0; g < model_.groups.size(); ++g) {
    // The loss of a set is made when the whole set is forward, and its gradients stay.
    if (loss_group(g) && set_loss_ != nullptr) {
      if (again) let_go(flight, g);
      break;
    }
    const NodeId node = model_.groups[g].nodes.back();
    Tensors inputs = inputs_of(flight, g), &saved = flight.saved[g];
    saved.clear();
    if (batch_of(flight, node) == 0) {
      const at::Tensor nothing = nothing_of(node);
      if (loss_group(g)) {
        flight.loss = nothing.new_zeros({1}, nothing.options().dtype(at::kDouble));
      } else {
        flight.values[node.index()] = nothing;
      }
      let_go(flight, g);
      continue;
    }
    begin_timing();
    at::Tensor output =
        model_.groups[g].op->forward(inputs, parameters_[g], saved, context_of(flight, g));
    end_timing(g, GroupPass::forward);
    if (context.mode == Mode::evaluate || !needs_gradient_[node.index()]) {
      saved.clear();
    } else if (keeps_inputs(g)) {
      saved = std::move(inputs);
    }
    inputs.clear();
    output = forms_.keep(node, std::move(output), batch_of(flight, node));
    (loss_group(g) ? flight.loss : flight.values[node.index()]) = std::move(output);
    let_go(flight, g);
  }
  if (context.mode == Mode::evaluate) return;
  flight.held = 1;
  if (again || model_.recomputation != Recomputation::full) return;
  for (Tensors& kept : flight.saved) kept.clear();
}

BatchScore StageExecutor::interact(std::span<const MicroBatchId> set, Mode mode,
                                   Communicator* group) {
  const std::size_t g = model_.groups.size() - 1;
  std::vector<Tensors> inputs;
  for (const MicroBatchId micro_batch : set) inputs.push_back(inputs_of(flight(micro_batch), g));
  std::vector<SetPass> passes;
  for (std::size_t i = 0; i < set.size(); ++i) {
    passes.push_back({inputs[i], flight(set[i]).saved[g]});
  }
  begin_timing();
  const SetScores scores = set_loss_->forward_set(passes, parameters_[g], mode, group);
  end_timing(g, GroupPass::forward);
  for (std::size_t i = 0; i < set.size(); ++i) {
    flight(set[i]).loss = scores.losses[i];
    let_go(flight(set[i]), g);
  }
  if (mode == Mode::train) return {};
  BatchScore score;
  for (const MicroBatchId micro_batch : set) {
    const Flight& flight = this->flight(micro_batch);
    const std::int64_t pairs = batch_of(flight, model_.groups[g].nodes.back());
    score.targets += static_cast<std::uint64_t>(pairs);
    score.loss += to_double(flight.loss) * static_cast<double>(pairs);
  }
  if (score.targets > 0) score.loss /= static_cast<double>(score.targets);
  score.correct = static_cast<std::uint64_t>(scores.right.sum().item().toLong());
  return score;
}

// The loss was read already: its value is that of the first pass.
void StageExecutor::recompute(MicroBatchId micro_batch) {
  HETEROPERF_EXPECT(model_.recomputation == Recomputation::full);
  Flight& flight = this->flight(micro_batch);
  const at::Tensor loss = flight.loss;
  PassContext again = flight.context;
  again.pass = heteroperf::Pass::recomputation;
  forward(micro_batch, again);
  flight.context.pass = heteroperf::Pass::first;
  flight.loss = loss;
}

Tensors StageExecutor::inputs_of(const Flight& flight, std::size_t g) const {
  Tensors inputs;
  inputs.reserve(model_.groups[g].inputs.size() + 1);
  for (const NodeId node : model_.groups[g].inputs) inputs.push_back(flight.values[node.index()]);
  if (takes_targets_ && loss_group(g)) inputs.push_back(flight.targets);
  return inputs;
}

PassContext StageExecutor::context_of(const Flight& flight, std::size_t g) const {
  PassContext context = flight.context;
  const NodeId node = model_.groups[g].nodes.back();
  context.node = node.value();
  if (model_.graph.node(node).items) context.first_sample = context.first_item;
  context.targets = flight.counted_targets;
  // In training nobody knows yet how many count in the whole step, so the loss stays a sum.
  if (context.targets && context.mode == Mode::train) context.targets = 1;
  return context;
}

std::int64_t StageExecutor::batch_of(const Flight& flight, NodeId node) const {
  if (elsewhere_[node.index()]) return 0;
  const std::optional<NodeId> items = model_.graph.node(node).items;
  if (!items) return flight.batch;
  const auto known = flight.items.find(*items);
  HETEROPERF_EXPECT(known != flight.items.end());
  return known->second;
}

at::Tensor StageExecutor::nothing_of(NodeId node) const {
  Shape shape = model_.graph.node(node).output;
  shape.insert(shape.begin(), 0);
  const ParameterStore& store = gradients_->store();
  return at::empty(shape, at::TensorOptions().dtype(store.operator_type()).device(store.device()));
}

void StageExecutor::begin_timing() const {
  if (timer_ != nullptr) timer_->begin();
}
void StageExecutor::end_timing(std::size_t g, GroupPass pass) const {
  if (timer_ != nullptr) timer_->end(g, pass);
}

// Values that other stages have still to take stay, and those that a second forward starts from.
void StageExecutor::let_go(Flight& flight, std::size_t g) {
  const bool again = flight.context.pass == heteroperf::Pass::recomputation;
  const auto drop = [&](NodeId node) {
    if (node == flight.kept) return;
    const std::size_t n = node.index();
    if (inside_[n] ? flight.edges_left[n] > 0 && !again
                   : model_.recomputation == Recomputation::full && !again &&
                         flight.context.mode == Mode::train) {
      return;
    }
    flight.values[n].reset();
  };
  for (const NodeId node : released_after_[g]) drop(node);
  const NodeId output = model_.groups[g].nodes.back();
  if (again && !used_here_[output.index()]) flight.values[output.index()].reset();
}

bool StageExecutor::keeps_inputs(std::size_t g) const {
  if (model_.recomputation != Recomputation::selective) return false;
  const std::vector<NodeId>& nodes = model_.groups[g].nodes;
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](NodeId node) { return is_attention(model_.graph.node(node).attributes); });
}

// With sequence parallelism a norm sees only this rank's rows: the gradient of its weights is a
// summand.
bool StageExecutor::gradient_is_summand(std::size_t ordinal) const {
  for (std::size_t g = 0; g < ordinals_.size(); ++g) {
    if (!forms_.works_on_rows(model_.groups[g].nodes.back())) continue;
    if (std::find(ordinals_[g].begin(), ordinals_[g].end(), ordinal) != ordinals_[g].end()) {
      return true;
    }
  }
  return false;
}

// The last edge that takes an output gets the executor's own handle, so that nobody else holds it.
at::Tensor StageExecutor::output(MicroBatchId micro_batch, NodeId node) {
  Flight& flight = this->flight(micro_batch);
  const std::size_t n = node.index();
  HETEROPERF_EXPECT(flight.values[n].defined() && flight.edges_left[n] > 0);
  at::Tensor value =
      --flight.edges_left[n] > 0 ? flight.values[n] : std::exchange(flight.values[n], at::Tensor());
  return forms_.whole(node, std::move(value), batch_of(flight, node));
}

void StageExecutor::put_gradient(MicroBatchId micro_batch, NodeId node, at::Tensor gradient) {
  at::Tensor summand = forms_.keep_received_gradient(node, std::move(gradient));
  if (summand.defined()) flight(micro_batch).slots.add(node, std::move(summand));
}

at::Tensor StageExecutor::gradient(MicroBatchId micro_batch, NodeId node) {
  Flight& flight = this->flight(micro_batch);
  return forms_.whole_gradient(node, flight.slots.take(node), batch_of(flight, node));
}

void StageExecutor::input_gradient(MicroBatchId micro_batch) {
  Flight& flight = this->flight(micro_batch);
  run_backward(flight, Gradients::input);
  flight.held -= 0.5;
}

void StageExecutor::backward(MicroBatchId micro_batch) {
  Flight& flight = this->flight(micro_batch);
  run_backward(flight, Gradients::both);
  flight.held -= 1;
}

// W: the gradients of outputs wait here since B. Groups without parameters in training have none.
void StageExecutor::weight_gradient(MicroBatchId micro_batch) {
  Flight& flight = this->flight(micro_batch);
  for (std::size_t g = model_.groups.size(); g-- > 0;) {
    if (flight.output_gradients[g].defined()) weight_gradient_group(flight, g);
  }
  flight.held -= 0.5;
}

// The loss's flight gradient is 1, which an undefined tensor stands for.
void StageExecutor::run_backward(Flight& flight, Gradients which) {
  for (std::size_t g = model_.groups.size(); g-- > 0;) {
    if (needs_gradient_[model_.groups[g].nodes.back().index()]) {
      restore(flight, g);
      backward_group(flight, g, which);
    }
    if (which == Gradients::both || !flight.output_gradients[g].defined()) flight.saved[g].clear();
  }
}

// Selective recomputation: the group kept its inputs, from which a second forward makes the rest.
void StageExecutor::restore(Flight& flight, std::size_t g) {
  if (!keeps_inputs(g) || batch_of(flight, model_.groups[g].nodes.back()) == 0) return;
  const Tensors inputs = std::move(flight.saved[g]);
  PassContext context = context_of(flight, g);
  context.pass = heteroperf::Pass::recomputation;
  flight.saved[g].clear();
  model_.groups[g].op->forward(inputs, parameters_[g], flight.saved[g], context);
}

void StageExecutor::backward_group(Flight& flight, std::size_t g, Gradients which) {
  const OperatorGroup& group = model_.groups[g];
  const NodeId node = group.nodes.back();
  if (batch_of(flight, node) == 0) return backward_nothing(flight, g, which);
  at::Tensor gradient =
      forms_.gradient_for_operation(node, flight.slots.take(node), batch_of(flight, node));
  HETEROPERF_EXPECT(gradient.defined() || loss_group(g));
  PassContext context = context_of(flight, g);
  SlotSink sink(flight.slots, group);
  const bool both = which == Gradients::both;
  const bool has_weights = !ordinals_[g].empty();
  if (!has_weights || !both) {
    begin_timing();
    group.op->input_gradient(gradient, parameters_[g], flight.saved[g], context, sink);
    end_timing(g, both ? GroupPass::backward : GroupPass::input_gradient);
    // What waits for W is defined: an undefined gradient would say that there is nothing to do.
    if (has_weights) {
      flight.output_gradients[g] =
          gradient.defined() ? std::move(gradient) : at::ones_like(flight.loss);
    }
    return;
  }
  context.accumulation = gradients_->prepare(ordinals_[g], parameter_gradients_[g]);
  begin_timing();
  group.op->backward(gradient, parameters_[g], flight.saved[g], context, sink,
                     parameter_gradients_[g]);
  finish_gradients(g, GroupPass::backward);
}

// Samples without items have nothing to compute: inputs have gradients of no rows, and weights,
// which the last pass of a step must find written, none.
void StageExecutor::backward_nothing(Flight& flight, std::size_t g, Gradients which) {
  const OperatorGroup& group = model_.groups[g];
  SlotSink sink(flight.slots, group);
  for (std::size_t i = 0; i < group.inputs.size(); ++i) {
    if (sink.wanted(i)) sink.put(i, nothing_of(group.inputs[i]));
  }
  if (ordinals_[g].empty()) return;
  flight.output_gradients[g] = nothing_of(group.nodes.back());
  if (which == Gradients::both) weight_gradient_group(flight, g);
}

void StageExecutor::weight_gradient_group(Flight& flight, std::size_t g) {
  const at::Tensor gradient = std::exchange(flight.output_gradients[g], at::Tensor());
  if (batch_of(flight, model_.groups[g].nodes.back()) == 0) {
    const Accumulation way = gradients_->prepare(ordinals_[g], parameter_gradients_[g]);
    for (const at::Tensor& sum : parameter_gradients_[g]) {
      if (way == Accumulation::overwrite) sum.zero_();
    }
    for (const std::size_t ordinal : finished_after_[g]) gradients_->finish(ordinal);
    return;
  }
  PassContext context = context_of(flight, g);
  context.accumulation = gradients_->prepare(ordinals_[g], parameter_gradients_[g]);
  begin_timing();
  model_.groups[g].op->weight_gradient(gradient, flight.saved[g], context, parameter_gradients_[g]);
  flight.saved[g].clear();
  finish_gradients(g, GroupPass::weight_gradient);
}

void StageExecutor::finish_gradients(std::size_t g, GroupPass pass) {
  for (const std::size_t ordinal : finished_after_[g]) gradients_->finish(ordinal);
  end_timing(g, pass);
}

// On the stage of the loss the logits are kept through the pass and counted behind it.
BatchScore StageExecutor::evaluate(MicroBatchId micro_batch) {
  Flight& flight = this->flight(micro_batch);
  PassContext context;
  context.mode = Mode::evaluate;
  // The loss is the last group and its first input the logits: they outlive the pass.
  NodeId logits(-1);
  if (takes_targets_) {
    HETEROPERF_EXPECT(model_.groups.back().nodes.size() == 1);
    logits = model_.groups.back().inputs.front();
    flight.kept = logits;
  }
  forward(micro_batch, context);
  if (!takes_targets_) return {};
  const at::Tensor& scores = flight.values[logits.index()];
  const bool cut =
      model_.tensor_group != nullptr && model_.shard->output_is_sharded[logits.index()];
  // A row of values is neither right nor wrong.
  const std::uint64_t right =
      flight.targets.is_floating_point() ? 0
      : cut ? count_right(scores, flight.targets, model_.shard->first_of_vocabulary[logits.index()],
                          *model_.tensor_group)
            : count_right(scores, flight.targets);
  const std::int64_t targets = flight.counted_targets.value_or(flight.targets.numel());
  return {to_double(flight.loss), static_cast<std::uint64_t>(targets), right};
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
