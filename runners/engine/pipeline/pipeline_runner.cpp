#include "runners/engine/pipeline/pipeline_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
/// One segment of the schedule on this rank.
struct PipelineRunner::Part {
  Part(const RankShare::Part& own, StageModel model, ParameterStore& store,
       std::shared_ptr<StageExecutor::Written> written)
      : share(own), executor(std::move(model), store, std::move(written)), uses(store.count()) {
    for (const std::size_t ordinal : executor.written_parameters()) ++uses[ordinal];
    uses_left = uses;
  }

  const RankShare::Part& share;
  StageExecutor executor;
  std::vector<int> uses, uses_left;  ///< by ordinal: groups that write its gradient
  at::Tensor sample;                 ///< of the micro-batch loaded last
  PipelineEdges::OfSegment edges;
  std::int64_t micro_batch = 1;   ///< samples of this replica
  std::int64_t first_sample = 0;  ///< within a micro-batch
  int micro_batches = 0;          ///< that pass here in a step
  int weights_left = 0;           ///< of these, whose weight gradients are missing
};

PipelineRunner::PipelineRunner(const TrainingSpec& spec, const Deployment& deployment,
                               Communicator& world, Communicator* devices, ParameterStore& store,
                               GradientReducer& reducer, Accelerator* accelerator)
    : spec_(spec),
      deployment_(deployment),
      world_(world),
      store_(store),
      reducer_(reducer),
      loader_(spec.data, store.operator_type(), spec.seed),
      edges_(spec, deployment, world, store.operator_type(), store.device()),
      written_(std::make_shared<StageExecutor::Written>(store.count())),
      accelerator_(accelerator),
      device_times_(accelerator),
      watchdog_(spec.timeout_s,
                [this](std::int64_t i) { return where(static_cast<std::size_t>(i)); }) {
  if (spec.pacing) timeline_.emplace(spec.pacing->dilation > 0 ? spec.pacing->dilation : 1.0);
  make_parts(devices != nullptr ? *devices : world);
}

PipelineRunner::~PipelineRunner() = default;

void PipelineRunner::make_parts(Communicator& sums) {
  const bool any_tensor_parallel = std::any_of(
      spec_.plan().stages.begin(), spec_.plan().stages.end(), [](const PlanStage& stage) {
        return std::any_of(stage.replicas.begin(), stage.replicas.end(),
                           [](const StageReplica& r) { return r.ranks.size() > 1; });
      });
  if (any_tensor_parallel) {
    const RankRole::Part& role = deployment_.share.parts.front().role;
    const StageReplica& mine =
        spec_.plan().stages[at_index(role.stage)].replicas[at_index(role.replica)];
    tensor_group_ = sums.split(mine.ranks.front().value(), role.tensor_index);
  }
  const PipelineGraph& graph = deployment_.schedule.graph;
  summands_.assign(store_.count(), 0);
  for (const RankShare::Part& own : deployment_.share.parts) {
    auto part =
        std::make_unique<Part>(own,
                               stage_model(deployment_.share, own, deployment_.staged, spec_.plan(),
                                           store_.operator_type(), tensor_group_.get()),
                               store_, written_);
    const StageReplica& replica =
        spec_.plan().stages[at_index(own.role.stage)].replicas[at_index(own.role.replica)];
    part->edges = edges_.of(own.role.segment);
    part->micro_batch = replica.micro_batch;
    part->first_sample = first_sample(spec_.plan(), own.role.stage, own.role.replica);
    part->executor.on_gradient(
        [this, own = part.get()](std::size_t ordinal) { take_gradient(*own, ordinal); });
    part->micro_batches = graph.segments[at_index(own.role.segment)].micro_batches;
    for (std::size_t p = 0; p < summands_.size(); ++p) {
      if (part->executor.gradient_is_summand(p)) ++summands_[p];
    }
    parts_.push_back(std::move(part));
  }
}

