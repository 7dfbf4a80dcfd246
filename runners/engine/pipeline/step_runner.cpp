// One training step on one rank. The rank's program is a list of instructions; run() takes them in
// their order and calls one handler for each. A receive is posted where it stands and waited for by
// the computation that needs the value; a send starts where it stands and never waits. So the order
// of the computations alone decides when they run, as in the simulator's model `latency`.
//
// Time is kept on the way: every handler ends its *lap* on the step's clock, which says whether the
// moments since the last lap were computation, messages, sums, or something else.
#include "runners/engine/pipeline/step_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

// The host's clock tells when it gave the device its work, not when that was done. The device's own
// time is the computation; the host's work counts where it was not hidden behind that.
void split_by_device(double device_s, StepReport& report) {
  TimeSplit& split = report.split;
  const double wall_s = static_cast<double>(report.t_end_ns - report.t_start_ns) * 1e-9;
  split.compute_s = std::min(device_s, wall_s);
  const double rest_s = wall_s - split.compute_s;
  const double host_s = split.communication_s + split.bubble_s + split.data_s;
  const double shown = host_s > rest_s && host_s > 0 ? rest_s / host_s : 1.0;
  split.communication_s *= shown;
  split.bubble_s *= shown;
  split.data_s *= shown;
  split.other_s = rest_s - shown * host_s;
}

}  // namespace

StepRunner::StepRunner(const TrainingSpec& spec, const RankShare& share, Communicator& world,
                       RankStages& stages, GradientReducer& reducer, Optimizer& optimizer,
                       Accelerator* accelerator)
    : spec_(spec),
      share_(share),
      program_(spec.ready->schedule.programs[share.role.position.index()]),
      handlers_(program_handlers()),
      world_(world),
      stages_(stages),
      reducer_(reducer),
      optimizer_(optimizer),
      accelerator_(accelerator),
      clock_(stages.clock()),
      device_times_(accelerator),
      watchdog_(spec.timeout_s, [this](std::int64_t i) { return where(i); }) {
  if (spec.pacing) timeline_.emplace(*spec.pacing, world, spec.clock_offset_ns);
}

// A rank runs the instructions of its own stages. Of the passes of other stages of its position it
// receives what they hand to its own.
std::vector<StepRunner::Handler> StepRunner::program_handlers() const {
  // One row per instruction, in the order of Op.
  static constexpr std::array<Handler, op_count> of_op{
      &StepRunner::nothing,    // idle
      &StepRunner::load,       // load
      &StepRunner::forward,    // forward
      &StepRunner::backward,   // input_gradient
      &StepRunner::backward,   // weight_gradient
      &StepRunner::backward,   // backward
      &StepRunner::recompute,  // recompute
      &StepRunner::note_loss,  // loss
      &StepRunner::exchange,   // send_act
      &StepRunner::exchange,   // recv_act
      &StepRunner::exchange,   // send_grad
      &StepRunner::exchange,   // recv_grad
      &StepRunner::interact,   // interact
      &StepRunner::reduce,     // reduce_grad
      &StepRunner::reduce,     // reduce_tied
      &StepRunner::update,     // opt_step
      &StepRunner::nothing,    // free: a buffer's tensors left with their last use
  };
  const auto& interactions = spec_.ready->schedule.graph.interactions;
  std::vector<Handler> handlers;
  for (const Instruction& i : program_) {
    const SegmentId segment =
        i.op == Op::interact ? interactions[i.interaction()].members.front() : i.segment;
    const bool here = segment == SegmentId::none() || share_.role.has(segment);
    const bool hands_on = i.op == Op::forward || makes_input_gradient(i.op);
    handlers.push_back(here       ? of_op.at(static_cast<std::size_t>(i.op))
                       : hands_on ? &StepRunner::receive_near
                                  : &StepRunner::nothing);
  }
  return handlers;
}

StepReport StepRunner::run(std::uint64_t step) {
  begin_step(step);
  for (std::size_t i = 0; i < program_.size(); ++i) {
    watchdog_.at(static_cast<std::int64_t>(i));
    clock_.at(static_cast<std::int32_t>(i));
    try {
      (this->*handlers_[i])(program_[i]);
    } catch (const Error&) {
      fmt::print(stderr, "heteroperf: {}\n", where(i));
      throw;
    }
  }
  return finish_step();
}

