// Measures operations inside the loop that training uses: a StageExecutor runs one stage, made of
// the groups that stand for all like them, and a GroupTimer times their passes. The groups that are
// left out are other stages to it: the outputs that measured groups read of them are put in, and so
// are the gradients that they would give. So neither time nor memory grow with the depth of the
// model.
#include "runners/engine/probe/measure_operations.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "metrics/statistics.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/load_cuda.hpp"
#include "runners/engine/operators/product.hpp"
#include "runners/engine/parameters/optimizer.hpp"
#include "runners/engine/pipeline/batch_loader.hpp"
#include "runners/engine/pipeline/stage_executor.hpp"

namespace heteroperf {
namespace {

constexpr int least_rounds = 5, most_rounds = 200;
constexpr double small_value = 1e-3;
constexpr std::uint64_t probe_seed = 1;
/// Models up to this size have all their parameters, as a training has; larger ones only those of
/// the operations that are measured.
constexpr std::uint64_t most_parameters = std::uint64_t{1} << 26;

/// Notes the seconds of every pass of every group, by the host's clock or by that of the device
/// that the host hands the work to.
class PassTimes final : public GroupTimer {
 public:
  PassTimes(std::size_t groups, Accelerator* accelerator)
      : accelerator_(accelerator), seconds_(groups) {}

  void begin() override {
    if (accelerator_ != nullptr) mark_ = accelerator_->mark();
    stopwatch_ = Stopwatch();
  }
  double since_begin_s() const {
    return accelerator_ != nullptr ? accelerator_->mark()->seconds_since(*mark_)
                                   : stopwatch_.elapsed_s();
  }
  void end(std::size_t group, GroupPass pass) override {
    seconds_[group][static_cast<std::size_t>(pass)].push_back(since_begin_s());
  }

  double median_s(std::size_t group, GroupPass pass) const {
    const std::vector<double>& seconds = seconds_[group][static_cast<std::size_t>(pass)];
    return seconds.empty() ? 0 : median(seconds);
  }
  void forget() { seconds_.assign(seconds_.size(), {}); }

 private:
  Accelerator* accelerator_;
  Stopwatch stopwatch_;
  std::unique_ptr<Accelerator::Mark> mark_;
  std::vector<std::array<std::vector<double>, 4>> seconds_;  ///< by group and GroupPass
};

/// The part of a model that is measured: groups that stand for all like them. Fusion here and in
/// the plan's operations is the same.
struct MeasuredPart {
  explicit MeasuredPart(const OperationProbe& probe)
      : stage(whole_model(probe.graph, scalar_type(probe.precision), Fusion::on)) {
    const auto stands_in = [&](const OperatorGroup& group) {
      const NodeId last = group.nodes.back(), as = probe.model.measured_as[last.index()];
      HETEROPERF_EXPECT(as.value() >= 0);
      return as != last;
    };
    // The last user of each node's output, and the last one that is measured; −1: there is none.
    std::vector<int> last_user(probe.graph.nodes().size(), -1), last_measured_user = last_user;
    std::vector<bool> made(probe.graph.nodes().size());
    for (std::size_t g = 0; g < stage.groups.size(); ++g) {
      const bool measured = !stands_in(stage.groups[g]);
      if (measured) made[stage.groups[g].nodes.back().index()] = true;
      for (const NodeId input : stage.groups[g].inputs) {
        last_user[input.index()] = static_cast<int>(g);
        if (measured) last_measured_user[input.index()] = static_cast<int>(g);
      }
    }
    std::erase_if(stage.groups, stands_in);
    HETEROPERF_EXPECT(stage.groups.size() == probe.model.operations.size());
    for (std::size_t n = 0; n < made.size(); ++n) {
      const NodeId node(static_cast<std::int32_t>(n));
      const bool read = last_measured_user[n] >= 0;
      const bool data = std::holds_alternative<Input>(probe.graph.node(node).attributes);
      if (read && !made[n] && !data) received.push_back(node);
      if (made[n] && !read && last_user[n] >= 0) {
        given.push_back(node);
        stage.edges_out[n] = 1;
      }
      const bool used_later = last_user[n] > last_measured_user[n];
      if ((read || made[n]) && used_later && probe.graph.node(node).differentiable) {
        returned.push_back(node);
      }
    }
  }

