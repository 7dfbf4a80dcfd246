#include "runners/engine/probe/measure_operations.hpp"

#include <ATen/ops/full_like.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/statistics.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/load_cuda.hpp"
#include "runners/engine/operators/operator.hpp"
#include "runners/engine/operators/operator_group.hpp"
#include "runners/engine/parameters/optimizer.hpp"
#include "runners/engine/parameters/parameter_store.hpp"
#include "runners/engine/pipeline/batch_loader.hpp"
#include "runners/engine/pipeline/gradient_slots.hpp"

namespace heteroperf {
namespace {

constexpr int least_rounds = 5, most_rounds = 200;
constexpr double small_gradient = 1e-3;
constexpr std::uint64_t probe_seed = 1;
/// Models up to this size have all their parameters, as a training has; of others those of the
/// operations that are measured.
constexpr std::uint64_t most_parameters = std::uint64_t{1} << 26;

/// Times work on the host, or by the clock of the device that the host hands it to.
class WorkTimer {
 public:
  explicit WorkTimer(Accelerator* accelerator) : accelerator_(accelerator) {}

  template <class Work>
  double time(Work&& work) const {
    if (accelerator_ == nullptr) {
      const Stopwatch stopwatch;
      work();
      return stopwatch.elapsed_s();
    }
    const auto begin = accelerator_->mark();
    work();
    return accelerator_->mark()->seconds_since(*begin);
  }

 private:
  Accelerator* accelerator_;
};

std::vector<HeldParameter> held_parameters(const OperationProbe& probe,
                                           const std::vector<OperatorGroup>& groups,
                                           const std::vector<std::size_t>& measured) {
  const bool all = probe.graph.parameter_count() <= most_parameters;
  std::vector<bool> wanted(probe.graph.nodes().size(), all);
  for (const std::size_t g : measured) {
    for (const auto& [node, index] : groups[g].parameters) wanted[position(node)] = true;
  }
  std::vector<HeldParameter> held;
  for (std::size_t n = 0; n < wanted.size(); ++n) {
    const std::vector<Parameter>& parameters = probe.graph.nodes()[n].parameters;
    for (std::size_t i = 0; wanted[n] && i < parameters.size(); ++i) {
      held.push_back({NodeId(static_cast<std::int32_t>(n)), i, parameters[i].shape, {}, 0});
    }
  }
  return held;
}

std::vector<bool> differentiable_nodes(const ModelGraph& graph) {
  std::vector<bool> result;
  for (const Node& node : graph.nodes()) result.push_back(node.differentiable);
  return result;
}

/// Seconds of every pass of one operation, round by round.
struct Laps {
  std::vector<double> forward_s, input_gradient_s, weight_gradient_s, backward_s;
};

class OperationRounds {
 public:
  OperationRounds(const OperationProbe& probe, Accelerator* accelerator)
      : probe_(probe),
        timer_(accelerator),
        groups_(make_operator_groups(probe.graph, scalar_type(probe.precision))),
        measured_(measured_groups()),
        store_(probe.graph, held_parameters(probe, groups_, measured_), probe.precision, probe_seed,
               accelerator != nullptr ? cuda_device(*probe.gpu) : at::Device(at::kCPU)),
        optimizer_(probe.recipe, store_),
        slots_(differentiable_nodes(probe.graph)),
        values_(probe.graph.nodes().size()),
        laps_(groups_.size()) {
    take_batch(accelerator);
    tensors_.resize(groups_.size());
    for (const std::size_t g : measured_) {
      for (const auto& [node, index] : groups_[g].parameters) {
        tensors_[g].parameters.push_back(store_.parameter(node, index));
        tensors_[g].gradients.push_back(store_.gradient(node, index));
        tensors_[g].ordinals.push_back(store_.ordinal(node, index));
      }
    }
  }

  OperationProbeResult run() {
    const Stopwatch stopwatch;
    const double seconds = probe_.seconds_each * static_cast<double>(measured_.size());
    round(Gradients::together);  // warms up
    forget();
    int rounds = 0;
    while (rounds < most_rounds && !at_deadline(stopwatch)) {
      if (rounds >= least_rounds && stopwatch.elapsed_s() >= seconds) break;
      round(rounds % 2 == 0 ? Gradients::together : Gradients::apart);
      ++rounds;
    }
    return result(rounds);
  }