// Paced ranks start together, before the clock of the step does.
void StepRunner::begin_step(std::uint64_t step) {
  if (timeline_) timeline_->start_step(step);
  stages_.begin_step(step);
  clock_.start(lanes_);
  report_ = {};
  report_.step = step;
  report_.samples = spec_.plan().samples_per_step();
  if (stages_.step_samples().ragged()) report_.images = stages_.step_samples().images();
  report_.learning_rate = learning_rate_at(spec_.recipe, step);
  loss_ = targets_ = peak_held_ = 0;
  device_loss_.reset();
  device_times_.begin_step(clock_.start_ns());
  stages_.gradients().begin_step();
  border_bytes_before_ = stages_.edges().border_bytes(stages_.components());
  for (const std::unique_ptr<RankStage>& stage : stages_.all()) {
    stage->weights_left = stage->micro_batches;
    stage->compute_s = 0;
    stage->components.begin_step();
  }
}

// Sends may still be under way behind the last instruction, and a device may still compute.
StepReport StepRunner::finish_step() {
  clock_.at(-1);
  clock_.lap(TimeLane::other);
  stages_.edges().drain();
  clock_.lap(TimeLane::messages);
  watchdog_.rest();
  if (accelerator_ != nullptr) {
    accelerator_->wait();
    clock_.lap(TimeLane::compute);
  }
  clock_.finish(report_);
  if (accelerator_ != nullptr) split_by_device(device_times_.finish(lanes_), report_);
  if (lanes_ != nullptr) lanes_->insert(lanes_->end(), overlapped_.begin(), overlapped_.end());
  overlapped_.clear();
  note_components();
  return report_;
}

// The groups of a stage are timed on the host's clock, which tells nothing of work that a device
// does later, nor of a modelled timeline.
void StepRunner::note_components() {
  const std::vector<std::uint64_t> sent = stages_.edges().border_bytes(stages_.components());
  report_.components.resize(sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    report_.components[i].border_bytes = sent[i] - border_bytes_before_[i];
  }
  if (sent.empty()) return;
  for (const std::unique_ptr<RankStage>& stage : stages_.all()) {
    const std::vector<std::size_t>& components = stage->components.all();
    const bool told = components.size() == 1 || (accelerator_ == nullptr && !timeline_);
    for (const std::size_t i : components) {
      std::optional<double>& sum_s = report_.components[i].compute_s;
      if (!told) sum_s.reset();
      if (sum_s) *sum_s += stage->compute_s * stage->components.share(i);
    }
  }
}

std::string StepRunner::where(std::size_t i) const {
  return fmt::format("rank {} was at instruction {} of {}: {}", world_.rank().value(), i,
                     program_.size(), to_text(program_[i]));
}

// Dropout depends on the number of the sample within the step, not on the rank that has it. The
// scale of the loss makes the sum of all gradients that of the mean over the global batch. Where
// only some targets count it is that of the sum, which the update divides by their number: nobody
// knows it yet, and a sum of sums is exact as long as these are.
PassContext StepRunner::context(const RankStage& stage, MicroBatchId micro_batch) const {
  PassContext result;
  result.seed = spec_.seed;
  result.step = report_.step;
  result.first_sample = stages_.first_sample(stage, micro_batch);
  result.first_item = stages_.step_samples().first_image(result.first_sample);
  if (stage.executor.counted_targets(micro_batch)) return result;
  result.loss_scale = static_cast<double>(stage.samples) /
                      static_cast<double>(spec_.plan().samples_per_step()) * stage.loss_share;
  return result;
}

// The time since the last lap, mostly the loop's own, is no computation.
void StepRunner::begin_computation() {
  stages_.edges().retire();
  clock_.lap(TimeLane::other);
  clock_.doing(TimeLane::compute);
  compute_before_s_ = clock_.compute_s();
  device_times_.begin();
}

// A paced device sleeps to the computation's modelled end.
void StepRunner::end_computation(RankStage& stage, const Instruction& i) {
  device_times_.end(static_cast<std::int32_t>(&i - program_.data()), &stage.compute_s);
  if (timeline_) timeline_->finish(stage.role(), i.op, stages_.relative_work(stage, i.micro_batch));
  clock_.lap(TimeLane::compute);
  clock_.doing(TimeLane::other);
  if (accelerator_ == nullptr) stage.compute_s += clock_.compute_s() - compute_before_s_;
}

void StepRunner::load(const Instruction& i) { load_data(stages_.of(i.segment), i.micro_batch); }

void StepRunner::load_data(RankStage& stage, MicroBatchId micro_batch) {
  clock_.lap(TimeLane::other);
  stages_.load_training(stage, micro_batch);
  clock_.lap(TimeLane::data);
}