PipelineRunner::Handler PipelineRunner::handler(Op op) {
  static constexpr std::array<Handler, op_count> handlers{
      &PipelineRunner::nothing,          // idle
      &PipelineRunner::load,             // load
      &PipelineRunner::forward,          // forward
      &PipelineRunner::input_gradient,   // input_gradient
      &PipelineRunner::weight_gradient,  // weight_gradient
      &PipelineRunner::backward,         // backward
      &PipelineRunner::recompute,        // recompute
      &PipelineRunner::loss,             // loss
      &PipelineRunner::send,             // send_act
      &PipelineRunner::receive,          // recv_act
      &PipelineRunner::send,             // send_grad
      &PipelineRunner::receive,          // recv_grad
      &PipelineRunner::refuse,           // interact
      &PipelineRunner::reduce_gradient,  // reduce_grad
      &PipelineRunner::reduce_tied,      // reduce_tied
      &PipelineRunner::update,           // opt_step
      &PipelineRunner::nothing,          // free: what a buffer held left with its last use
  };
  return handlers[static_cast<std::size_t>(op)];
}

void PipelineRunner::run_step(std::uint64_t step, StepClock& clock,
                              const std::function<void()>& update) {
  step_ = step;
  clock_ = &clock;
  update_ = &update;
  loss_ = peak_held_ = 0;
  device_loss_.reset();
  device_times_.begin_step(clock.start_ns());
  reductions_.clear();
  reduction_ready_s_.assign(spec_.plan().stages.size(), 0);
  std::fill(written_->begin(), written_->end(), false);
  collected_.assign(store_.count(), false);
  summands_left_ = summands_;
  for (const std::unique_ptr<Part>& part : parts_) {
    part->weights_left = part->micro_batches;
    part->executor.keep_time_on(&clock);
  }
  const std::vector<Instruction>& program = deployment_.program();
  for (std::size_t i = 0; i < program.size(); ++i) {
    watchdog_.at(static_cast<std::int64_t>(i));
    clock.at(static_cast<std::int32_t>(i));
    try {
      (this->*handler(program[i].op))(program[i]);
    } catch (const Error&) {
      fmt::print(stderr, "heteroperf: {}\n", where(i));
      throw;
    }
  }
  clock.at(-1);
  clock.lap(TimeLane::other);
  edges_.drain();
  clock.lap(TimeLane::messages);
  for (const std::unique_ptr<Part>& part : parts_) part->executor.keep_time_on(nullptr);
  watchdog_.rest();
}

PipelineRunner::Part& PipelineRunner::part_of(const Instruction& i) {
  for (const std::unique_ptr<Part>& part : parts_) {
    if (part->share.role.segment == i.segment) return *part;
  }
  HETEROPERF_EXPECT(false);
  return *parts_.front();
}

std::size_t PipelineRunner::number_of(const Part& part) const {
  return static_cast<std::size_t>(&part.share - deployment_.share.parts.data());
}

std::string PipelineRunner::where(std::size_t i) const {
  const std::vector<Instruction>& program = deployment_.program();
  return fmt::format("rank {} was at instruction {} of {}: {}", world_.rank().value(), i,
                     program.size(), to_text(program[i]));
}

PassContext PipelineRunner::context(const Part& part, int micro_batch) const {
  const std::int64_t batch = spec_.plan().micro_batch_samples();
  PassContext result;
  result.seed = spec_.seed;
  result.step = step_;
  result.first_sample = static_cast<std::uint64_t>(micro_batch * batch + part.first_sample);
  // Every sample has the same number of targets.
  result.loss_scale =
      static_cast<double>(part.micro_batch) / static_cast<double>(spec_.plan().samples_per_step());
  return result;
}

double PipelineRunner::duration_s(const Part& part, Op op) const {
  if (!spec_.pacing) return 0;
  const StageTimes::Compute& times =
      spec_.pacing->times
          .compute[at_index(part.share.role.stage)][at_index(part.share.role.replica)];
  switch (op) {
    case Op::forward:
      return times.forward_s;
    case Op::input_gradient:
      return times.input_gradient_s;
    case Op::weight_gradient:
      return times.weight_gradient_s;
    case Op::recompute:
      return times.recompute_s;
    default:
      return times.input_gradient_s + times.weight_gradient_s;
  }
}