 private:
  enum class Gradients { together, apart };
  struct GroupTensors {
    Tensors parameters, gradients, saved;
    std::vector<std::size_t> ordinals;
  };

  NodeId last(std::size_t g) const { return groups_[g].nodes.back(); }
  bool is_loss(std::size_t g) const {
    return std::holds_alternative<CrossEntropy>(probe_.graph.node(last(g)).attributes);
  }
  bool runs_backward(std::size_t g) const { return probe_.graph.node(last(g)).differentiable; }

  bool at_deadline(const Stopwatch& stopwatch) const {
    return stopwatch.elapsed_s() >= probe_.deadline_s || (probe_.stop && probe_.stop());
  }

  /// Groups that stand for all like them. Fusion here and in the plan's operations is the same.
  std::vector<std::size_t> measured_groups() const {
    std::vector<std::size_t> result;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const NodeId as = probe_.model.measured_as[position(last(g))];
      HETEROPERF_EXPECT(as.value() >= 0);
      if (as == last(g)) result.push_back(g);
    }
    HETEROPERF_EXPECT(result.size() == probe_.model.operations.size());
    return result;
  }

  void take_batch(Accelerator* accelerator) {
    const BatchLoader loader(probe_.data, scalar_type(probe_.precision), probe_seed);
    Batch batch = loader.train(0, probe_.samples);
    sample_ = accelerator != nullptr ? accelerator->bring(batch.sample) : batch.sample;
    targets_ = accelerator != nullptr ? accelerator->bring(batch.targets) : batch.targets;
  }

  void forget() {
    for (Laps& laps : laps_) laps = {};
    optimizer_laps_.clear();
  }

  PassContext context(std::size_t g) const {
    PassContext context;
    context.seed = probe_seed;
    context.node = last(g).value();
    context.accumulation = rounds_ % static_cast<std::uint64_t>(probe_.micro_batches) == 0
                               ? Accumulation::overwrite
                               : Accumulation::add;
    return context;
  }

  void round(Gradients how) {
    values_[position(probe_.graph.input())] = sample_;
    for (std::size_t g = 0; g < groups_.size(); ++g) forward(g);
    for (auto g = measured_.rbegin(); g != measured_.rend(); ++g) backward(*g, how);
    slots_.clear();
    for (at::Tensor& value : values_) value.reset();
    update();
    ++rounds_;
  }

  void forward(std::size_t g) {
    at::Tensor& output = values_[position(last(g))];
    const NodeId as = probe_.model.measured_as[position(last(g))];
    if (as != last(g)) {
      output = values_[position(as)];
      return;
    }
    Tensors inputs;
    for (const NodeId node : groups_[g].inputs) inputs.push_back(values_[position(node)]);
    if (is_loss(g)) inputs.push_back(targets_);
    laps_[g].forward_s.push_back(timer_.time([&] {
      output =
          groups_[g].op->forward(inputs, tensors_[g].parameters, tensors_[g].saved, context(g));
    }));
  }

  /// What a group whose users are not measured gets.
  at::Tensor stand_in(const at::Tensor& like) const { return at::full_like(like, small_gradient); }

  at::Tensor output_gradient(std::size_t g) {
    at::Tensor gradient = slots_.take(last(g));
    if (gradient.defined() || is_loss(g)) return gradient;
    return stand_in(values_[position(last(g))]);
  }

  /// In a training a later user of an input has left a gradient there.
  void leave_gradients_of_later_users(std::size_t g) {
    for (const NodeId input : groups_[g].inputs) {
      if (!slots_.needed(input) || slots_.at(input).defined()) continue;
      const bool later = std::any_of(groups_.begin() + static_cast<std::ptrdiff_t>(g) + 1,
                                     groups_.end(), [&](const OperatorGroup& other) {
                                       return std::find(other.inputs.begin(), other.inputs.end(),
                                                        input) != other.inputs.end();
                                     });
      if (later) slots_.add(input, stand_in(values_[position(input)]));
    }
  }

