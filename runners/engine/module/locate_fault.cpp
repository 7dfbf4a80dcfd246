// Which operator of a device is at fault, where a training on it parts from the reference?
//
// The training is repeated with the exact reference, on one rank. Every pass of every layer is then
// also run on the suspect, from the inputs that the reference has: so a difference is that of this
// pass alone, however far an earlier one has grown by then, and the first layer that parts is the
// one at fault. A pass forward has the output to compare; a pass backward, behind a forward pass of
// its own whose saved tensors it needs, the gradients of inputs and parameters; the update has the
// parameters and the optimizer's states.
//
// A difference says something only beside that which rounding makes. Its measure is the *band*: the
// largest distance from the reference among devices that are sound but add the terms of their sums
// in drawn orders, and one rounding of the stored type at least, since few numbers may by chance be
// equal in all of them. Distances are |a - r| / |r| over a whole tensor, so one wrong element
// shows.
//
// The distances of a tensor of few numbers scatter. So a pass that is outside its band is believed
// only if it is also outside that of many more orders, which are drawn for it alone.
//
// Where a pass parts, the suspect's operators are replaced by the reference one at a time. The one
// without which the difference falls back inside is named.
#include "runners/engine/module/torch_engine.hpp"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sub.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/conformance/result_check.hpp"
#include "runners/engine/noise_band.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/load_cuda.hpp"
#include "runners/engine/operators/product.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"
#include "runners/engine/parameters/optimizer.hpp"
#include "runners/engine/pipeline/batch_loader.hpp"
#include "runners/engine/pipeline/gradient_slots.hpp"
#include "runners/engine/pipeline/weight_gradients.hpp"

namespace heteroperf {
namespace {

/// |made − expected| / |expected| over all elements; infinite where `made` is not finite.
double distance(const at::Tensor& made, const at::Tensor& expected) {
  const at::Tensor reference = expected.to(at::kCPU, at::kDouble);
  const double difference =
      at::sub(made.to(at::kCPU, at::kDouble), reference).norm().item().toDouble();
  if (difference == 0) return 0;
  const double relative = difference / reference.norm().item().toDouble();
  return std::isfinite(relative) ? relative : infinite;
}

/// The tensor of a pass that is furthest outside its band.
struct Gap {
  double difference = 0, band = 1;
  double bands() const { return difference == 0 ? 0 : difference / band; }
  // An infinite band holds everything.
  bool parts() const { return difference > parted_bands * band; }
};

Gap widest(const Tensors& made, const Tensors& expected, const std::vector<double>& bands) {
  Gap gap;
  for (std::size_t i = 0; i < made.size(); ++i) {
    const Gap of_tensor{distance(made[i], expected[i]), bands[i]};
    if (of_tensor.bands() > gap.bands()) gap = of_tensor;
  }
  return gap;
}

/// The values of a model and its optimizer, for an update that is thrown away.
struct TrialUpdate {
  TrialUpdate(const TrainingSpec& spec, at::Device memory)
      : store(spec.graph, whole_parameters(spec.graph), spec.precision, spec.seed, memory),
        optimizer(spec.recipe, store) {}
  ParameterStore store;
  Optimizer optimizer;
};

/// A device with operators for its memory, where some of them keep tables.
struct Side {
  Side(ActiveDevice of, const TrainingSpec& spec)
      : device(std::move(of)),
        memory(device.device().on_gpu ? cuda_device(0) : at::Device(at::kCPU)),
        groups(std::make_shared<const std::vector<OperatorGroup>>(
            make_operator_groups(spec.graph, scalar_type(spec.precision)))),
        trial(std::make_shared<TrialUpdate>(spec, memory)) {}

  /// Another device beside it, with the same operators and memory.
  Side with(ActiveDevice other) const {
    Side side = *this;
    side.device = std::move(other);
    return side;
  }

  /// Copies, since an operator may write into what it is given.
  Tensors copies(const Tensors& tensors) const {
    Tensors here;
    for (const at::Tensor& tensor : tensors) {
      here.push_back(tensor.defined()
                         ? canonical(tensor).to(memory, tensor.scalar_type(), false, true)
                         : tensor);
    }
    return here;
  }