/// Runs `work`, and on a paced device sleeps to its modelled end.
template <class Work>
void PipelineRunner::compute(Part& part, const Instruction& i, const Work& work) {
  edges_.retire();
  clock_->lap(TimeLane::other);
  clock_->doing(TimeLane::compute);
  device_times_.run(work);
  if (timeline_) {
    timeline_->finish(ready_s_, duration_s(part, i.op));
    ready_s_ = 0;
  }
  clock_->lap(TimeLane::compute);
  clock_->doing(TimeLane::other);
  device_times_.name_last(static_cast<std::int32_t>(&i - deployment_.program().data()));
}

Batch PipelineRunner::batch_of(const Part& part, int micro_batch) {
  const std::uint64_t first = context(part, micro_batch).first_sample;
  return on_device(
      loader_.train(step_ * spec_.plan().samples_per_step() + first, part.micro_batch));
}

void PipelineRunner::load(const Instruction& i) {
  Part& part = part_of(i);
  clock_->lap(TimeLane::other);
  const Batch batch = batch_of(part, i.micro_batch);
  if (part.executor.takes_data()) {
    part.executor.put(i.micro_batch, spec_.graph.input(), batch.sample);
  }
  part.sample = batch.sample;
  if (part.executor.takes_targets()) part.executor.put_targets(i.micro_batch, batch.targets);
  clock_->lap(TimeLane::data);
}

Tensors PipelineRunner::take(int edge, Crossing what, int micro_batch) {
  clock_->lap(TimeLane::other);
  PipelineEdges::Arrived arrived = edges_.take(edge, what, micro_batch);
  if (arrived.from_other_rank) clock_->lap_wait(arrived.times.sent_ns - spec_.clock_offset_ns);
  ready_s_ = std::max(ready_s_, arrived.times.modelled_s);
  return std::move(arrived.tensors);
}

void PipelineRunner::hand_on(int edge, Crossing what, int micro_batch, Tensors tensors) {
  edges_.hand_on(edge, what, micro_batch, std::move(tensors), timeline_ ? timeline_->free_s() : 0);
}

void PipelineRunner::take_inputs(Part& part, int micro_batch) {
  for (const int e : part.edges.in) {
    const std::vector<NodeId>& nodes = edges_.nodes(e, Crossing::activation);
    Tensors tensors = take(e, Crossing::activation, micro_batch);
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      part.executor.put(micro_batch, nodes[n], std::move(tensors[n]));
    }
  }
  if (!part.executor.takes_targets() || part.edges.in.empty()) return;
  clock_->lap(TimeLane::other);
  part.executor.put_targets(micro_batch, batch_of(part, micro_batch).targets);
  clock_->lap(TimeLane::data);
}

void PipelineRunner::forward(const Instruction& i) {
  Part& part = part_of(i);
  take_inputs(part, i.micro_batch);
  compute(part, i, [&] { part.executor.forward(i.micro_batch, context(part, i.micro_batch)); });
  double held = 0;
  for (const std::unique_ptr<Part>& other : parts_) {
    const Segment& segment =
        deployment_.schedule.graph.segments[at_index(other->share.role.segment)];
    held += other->executor.held() * segment.activation;
  }
  peak_held_ = std::max(peak_held_, held);
  hand_on_outputs(part, i.micro_batch);
}

void PipelineRunner::hand_on_outputs(Part& part, int micro_batch) {
  for (const int e : part.edges.out) {
    hand_on(e, Crossing::activation, micro_batch, outputs(part, e, micro_batch));
  }
}

Tensors PipelineRunner::outputs(Part& part, int edge, int micro_batch) {
  Tensors tensors;
  for (const NodeId node : edges_.nodes(edge, Crossing::activation)) {
    tensors.push_back(node == spec_.graph.input() ? part.sample
                                                  : part.executor.output(micro_batch, node));
  }
  return tensors;
}

void PipelineRunner::loss(const Instruction& i) {
  const Part& part = part_of(i);
  if (part.share.role.tensor_index != 0) return;
  const double scale = context(part, i.micro_batch).loss_scale;
  if (accelerator_ == nullptr) {
    loss_ += part.executor.loss(i.micro_batch) * scale;
    return;
  }
  // Read once a step: reading waits for the device.
  const at::Tensor term = part.executor.loss_value(i.micro_batch).to(at::kDouble).mul(scale);
  device_loss_ = device_loss_.defined() ? device_loss_.add(term) : term;
}