// A wait for another rank is split at the moment when the message left its sender.
Tensors StepRunner::take(EdgeId edge, Crossing what, MicroBatchId micro_batch) {
  clock_.lap(TimeLane::other);
  PipelineEdges::Arrived arrived = stages_.edges().take(edge, what, micro_batch);
  if (arrived.from_other_rank) clock_.lap_wait(arrived.times.sent_ns - spec_.clock_offset_ns);
  if (timeline_) timeline_->input_arrives(arrived.times.modelled_s);
  return std::move(arrived.tensors);
}

void StepRunner::hand_on(EdgeId edge, Crossing what, MicroBatchId micro_batch, Tensors tensors) {
  stages_.edges().hand_on(edge, what, micro_batch, std::move(tensors),
                          timeline_ ? timeline_->free_s() : 0);
}

// A stage behind others that reads data does so here: only the first ones have a LOAD.
void StepRunner::take_inputs(RankStage& stage, MicroBatchId micro_batch) {
  for (const EdgeId e : stage.edges.in) {
    const std::vector<NodeId>& nodes = stages_.edges().nodes(e, Crossing::activation);
    Tensors tensors = take(e, Crossing::activation, micro_batch);
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      stage.executor.put(micro_batch, nodes[n], std::move(tensors[n]));
    }
  }
  if (stage.executor.reads_data() && !stage.edges.in.empty()) load_data(stage, micro_batch);
}

void StepRunner::forward(const Instruction& i) {
  RankStage& stage = stages_.of(i.segment);
  take_inputs(stage, i.micro_batch);
  begin_computation();
  stage.executor.forward(i.micro_batch, context(stage, i.micro_batch));
  end_computation(stage, i);
  double held = 0;
  for (const std::unique_ptr<RankStage>& each : stages_.all()) {
    held += each->executor.held() * each->activation;
  }
  peak_held_ = std::max(peak_held_, held);
  for (const EdgeId e : stage.edges.out) {
    hand_on(e, Crossing::activation, i.micro_batch, stages_.outputs(stage, e, i.micro_batch));
  }
}

// A loss over a set of micro-batches is known behind their INTERACT. A schedule lets gradients
// start behind a LOSS in frozen stages too, to which none come back: these have no loss.
void StepRunner::note_loss(const Instruction& i) {
  RankStage& stage = stages_.of(i.segment);
  if (stage.executor.has_loss() && !stage.executor.interacts()) add_loss(stage, i.micro_batch);
}

void StepRunner::add_loss(RankStage& stage, MicroBatchId micro_batch) {
  if (stage.role().tensor_index != 0) return;
  targets_ += static_cast<double>(stage.executor.counted_targets(micro_batch).value_or(0));
  const double scale = context(stage, micro_batch).loss_scale;
  if (accelerator_ == nullptr) {
    loss_ += stage.executor.loss(micro_batch) * scale;
    return;
  }
  // Read once a step: reading waits for the device.
  const at::Tensor term = stage.executor.loss_value(micro_batch).to(at::kDouble).mul(scale);
  device_loss_ = device_loss_.defined() ? device_loss_.add(term) : term;
}

void StepRunner::recompute(const Instruction& i) {
  RankStage& stage = stages_.of(i.segment);
  begin_computation();
  stage.executor.recompute(i.micro_batch);
  end_computation(stage, i);
}

// The gradient of the latest consumer comes first, as in one pass over the whole graph.
void StepRunner::take_gradients(RankStage& stage, MicroBatchId micro_batch) {
  for (auto e = stage.edges.out.rbegin(); e != stage.edges.out.rend(); ++e) {
    const std::vector<NodeId>& nodes = stages_.edges().nodes(*e, Crossing::gradient);
    if (nodes.empty()) continue;
    Tensors tensors = take(*e, Crossing::gradient, micro_batch);
    HETEROPERF_EXPECT(tensors.size() == nodes.size());
    for (std::size_t n = 0; n < tensors.size(); ++n) {
      stage.executor.put_gradient(micro_batch, nodes[n], std::move(tensors[n]));
    }
  }
}

void StepRunner::hand_on_gradients(RankStage& stage, MicroBatchId micro_batch) {
  for (const EdgeId e : stage.edges.in) {
    const std::vector<NodeId>& nodes = stages_.edges().nodes(e, Crossing::gradient);
    if (nodes.empty()) continue;
    Tensors tensors;
    for (const NodeId node : nodes) {
      tensors.push_back(stage.executor.gradient(micro_batch, node));
      HETEROPERF_EXPECT(tensors.back().defined());
    }
    hand_on(e, Crossing::gradient, micro_batch, std::move(tensors));
  }
}