  ActiveDevice device;
  at::Device memory;
  std::shared_ptr<const std::vector<OperatorGroup>> groups;
  std::shared_ptr<TrialUpdate> trial;
};

/// The names of all operators that a device may have replaced.
std::vector<std::string> operator_names() {
  std::vector<std::string> names(std::begin(kernel_names), std::end(kernel_names));
  for (const char* name : value_names(ProductOperator())) names.emplace_back(name);
  return names;
}

std::string name_of(const ModelGraph& graph, const OperatorGroup& group) {
  std::string name;
  for (const NodeId node : group.nodes) {
    name += fmt::format("{}{}", name.empty() ? "" : " + ", graph.node(node).name);
  }
  return name;
}

/// The training with the reference, beside which every pass is run on the other devices.
class FaultSearch {
 public:
  FaultSearch(const TrainingSpec& spec, const ActiveDevice& suspect, const RankDevice& sound,
              int runs)
      : spec_(spec),
        store_(spec.graph, spec.precision, spec.seed),
        optimizer_(spec.recipe, store_),
        gradients_(store_),
        loader_(spec.data, store_.operator_type()),
        samples_per_micro_batch_(spec.plan().stages.front().replicas.front().micro_batch),
        reference_(ActiveDevice(exact_device()), spec),
        suspect_(suspect, spec),
        slots_(needed_gradients(spec.graph)),
        values_(spec.graph.nodes().size()) {
    constexpr int times_as_many = 8;
    for (const RankDevice& device : drawn_devices(sound, times_as_many * runs)) {
      auto& sides = static_cast<int>(drawn_.size()) < runs ? drawn_ : doubts_;
      sides.push_back(reference_.with(ActiveDevice(device)));
    }
  }

  std::optional<LocatedFault> run(std::uint64_t steps) {
    while (step_ < steps && !fault_ && train_step()) ++step_;
    return fault_;
  }

 private:
  /// A group, and everything that its passes read.
  struct Position {
    std::size_t group = 0;
    Tensors inputs, parameters;
    PassContext context;
    std::vector<std::size_t> ordinals = {};
    Tensors parameter_gradients = {};  ///< before the pass
    at::Tensor output_gradient = {};
  };

  static std::vector<bool> needed_gradients(const ModelGraph& graph) {
    std::vector<bool> needed;
    for (const Node& node : graph.nodes()) needed.push_back(node.differentiable);
    return needed;
  }

  const std::vector<OperatorGroup>& groups() const { return *reference_.groups; }

  /// False where the reference itself cannot go on.
  bool train_step() {
    gradients_.begin_step();
    for (std::int64_t m = 0; m < spec_.plan().micro_batches; ++m) {
      load(m);
      for (std::size_t g = 0; g < groups().size() && !fault_; ++g) forward(g);
      for (std::size_t g = groups().size(); g-- > 0 && !fault_;) backward(g);
      if (fault_) return true;
      slots_.clear();
    }
    return update();
  }

  void load(std::int64_t micro_batch) {
    const std::uint64_t per_step = spec_.plan().samples_per_step();
    context_.seed = spec_.seed;
    context_.step = step_;
    context_.first_sample = static_cast<std::uint64_t>(micro_batch * samples_per_micro_batch_);
    context_.loss_scale =
        static_cast<double>(samples_per_micro_batch_) / static_cast<double>(per_step);
    if (micro_batch == 0) samples_ = StepSamples(*spec_.data, spec_.seed, step_, per_step);
    context_.first_item = samples_.first_image(context_.first_sample);
    const Batch batch = loader_.train(samples_, context_.first_sample, samples_per_micro_batch_);
    for (const NodeId node : spec_.graph.inputs()) {
      values_[node.index()] = batch.of(std::get<Input>(spec_.graph.node(node).attributes).kind);
    }
    targets_ = batch.targets;
    context_.targets = batch.counted_targets;
    gradients_.begin_pass(all_ordinals(), false);
  }