double PipelineRunner::loss() const {
  return device_loss_.defined() ? device_loss_.item().toDouble() : loss_;
}

// Indices are checked here: kernels on a device cannot refuse one.
Batch PipelineRunner::on_device(Batch batch) const {
  if (accelerator_ == nullptr) return batch;
  const std::int64_t classes = spec_.data->spec().classes;
  check_indices(batch.targets, classes, "target");
  if (batch.sample.scalar_type() == at::kLong) check_indices(batch.sample, classes, "token");
  return {accelerator_->bring(canonical(batch.sample)), accelerator_->bring(batch.targets)};
}

void PipelineRunner::recompute(const Instruction& i) {
  Part& part = part_of(i);
  compute(part, i, [&] { part.executor.recompute(i.micro_batch); });
}

// The gradient of the latest consumer comes first, as in one pass over the whole graph.
void PipelineRunner::take_gradients(Part& part, int micro_batch) {
  for (auto e = part.edges.out.rbegin(); e != part.edges.out.rend(); ++e) {
    const std::vector<NodeId>& nodes = edges_.nodes(*e, Crossing::gradient);
    if (nodes.empty()) continue;
    Tensors tensors = take(*e, Crossing::gradient, micro_batch);
    HETEROPERF_EXPECT(tensors.size() == nodes.size());
    for (std::size_t n = 0; n < tensors.size(); ++n) {
      part.executor.put_gradient(micro_batch, nodes[n], std::move(tensors[n]));
    }
  }
}

void PipelineRunner::hand_on_gradients(Part& part, int micro_batch) {
  for (const int e : part.edges.in) {
    const std::vector<NodeId>& nodes = edges_.nodes(e, Crossing::gradient);
    if (nodes.empty()) continue;
    Tensors tensors;
    for (const NodeId node : nodes) {
      tensors.push_back(part.executor.gradient(micro_batch, node));
      HETEROPERF_EXPECT(tensors.back().defined());
    }
    hand_on(e, Crossing::gradient, micro_batch, std::move(tensors));
  }
}

void PipelineRunner::input_gradient(const Instruction& i) {
  Part& part = part_of(i);
  take_gradients(part, i.micro_batch);
  compute(part, i, [&] { part.executor.input_gradient(i.micro_batch); });
  hand_on_gradients(part, i.micro_batch);
}

void PipelineRunner::weight_gradient(const Instruction& i) {
  Part& part = part_of(i);
  compute(part, i, [&] {
    if (spec_.precision == Precision::bf16) part.executor.overwrite_gradients();
    part.executor.weight_gradient(i.micro_batch);
  });
  finish_weights(part, i.micro_batch);
}

void PipelineRunner::backward(const Instruction& i) {
  Part& part = part_of(i);
  take_gradients(part, i.micro_batch);
  compute(part, i, [&] {
    if (spec_.precision == Precision::bf16) part.executor.overwrite_gradients();
    part.executor.backward(i.micro_batch);
  });
  hand_on_gradients(part, i.micro_batch);
  finish_weights(part, i.micro_batch);
}

void PipelineRunner::finish_weights(Part& part, int micro_batch) {
  part.executor.release(micro_batch);
  --part.weights_left;
}

void PipelineRunner::take_gradient(Part& part, std::size_t ordinal) {
  if (--part.uses_left[ordinal] > 0) return;
  part.uses_left[ordinal] = part.uses[ordinal];
  store_.collect_gradient(ordinal, collected_[ordinal] ? ParameterStore::Collect::add
                                                       : ParameterStore::Collect::overwrite);
  collected_[ordinal] = true;
  if (part.weights_left > 1) return;
  if (summands_left_[ordinal] > 0 && --summands_left_[ordinal] == 0) {
    const ParameterStore::Place& place = store_.place(ordinal);
    const SumLap timed(clock_);
    all_reduce(*tensor_group_, store_.reduced_gradient().narrow(0, place.offset, place.count),
               Reduction::sum);
  }
  reducer_.ready(ordinal);
}