  void backward(std::size_t g, Gradients how) {
    GroupTensors& own = tensors_[g];
    if (runs_backward(g)) {
      leave_gradients_of_later_users(g);
      const at::Tensor gradient = output_gradient(g);
      if (own.parameters.empty()) {
        both(g, gradient, how);
      } else if (how == Gradients::together) {
        laps_[g].backward_s.push_back(timer_.time([&] {
          SlotSink sink(slots_, groups_[g].inputs);
          groups_[g].op->backward(gradient, own.parameters, own.saved, context(g), sink,
                                  own.gradients);
          collect(g);
        }));
      } else {
        apart(g, gradient);
      }
    }
    own.saved.clear();
  }

  void both(std::size_t g, const at::Tensor& gradient, Gradients how) {
    const double seconds = timer_.time([&] {
      SlotSink sink(slots_, groups_[g].inputs);
      groups_[g].op->input_gradient(gradient, tensors_[g].parameters, tensors_[g].saved, context(g),
                                    sink);
    });
    Laps& laps = laps_[g];
    (how == Gradients::together ? laps.backward_s : laps.input_gradient_s).push_back(seconds);
  }

  void apart(std::size_t g, const at::Tensor& gradient) {
    GroupTensors& own = tensors_[g];
    laps_[g].input_gradient_s.push_back(timer_.time([&] {
      SlotSink sink(slots_, groups_[g].inputs);
      groups_[g].op->input_gradient(gradient, own.parameters, own.saved, context(g), sink);
    }));
    laps_[g].weight_gradient_s.push_back(timer_.time([&] {
      groups_[g].op->weight_gradient(gradient, own.saved, context(g), own.gradients);
      collect(g);
    }));
  }

  void collect(std::size_t g) {
    const auto how = context(g).accumulation == Accumulation::overwrite
                         ? ParameterStore::Collect::overwrite
                         : ParameterStore::Collect::add;
    for (const std::size_t ordinal : tensors_[g].ordinals) store_.collect_gradient(ordinal, how);
  }

  /// At a rate so small that the weights stay what they are.
  void update() {
    constexpr double learning_rate = 1e-12;
    double norm = 0;
    const double norm_s = timer_.time([&] { norm = optimizer_.gradient_norm(); });
    if (!std::isfinite(norm)) return;
    optimizer_laps_.push_back(norm_s + timer_.time([&] {
      optimizer_.update(learning_rate, norm);
      store_.publish();
    }));
  }

  static double median_of(const std::vector<double>& seconds) {
    return seconds.empty() ? 0 : median(seconds);
  }

  OperationProbeResult result(int rounds) const {
    OperationProbeResult result;
    for (const std::size_t g : measured_) {
      const Laps& laps = laps_[g];
      result.operations.push_back({median_of(laps.forward_s), median_of(laps.input_gradient_s),
                                   median_of(laps.weight_gradient_s), median_of(laps.backward_s),
                                   rounds >= least_rounds ? rounds : 0});
    }
    if (rounds < least_rounds) return result;
    result.optimizer_s = median_of(optimizer_laps_);
    result.optimizer_elements = store_.elements();
    return result;
  }

  const OperationProbe& probe_;
  WorkTimer timer_;
  std::vector<OperatorGroup> groups_;
  std::vector<std::size_t> measured_;
  ParameterStore store_;
  Optimizer optimizer_;
  GradientSlots slots_;
  Tensors values_;          ///< by node
  std::vector<Laps> laps_;  ///< by group
  std::vector<double> optimizer_laps_;
  std::vector<GroupTensors> tensors_;  ///< by group
  at::Tensor sample_, targets_;
  std::uint64_t rounds_ = 0;
};

}  // namespace

OperationProbeResult measure_operations(const OperationProbe& probe) {
  const RankMemory memory;
  use_threads(probe.threads);
  const MemoryScope charged(memory);
  const c10::InferenceMode no_tape;
  return OperationRounds(probe, probe.gpu ? &use_cuda(*probe.gpu) : nullptr).run();
}

}  // namespace heteroperf