  std::vector<std::size_t> all_ordinals() const {
    std::vector<std::size_t> ordinals(store_.count());
    for (std::size_t i = 0; i < ordinals.size(); ++i) ordinals[i] = i;
    return ordinals;
  }

  Position position_of(std::size_t g) const {
    const OperatorGroup& group = groups()[g];
    Position position{g, {}, {}, context_};
    const NodeId last = group.nodes.back();
    position.context.node = last.value();
    if (spec_.graph.node(last).items) position.context.first_sample = context_.first_item;
    for (const NodeId node : group.inputs) position.inputs.push_back(values_[node.index()]);
    if (is_loss(g) && targets_.defined()) position.inputs.push_back(targets_);
    for (const auto& [node, index] : group.parameters) {
      position.parameters.push_back(store_.parameter(node, index));
    }
    return position;
  }

  bool is_loss(std::size_t g) const { return groups()[g].nodes.back() == spec_.graph.loss(); }

  void forward(std::size_t g) {
    const Position position = position_of(g);
    const Tensors made =
        watch(name_of(spec_.graph, groups()[g]), LayerPass::forward, [&](Side& side) {
          Tensors saved;
          return Tensors{(*side.groups)[g].op->forward(side.copies(position.inputs),
                                                       side.copies(position.parameters), saved,
                                                       position.context)};
        });
    values_[groups()[g].nodes.back().index()] = made.front();
  }

  void backward(std::size_t g) {
    const OperatorGroup& group = groups()[g];
    if (!slots_.needed(group.nodes.back())) return;
    Position position = position_of(g);
    position.output_gradient = slots_.take(group.nodes.back());
    for (const auto& [node, index] : group.parameters) {
      if (store_.is_frozen(node, index)) continue;
      position.ordinals.push_back(store_.ordinal(node, index));
      position.parameter_gradients.push_back(store_.gradient(node, index));
    }
    position.context.accumulation =
        gradients_.prepare(position.ordinals, position.parameter_gradients);
    const Tensors made = watch(name_of(spec_.graph, group), LayerPass::backward,
                               [&](Side& side) { return gradients_of(side, position); });
    keep(group, position, made);
  }

  /// The gradients of the inputs that need one, and behind them those of the parameters.
  Tensors gradients_of(Side& side, const Position& position) const {
    const OperatorGroup& group = (*side.groups)[position.group];
    const Tensors parameters = side.copies(position.parameters);
    Tensors saved;
    group.op->forward(side.copies(position.inputs), parameters, saved, position.context);
    GradientSlots slots(needed_gradients(spec_.graph));
    for (const NodeId node : group.inputs) {
      slots.at(node) = side.copies({slots_.at(node)}).front();
    }
    SlotSink sink(slots, group);
    const at::Tensor gradient = side.copies({position.output_gradient}).front();
    Tensors of_parameters = side.copies(position.parameter_gradients);
    if (position.ordinals.empty()) {
      group.op->input_gradient(gradient, parameters, saved, position.context, sink);
    } else {
      group.op->backward(gradient, parameters, saved, position.context, sink, of_parameters);
    }
    Tensors made;
    for (const NodeId node : group.inputs) {
      if (slots.needed(node)) made.push_back(slots.at(node));
    }
    made.insert(made.end(), of_parameters.begin(), of_parameters.end());
    return made;
  }

  /// The reference goes on with its own gradients.
  void keep(const OperatorGroup& group, const Position& position, const Tensors& made) {
    auto next = made.begin();
    for (const NodeId node : group.inputs) {
      if (slots_.needed(node)) slots_.at(node) = *next++;
    }
    for (const at::Tensor& gradient : position.parameter_gradients) gradient.copy_(*next++);
    for (const std::size_t ordinal : position.ordinals) collect(ordinal, position.group);
  }

  /// A weight that is tied to an earlier group's is complete behind that.
  void collect(std::size_t ordinal, std::size_t g) {
    for (std::size_t earlier = 0; earlier < g; ++earlier) {
      for (const auto& [node, index] : groups()[earlier].parameters) {
        if (!store_.is_frozen(node, index) && store_.ordinal(node, index) == ordinal) return;
      }
    }
    gradients_.finish(ordinal);
  }