void PipelineRunner::send(const Instruction& i) {
  clock_->lap(TimeLane::other);
  edges_.send(i);
  clock_->lap(TimeLane::messages);
}

void PipelineRunner::receive(const Instruction& i) {
  clock_->lap(TimeLane::other);
  edges_.receive(i);
  clock_->lap(TimeLane::messages);
}

void PipelineRunner::note_reduction(const Instruction& i) {
  if (!timeline_) return;
  const auto stage = part_of(i).share.role.stage;
  double& ready_s = reduction_ready_s_[at_index(stage)];
  ready_s = std::max(ready_s, timeline_->free_s());
  if (i.op == Op::reduce_grad) reductions_.push_back(stage);
}

void PipelineRunner::reduce_gradient(const Instruction& i) {
  note_reduction(i);
  reducer_.reduce(number_of(part_of(i)));
}

void PipelineRunner::reduce_tied(const Instruction& i) {
  note_reduction(i);
  reducer_.reduce_tied(number_of(part_of(i)));
}

void PipelineRunner::update(const Instruction&) { (*update_)(); }

void PipelineRunner::refuse(const Instruction& i) {
  throw UserError("this schedule has an interaction between branches", to_text(i),
                  "Use a model of one branch");
}

// Stage by stage in the first direction; with several batches ranks overlap by themselves.
BatchScore PipelineRunner::evaluate(std::uint64_t first, std::int64_t count) {
  BatchScore score;
  for (const std::unique_ptr<Part>& part : parts_) {
    const int stage = part->share.role.stage;
    const std::int64_t own = std::min(part->micro_batch, count - part->first_sample);
    if (part->share.role.segment != stage || own <= 0) continue;
    StageExecutor& executor = part->executor;
    if (executor.takes_data() || executor.takes_targets()) {
      const Batch batch = on_device(
          loader_.validation(first + static_cast<std::uint64_t>(part->first_sample), own));
      part->sample = batch.sample;
      if (executor.takes_data()) executor.put(0, spec_.graph.input(), batch.sample);
      if (executor.takes_targets()) executor.put_targets(0, batch.targets);
    }
    for (const int e : part->edges.in) {
      const std::vector<NodeId>& nodes = edges_.nodes(e, Crossing::activation);
      const Tensors tensors = edges_.take_evaluated(e, count);
      for (std::size_t n = 0; n < nodes.size(); ++n) executor.put(0, nodes[n], tensors[n]);
    }
    const BatchScore here = executor.evaluate(0);
    if (part->share.role.tensor_index == 0 && executor.takes_targets()) score = here;
    for (const int e : part->edges.out) edges_.hand_on_evaluated(e, count, outputs(*part, e, 0));
    executor.release(0);
  }
  return score;
}

std::vector<PipelineRunner::StageBuffers> PipelineRunner::buffers() const {
  std::vector<StageBuffers> all;
  for (const std::unique_ptr<Part>& part : parts_) {
    const RankRole::Part& role = part->share.role;
    StageBuffers& own =
        all.emplace_back(StageBuffers{role.stage, role.replica, role.tensor_index, {}});
    const std::vector<std::string> names = part->executor.buffer_names();
    const Tensors tensors = part->executor.buffers();
    for (std::size_t i = 0; i < names.size(); ++i) own.named.push_back({names[i], tensors[i]});
  }
  return all;
}

StepOperations PipelineRunner::operations() const {
  StepOperations result;
  for (const std::unique_ptr<Part>& part : parts_) {
    const ModelGraph& graph = deployment_.share.shards[part->share.shard].graph;
    const auto samples = static_cast<std::uint64_t>(part->micro_batch) *
                         static_cast<std::uint64_t>(part->micro_batches);
    const Recomputation again = spec_.plan().stages[at_index(part->share.role.stage)].recomputation;
    for (const NodeId node : part->share.nodes) {
      const StrictOps ops = strict_node_ops(graph, node);
      result.strict += ops.train() * samples;
      const bool attention = std::holds_alternative<Attention>(graph.node(node).attributes);
      if (again == Recomputation::full || (again == Recomputation::selective && attention)) {
        result.recompute += ops.forward * samples;
      }
    }
  }
  return result;
}

}  // namespace heteroperf