// B, W, or both at once. The last pass of a step that writes weight gradients makes this stage's
// final.
void StepRunner::backward(const Instruction& i) {
  RankStage& stage = stages_.of(i.segment);
  const bool inputs = i.op != Op::weight_gradient, weights = i.op != Op::input_gradient;
  if (inputs) take_gradients(stage, i.micro_batch);
  begin_computation();
  if (weights) {
    stages_.gradients().begin_pass(stage.executor.written_parameters(), stage.weights_left == 1);
  }
  if (!weights) {
    stage.executor.input_gradient(i.micro_batch);
  } else if (inputs) {
    stage.executor.backward(i.micro_batch);
  } else {
    stage.executor.weight_gradient(i.micro_batch);
  }
  end_computation(stage, i);
  if (inputs) hand_on_gradients(stage, i.micro_batch);
  if (!weights) return;
  stage.executor.release(i.micro_batch);
  --stage.weights_left;
}

void StepRunner::exchange(const Instruction& i) {
  clock_.lap(TimeLane::other);
  stages_.edges().exchange(i);
  clock_.lap(TimeLane::messages);
}

void StepRunner::receive_near(const Instruction& i) {
  clock_.lap(TimeLane::other);
  stages_.edges().receive_near(
      i.segment, i.op == Op::forward ? Crossing::activation : Crossing::gradient, i.micro_batch);
  clock_.lap(TimeLane::messages);
}

void StepRunner::reduce(const Instruction& i) {
  const RankStage& stage = stages_.of(i.segment);
  if (timeline_) timeline_->note_reduction(stage.role().stage, i.op);
  if (i.op == Op::reduce_tied) return reducer_.reduce_tied(stage.number);
  reducer_.reduce(stage.number);
}

void StepRunner::interact(const Instruction& i) {
  const Interaction& interaction = spec_.ready->schedule.graph.interactions[i.interaction()];
  RankStage& stage = stages_.of(interaction.members.front());
  const int count = std::min(interaction.every, spec_.plan().micro_batches - i.micro_batch.value());
  begin_computation();
  stages_.interact(stage, i.micro_batch, count, Mode::train);
  end_computation(stage, i);
  for (int n = 0; n < count; ++n) add_loss(stage, i.micro_batch + n);
}

// OPT_STEP: the sums of the gradients, the agreement, the update; paced devices also wait for the
// modelled end of all that.
void StepRunner::update(const Instruction&) {
  clock_.lap(TimeLane::other);
  reducer_.wait();
  clock_.lap(TimeLane::sums);
  const double loss = device_loss_.defined() ? device_loss_.item().toDouble() : loss_;
  const double square_sum = reducer_.own_square_sum();
  const std::int64_t arrival_ns = now_ns() + spec_.clock_offset_ns;
  clock_.lap(TimeLane::compute);
  const Agreement all = agree({loss, square_sum, targets_, arrival_ns});
  clock_.lap_wait(all.latest_ns - spec_.clock_offset_ns);
  // The mean is over the targets that count, on all ranks together.
  const double scale = all.targets > 0 ? 1 / all.targets : 1.0;
  report_.loss = all.loss * scale;
  report_.gradient_norm = std::sqrt(all.square_sum) * scale;
  if (std::isfinite(report_.loss) && std::isfinite(report_.gradient_norm)) {
    device_times_.begin();
    optimizer_.update(report_.learning_rate, report_.gradient_norm, scale);
    device_times_.end();
    clock_.lap(TimeLane::optimizer);
    reducer_.share_parameters();
    clock_.lap(TimeLane::sums);
  }
  if (!timeline_) return;
  timeline_->finish_step(share_.parts);
  clock_.lap(TimeLane::waiting);
}

// Sums in rank order: the same bits on every rank. One rank's NaN reaches every rank's decision.
StepRunner::Agreement StepRunner::agree(const Agreement& contribution) {
  if (world_.size() == 1) return contribution;
  constexpr std::size_t width = 4;
  const std::array<double, width> terms{contribution.loss, contribution.square_sum,
                                        contribution.targets,
                                        static_cast<double>(contribution.latest_ns)};
  std::vector<double> all(width * static_cast<std::size_t>(world_.size()));
  world_.all_gather(std::span<const double>(terms), std::span<double>(all));
  Agreement result;
  for (std::size_t r = 0; r < all.size(); r += width) {
    result.loss += all[r];
    result.square_sum += all[r + 1];
    result.targets += all[r + 2];
    result.latest_ns = std::max(result.latest_ns, static_cast<std::int64_t>(all[r + 3]));
  }
  return result;
}

}  // namespace heteroperf