  bool update() {
    const double rate = learning_rate_at(spec_.recipe, step_);
    const auto run = [&](Side& side) { return updated(side, rate); };
    const Tensors made = watch("optimizer", LayerPass::update, run);
    const double norm = made.front().item().toDouble();
    if (!std::isfinite(norm)) return false;
    const DeviceScope scope(reference_.device);
    optimizer_.update(rate, norm);
    return true;
  }

  /// The norm of the gradient, and all parameters and states behind one update.
  Tensors updated(Side& side, double rate) const {
    auto& [store, optimizer] = *side.trial;
    store.master().copy_(store_.master());
    store.reduced_gradient().copy_(store_.reduced_gradient());
    const auto states = optimizer_.states(), trial_states = optimizer.states();
    for (std::size_t i = 0; i < states.size(); ++i) trial_states[i].values.copy_(states[i].values);
    optimizer.restore_updates(optimizer_.updates());
    const double norm = optimizer.gradient_norm();
    if (std::isfinite(norm)) optimizer.update(rate, norm);
    Tensors made{at::scalar_tensor(norm, at::TensorOptions().dtype(at::kDouble)),
                 store.master().clone()};
    for (const Optimizer::State& state : trial_states) made.push_back(state.values.clone());
    return made;
  }

  /// Runs a pass on every side, and returns what the reference makes. The first one that parts is
  /// the fault.
  template <class Run>
  Tensors watch(const std::string& layer, LayerPass pass, const Run& run) {
    const auto on = [&](Side& side) {
      const DeviceScope scope(side.device);
      return run(side);
    };
    const Tensors expected = on(reference_);
    const bool is_update = pass == LayerPass::update;
    std::vector<double> bands(expected.size(), roundoff(is_update ? store_.master().scalar_type()
                                                                  : store_.operator_type()));
    const auto widen = [&](std::vector<Side>& sides) {
      for (Side& side : sides) {
        const Tensors made = on(side);
        for (std::size_t i = 0; i < made.size(); ++i) {
          bands[i] = std::max(bands[i], distance(made[i], expected[i]));
        }
      }
    };
    widen(drawn_);
    const Tensors made = on(suspect_);
    if (!widest(made, expected, bands).parts()) return expected;
    widen(doubts_);
    const Gap gap = widest(made, expected, bands);
    if (!gap.parts()) return expected;
    fault_ = {step_, layer, pass, "", gap.difference, gap.band, gap.difference};
    Gap least = gap;
    for (const std::string& name : operator_names()) {
      Side replaced = suspect_;
      replaced.device.replace(name);
      const Gap left = widest(on(replaced), expected, bands);
      if (left.parts() || left.bands() >= least.bands()) continue;
      least = left;
      fault_->op = name;
      fault_->after = left.difference;
    }
    return expected;
  }

  const TrainingSpec& spec_;
  ParameterStore store_;
  Optimizer optimizer_;
  WeightGradients gradients_;
  BatchLoader loader_;
  StepSamples samples_;
  std::int64_t samples_per_micro_batch_;
  Side reference_, suspect_;
  std::vector<Side> drawn_;
  std::vector<Side> doubts_;  ///< asked where the suspect is outside the band of those

  std::uint64_t step_ = 0;
  PassContext context_;
  GradientSlots slots_;
  Tensors values_;  ///< by node
  at::Tensor targets_;
  std::optional<LocatedFault> fault_;
};

}  // namespace

std::optional<LocatedFault> locate_fault(const TrainingSpec& spec, const ActiveDevice& suspect,
                                         const RankDevice& sound, int runs, std::uint64_t steps) {
  HETEROPERF_EXPECT(spec.plan().ranks() == 1);
  const ProductScope products(spec.products.get());
  const RankMemory memory;
  use_threads(spec.threads);
  const MemoryScope charged(memory);
  const c10::InferenceMode no_tape;
  return FaultSearch(spec, suspect, sound, runs).run(steps);
}

}  // namespace heteroperf