  StageModel stage;
  std::vector<NodeId> received;  ///< outputs of groups that are left out
  std::vector<NodeId> given;     ///< outputs that only groups that are left out read
  /// Nodes that, in a training, have a gradient of a later user before a measured one adds its own.
  std::vector<NodeId> returned;
};

std::vector<HeldParameter> held_parameters(const OperationProbe& probe,
                                           const std::vector<OperatorGroup>& measured) {
  std::vector<HeldParameter> held = whole_parameters(probe.graph);
  if (probe.graph.parameter_count() <= most_parameters) return held;
  std::set<NodeId> wanted;
  for (const OperatorGroup& group : measured) {
    for (const auto& [node, index] : group.parameters) wanted.insert(node);
  }
  std::erase_if(held,
                [&](const HeldParameter& parameter) { return !wanted.contains(parameter.node); });
  return held;
}

class OperationRounds {
 public:
  OperationRounds(const OperationProbe& probe, Accelerator* accelerator)
      : probe_(probe),
        part_(probe),
        store_(probe.graph, held_parameters(probe, part_.stage.groups), probe.precision, probe_seed,
               accelerator != nullptr ? cuda_device(*probe.gpu) : at::Device(at::kCPU)),
        optimizer_(probe.recipe, store_),
        gradients_(std::make_shared<WeightGradients>(store_)),
        executor_(std::move(part_.stage), gradients_),
        times_(groups(), accelerator) {
    executor_.time_groups(&times_);
    const BatchLoader loader(probe_.data, store_.operator_type());
    const StepSamples samples(*probe_.data, probe_seed, 0,
                              static_cast<std::uint64_t>(probe_.samples));
    batch_ = loader.train(samples, 0, probe_.samples);
    if (accelerator != nullptr) {
      for (at::Tensor* part : {&batch_.images, &batch_.tokens, &batch_.targets}) {
        if (part->defined()) *part = accelerator->bring(*part);
      }
    }
    values_.resize(probe.graph.nodes().size());
    const auto options = at::TensorOptions().dtype(store_.operator_type()).device(store_.device());
    for (const std::vector<NodeId>* nodes : {&part_.received, &part_.returned}) {
      for (const NodeId node : *nodes) {
        Shape shape = probe.graph.node(node).output;
        const bool of_items = probe.graph.node(node).items.has_value();
        shape.insert(shape.begin(), of_items ? batch_.images.size(0) : probe.samples);
        values_[node.index()] = canonical(at::full(shape, small_value, options));
      }
    }
  }

  OperationProbeResult run() {
    const Stopwatch stopwatch;
    const double seconds = probe_.seconds_each * static_cast<double>(groups());
    round(Gradients::together);  // warms up
    times_.forget();
    optimizer_laps_.clear();
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

  std::size_t groups() const { return executor_.model().groups.size(); }

  bool at_deadline(const Stopwatch& stopwatch) const {
    return stopwatch.elapsed_s() >= probe_.deadline_s || (probe_.stop && probe_.stop());
  }

  void round(Gradients how) {
    if (rounds_++ % static_cast<std::uint64_t>(probe_.micro_batches) == 0) gradients_->begin_step();
    gradients_->begin_pass(executor_.written_parameters(), false);
    for (const NodeId node : executor_.data_inputs()) {
      executor_.put(0, node, batch_.of(std::get<Input>(probe_.graph.node(node).attributes).kind));
    }
    executor_.put_targets(0, batch_.targets, batch_.counted_targets);
    for (const NodeId node : part_.received) executor_.put(0, node, values_[node.index()]);
    PassContext context;
    context.seed = probe_seed;
    executor_.forward(0, context);
    const MicroBatchId alone(0);
    if (executor_.interacts()) executor_.interact({&alone, 1}, context.mode, nullptr);
    for (const NodeId node : part_.given) executor_.output(0, node);
    for (const NodeId node : part_.returned) {
      executor_.put_gradient(0, node, at::full_like(values_[node.index()], small_value));
    }
    if (how == Gradients::together) {
      executor_.backward(0);
    } else {
      executor_.input_gradient(0);
      executor_.weight_gradient(0);
    }
    executor_.release(0);
    update();
  }

  /// The rate is so small that the weights stay what they are.
  void update() {
    constexpr double learning_rate = 1e-12;
    times_.begin();
    const double norm = optimizer_.gradient_norm();
    if (!std::isfinite(norm)) return;
    optimizer_.update(learning_rate, norm);
    store_.publish();
    optimizer_laps_.push_back(times_.since_begin_s());
  }

  OperationProbeResult result(int rounds) const {
    OperationProbeResult result;
    for (std::size_t g = 0; g < groups(); ++g) {
      const auto pass_s = [&](GroupPass pass) { return times_.median_s(g, pass); };
      result.operations.push_back({pass_s(GroupPass::forward), pass_s(GroupPass::input_gradient),
                                   pass_s(GroupPass::weight_gradient), pass_s(GroupPass::backward),
                                   rounds >= least_rounds ? rounds : 0});
    }
    if (rounds < least_rounds) return result;
    result.optimizer_s = optimizer_laps_.empty() ? 0 : median(optimizer_laps_);
    result.optimizer_elements = store_.elements();
    return result;
  }

  const OperationProbe& probe_;
  MeasuredPart part_;  ///< its stage is the executor's
  ParameterStore store_;
  Optimizer optimizer_;
  std::shared_ptr<WeightGradients> gradients_;
  StageExecutor executor_;
  PassTimes times_;
  Batch batch_;
  Tensors values_;  ///< by node: an output of a group that is left out, or its shape
  std::vector<double> optimizer_laps_;
  std::uint64_t rounds_ = 0;
};

}  // namespace

OperationProbeResult measure_operations(const OperationProbe& probe) {
  // A plan is for runs, which take the fastest ways.
  constexpr double choosing_s = 0.5, choosing_share = 0.1;
  const Stopwatch stopwatch;
  const ProductChoices products =
      fastest_products(probe, std::min(choosing_s, choosing_share * probe.deadline_s));
  OperationProbe rest = probe;
  rest.deadline_s -= stopwatch.elapsed_s();
  const ProductScope scope(&products);
  const RankMemory memory;
  use_threads(probe.threads);
  const MemoryScope charged(memory);
  const c10::InferenceMode no_tape;
  return OperationRounds(rest, probe.gpu ? &use_cuda(*probe.gpu) : nullptr).run();
}

}  // namespace heteroperf
