#include "runners/engine/module/training_session.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/hash.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/checkpoint/save_checkpoint.hpp"
#include "runners/engine/module/spec_check.hpp"
#include "runners/engine/operators/host_copies.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/load_cuda.hpp"
#include "runners/engine/parameters/optimizer.hpp"
#include "runners/engine/pipeline/pipeline_runner.hpp"
#include "runners/engine/probe/operation_observer.hpp"
#include "runners/plan/plan_json.hpp"

namespace heteroperf {
namespace {

std::uint64_t digest(const TrainingSpec& spec) {
  const OptimizerRecipe& r = spec.recipe;
  Hash128 hash("training");
  hash.update(spec.graph.hash()).update(spec.data->fingerprint()).update(spec.precision);
  hash.update(plan_text(spec.plan())).update(spec.seed);
  hash.update(r.kind).update(r.learning_rate).update(r.momentum).update(r.weight_decay);
  hash.update(r.decay_matrices_only).update(r.beta1).update(r.beta2).update(r.epsilon);
  hash.update(r.schedule).update(r.warmup_steps).update(r.total_steps).update(r.final_fraction);
  return hash.update(r.clip_norm).low();
}

void check_agreement(const TrainingSpec& spec, Communicator& group) {
  const auto mine = static_cast<std::int64_t>(digest(spec) >> 1);
  std::array<std::int64_t, 2> bounds{mine, -mine};
  group.all_reduce(std::span<std::int64_t>(bounds), Reduction::min);
  if (bounds[0] == -bounds[1]) return;
  throw UserError("the ranks were given different trainings",
                  "model, data, recipe, plan or seed differ",
                  "Start every rank with the same arguments and the same files");
}

// The host's clock tells when it gave the device its work, not when that was done. What the device
// computed is compute; the host's own work counts where it was not hidden behind that.
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

/// The first step is slower than those that follow: memory and code are cold.
constexpr std::uint64_t calibration_step = 1;

class PlanSession final : public TrainingSession {
 public:
  PlanSession(const TrainingSpec& spec, Communicator& world, Communicator* devices,
              RankMemory memory, Accelerator* accelerator);

  StepReport step() override;
  StepReport observed_step(ObservedOperations& observed) override;
  EvaluationReport evaluate(std::uint64_t samples) override;
  StepOperations operations() const override { return runner_.operations(); }
  void trace_to(std::vector<LaneSpan>* lanes) override;
  std::optional<PacingReport> pacing() const override;
  double peak_activations() const override { return runner_.peak_held(); }
  std::string parameter_fingerprint() const override { return store_.fingerprint(); }
  MemoryReport memory() const override;
  void rest() override { memory_.trim(); }
  CheckpointReport save(const std::string& folder) override;
  void restore(const std::string& folder) override;

 private:
  /// What every call of the session runs under: charged to this rank, without autograd.
  struct Scope {
    explicit Scope(const PlanSession& session) : charged(session.memory_) {
      use_threads(session.spec_.threads);
      if (session.spec_.gpu) session.accelerator_->select(*session.spec_.gpu);
    }
    MemoryScope charged;
    c10::InferenceMode no_tape;
  };

  StepReport run_step();
  void start_pacing();
  void finish_pacing(StepClock& clock);
  void dilate(PacedTimeline& timeline);
  void update(StepReport& report, StepClock& clock);
  /// What all ranks agree on at the end of a step.
  struct Agreement {
    double loss = 0, square_sum = 0;
    std::int64_t latest_ns = 0;  ///< arrival of the last rank
    double modelled_s = 0;
  };
  Agreement agree(const Agreement& mine);
  std::vector<double> score_batches(std::uint64_t samples);
  std::vector<Tensors> average_buffers();
  void put_back(const std::vector<Tensors>& own);
  std::vector<TensorPiece> pieces(std::span<const ArenaRange> ranges, HostCopies& here) const;

  TrainingSpec spec_;
  Communicator& world_;
  RankMemory memory_;
  Accelerator* accelerator_;  ///< null: the host computes
  Deployment deployment_;
  ParameterStore store_;
  std::vector<LaneSpan> beside_;  ///< of a traced step: what the reducer's own thread did
  GradientReducer reducer_;
  PipelineRunner runner_;
  Optimizer optimizer_;
  std::uint64_t step_ = 0;
  std::vector<LaneSpan>* lanes_ = nullptr;  ///< of the steps to come; null: they are not traced
};

/// The share of a value that another rounding changes: the last digit of what is stored, and of
/// bf16, whose operators read what is rounded from float32, the last digit of one in four.
double rounding_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return std::ldexp(1.0, -23);
    case Precision::bf16:
      return std::ldexp(1.0, -9);
    case Precision::fp64:
      return std::ldexp(1.0, -52);
  }
  return 0;
}

PlanSession::PlanSession(const TrainingSpec& spec, Communicator& world, Communicator* devices,
                         RankMemory memory, Accelerator* accelerator)
    : spec_(spec),
      world_(world),
      memory_(std::move(memory)),
      accelerator_(accelerator),
      deployment_(spec_.graph, *spec_.ready, world.rank()),
      store_(spec_.graph, deployment_.share.parameters, spec_.precision, spec_.seed,
             spec_.gpu ? cuda_device(*spec_.gpu) : at::Device(at::kCPU)),
      reducer_(world, spec_.graph, deployment_.staged, spec_.plan(), deployment_.roles,
               deployment_.share, store_, {.memory = memory_, .devices = devices}),
      runner_(spec_, deployment_, world, devices, store_, reducer_, accelerator),
      optimizer_(spec_.recipe, store_, reducer_.owned()) {
  if (spec_.moved) store_.move(rounding_of(spec_.precision));
}

StepReport PlanSession::step() {
  const Scope scope(*this);
  return run_step();
}

StepReport PlanSession::observed_step(ObservedOperations& observed) {
  const Scope scope(*this);
  const OperationObserver observer;
  const StepReport report = run_step();
  observed = observer.observed();
  return report;
}

void PlanSession::trace_to(std::vector<LaneSpan>* lanes) {
  lanes_ = lanes;
  reducer_.trace_to(lanes == nullptr ? nullptr : &beside_);
}

StepReport PlanSession::run_step() {
  start_pacing();
  StepClock clock(lanes_);
  StepReport report;
  report.step = step_;
  report.samples = spec_.plan().samples_per_step();
  report.learning_rate = learning_rate_at(spec_.recipe, step_);
  runner_.run_step(step_, clock, [&] { update(report, clock); });
  ++step_;
  if (accelerator_ != nullptr) {
    accelerator_->wait();
    clock.lap(TimeLane::compute);
  }
  clock.finish(report);
  if (accelerator_ != nullptr) split_by_device(runner_.device_seconds(lanes_), report);
  if (lanes_ != nullptr) {
    lanes_->insert(lanes_->end(), beside_.begin(), beside_.end());
    beside_.clear();
  }
  return report;
}

// All ranks start the modelled timeline at one real moment.
void PlanSession::start_pacing() {
  PacedTimeline* const timeline = runner_.timeline();
  if (timeline == nullptr) return;
  std::int64_t start_ns = now_ns() + spec_.clock_offset_ns;
  world_.all_reduce(std::span<std::int64_t>(&start_ns, 1), Reduction::max);
  timeline->start_step(start_ns - spec_.clock_offset_ns);
}

void PlanSession::update(StepReport& report, StepClock& clock) {
  clock.lap(TimeLane::other);
  reducer_.wait();
  clock.lap(TimeLane::sums);
  Agreement mine{runner_.loss(), reducer_.own_square_sum(), now_ns() + spec_.clock_offset_ns, 0};
  clock.lap(TimeLane::compute);
  const Agreement all = agree(mine);
  clock.lap_wait(all.latest_ns - spec_.clock_offset_ns);
  report.loss = all.loss;
  report.gradient_norm = std::sqrt(all.square_sum);
  if (std::isfinite(report.loss) && std::isfinite(report.gradient_norm)) {
    runner_.device_times().run(
        [&] { optimizer_.update(report.learning_rate, report.gradient_norm); });
    clock.lap(TimeLane::optimizer);
    reducer_.share_parameters();
    clock.lap(TimeLane::sums);
  }
  finish_pacing(clock);
}

// Sums in rank order: the same bits on every rank. One rank's NaN reaches every rank's decision.
PlanSession::Agreement PlanSession::agree(const Agreement& mine) {
  if (world_.size() == 1) return mine;
  constexpr std::size_t width = 4;
  const std::array<double, width> own{mine.loss, mine.square_sum,
                                      static_cast<double>(mine.latest_ns), mine.modelled_s};
  std::vector<double> all(width * static_cast<std::size_t>(world_.size()));
  world_.all_gather(std::span<const double>(own), std::span<double>(all));
  Agreement result;
  for (std::size_t r = 0; r < all.size(); r += width) {
    result.loss += all[r];
    result.square_sum += all[r + 1];
    result.latest_ns = std::max(result.latest_ns, static_cast<std::int64_t>(all[r + 2]));
    result.modelled_s = std::max(result.modelled_s, all[r + 3]);
  }
  return result;
}

// A stage's reduction follows the last gradient of its slowest replica, one after the other on each
// rank, beside the computation; then the optimizer, then all ranks agree. As predict() has it.
void PlanSession::finish_pacing(StepClock& clock) {
  PacedTimeline* const timeline = runner_.timeline();
  if (timeline == nullptr) return;
  const StageTimes& times = spec_.pacing->times;
  std::vector<double> ready_s = runner_.reduction_ready_s();
  world_.all_reduce(std::span<double>(ready_s), Reduction::max);
  double reduced_s = 0, optimizer_s = 0;
  for (const int stage : runner_.reductions()) {
    const double duration_s = times.reduction_s[static_cast<std::size_t>(stage)];
    if (duration_s == 0) continue;
    reduced_s = std::max(reduced_s, ready_s[static_cast<std::size_t>(stage)]) + duration_s;
  }
  for (const RankShare::Part& part : deployment_.share.parts) {
    optimizer_s += times.optimizer_s[static_cast<std::size_t>(part.role.stage)];
  }
  timeline->wait_until(reduced_s);
  // The update is done: what this waits for is not this rank's lateness.
  timeline->wait_until(timeline->free_s() + optimizer_s);
  double end_s = timeline->free_s() + times.agreement_s;
  world_.all_reduce(std::span<double>(&end_s, 1), Reduction::max);
  timeline->wait_until(end_s);
  timeline->end_step();
  clock.lap(TimeLane::waiting);
  if (spec_.pacing->dilation == 0 && step_ == calibration_step) dilate(*timeline);
}

// The ranks together may take half of the cores.
void PlanSession::dilate(PacedTimeline& timeline) {
  double worked_s = timeline.worked_s();
  world_.all_reduce(std::span<double>(&worked_s, 1));
  const double room_s = 0.5 * spec_.pacing->cores * timeline.report().step_s;
  timeline.dilate(room_s > 0 ? std::max(1.0, worked_s / room_s) : 1.0);
}

EvaluationReport PlanSession::evaluate(std::uint64_t samples) {
  const Scope scope(*this);
  EvaluationReport report;
  report.t_start_ns = now_ns();
  report.samples = std::min(samples, spec_.data->size(Split::validation));
  if (report.samples == 0) {
    throw UserError("there is nothing to evaluate on",
                    "0 validation samples asked for or there: " + spec_.data->description(),
                    "Use data with a validation split");
  }
  const std::vector<Tensors> own = average_buffers();
  const std::vector<double> scores = score_batches(report.samples);
  put_back(own);
  const std::size_t slots = scores.size() - 2;
  double loss = 0;
  for (std::size_t b = 0; b < slots; ++b) loss += scores[b];
  report.loss = loss / scores[slots + 1];
  report.accuracy = scores[slots] / scores[slots + 1];
  report.t_end_ns = now_ns();
  return report;
}

void PlanSession::put_back(const std::vector<Tensors>& own) {
  const std::vector<PipelineRunner::StageBuffers> present = runner_.buffers();
  for (std::size_t p = 0; p < own.size(); ++p) {
    for (std::size_t i = 0; i < own[p].size(); ++i) {
      at::Tensor(present[p].named[i].values).copy_(own[p][i]);
    }
  }
}

// One slot per batch and replica, filled by one rank each: the sum does not depend on the number of
// ranks. Behind them the right answers and the targets, exact as doubles.
std::vector<double> PlanSession::score_batches(std::uint64_t samples) {
  const auto width = static_cast<std::uint64_t>(spec_.plan().micro_batch_samples());
  const std::uint64_t batches = (samples + width - 1) / width;
  const RankShare::Part& last = deployment_.share.parts.back();
  const std::size_t replicas = spec_.plan().stages.back().replicas.size();
  const auto replica = static_cast<std::size_t>(last.role.replica);
  std::vector<double> scores(batches * replicas + 2);
  for (std::uint64_t b = 0; b < batches; ++b) {
    const std::uint64_t count = std::min(width, samples - b * width);
    const BatchScore score = runner_.evaluate(b * width, static_cast<std::int64_t>(count));
    if (score.targets == 0) continue;
    scores[b * replicas + replica] = score.loss * static_cast<double>(score.targets);
    scores[batches * replicas] += static_cast<double>(score.correct);
    scores[batches * replicas + 1] += static_cast<double>(score.targets);
  }
  runner_.finish_evaluation();
  world_.all_reduce(std::span<double>(scores));
  return scores;
}

// Each replica's running statistics come from its own micro-batches; all evaluate with their mean.
// Returns the rank's own, to be put back.
std::vector<Tensors> PlanSession::average_buffers() {
  std::vector<Tensors> own;
  bool alone = true;
  for (const PlanStage& stage : spec_.plan().stages) alone = alone && stage.replicas.size() == 1;
  if (alone) return own;
  const auto stages = spec_.plan().stages.size();
  std::vector<double> sizes(stages);
  const std::vector<PipelineRunner::StageBuffers> buffers = runner_.buffers();
  for (const PipelineRunner::StageBuffers& part : buffers) {
    for (const auto& [name, buffer] : part.named) {
      sizes[static_cast<std::size_t>(part.stage)] += static_cast<double>(buffer.numel());
    }
  }
  world_.all_reduce(std::span<double>(sizes), Reduction::max);
  std::vector<std::size_t> first(stages + 1);
  for (std::size_t s = 0; s < stages; ++s) {
    first[s + 1] = first[s] + static_cast<std::size_t>(sizes[s]);
  }
  if (first.back() == 0) return own;
  std::vector<double> sums(first.back());
  for (const PipelineRunner::StageBuffers& part : buffers) {
    double* next = sums.data() + first[static_cast<std::size_t>(part.stage)];
    for (const auto& [name, buffer] : part.named) {
      const at::Tensor wide = buffer.to(at::kDouble).contiguous().cpu();
      const auto* data = wide.const_data_ptr<double>();
      if (part.tensor_index == 0) {
        for (std::int64_t i = 0; i < wide.numel(); ++i) next[i] += data[i];
      }
      next += wide.numel();
    }
  }
  world_.all_reduce(std::span<double>(sums));
  for (const PipelineRunner::StageBuffers& part : buffers) {
    const auto stage = static_cast<std::size_t>(part.stage);
    const auto copies = static_cast<double>(spec_.plan().stages[stage].replicas.size());
    double* next = sums.data() + first[stage];
    Tensors before;
    for (const auto& [name, buffer] : part.named) {
      before.push_back(buffer.clone());
      for (std::int64_t i = 0; i < buffer.numel(); ++i) next[i] /= copies;
      at::Tensor(buffer).copy_(
          at::from_blob(next, buffer.sizes(), at::TensorOptions().dtype(at::kDouble)));
      next += buffer.numel();
    }
    own.push_back(std::move(before));
  }
  return own;
}

std::optional<PacingReport> PlanSession::pacing() const {
  const PacedTimeline* const timeline = runner_.timeline();
  if (timeline == nullptr) return std::nullopt;
  return timeline->report();
}

MemoryReport PlanSession::memory() const {
  const MemoryUse use = spec_.gpu ? accelerator_->memory(*spec_.gpu) : memory_.use();
  return {use.peak_bytes, use.current_bytes, process_peak_resident_bytes()};
}

std::vector<TensorPiece> PlanSession::pieces(std::span<const ArenaRange> ranges,
                                             HostCopies& here) const {
  std::vector<TensorPiece> all = stored_parameters(spec_.graph, store_, ranges, here);
  const std::vector<TensorPiece> states =
      stored_states(spec_.graph, store_, optimizer_.states(), ranges, here);
  all.insert(all.end(), states.begin(), states.end());
  return all;
}

// The mean of the running statistics stands for all replicas: each goes on linearly from it.
CheckpointReport PlanSession::save(const std::string& folder) {
  const Scope scope(*this);
  CheckpointState state;
  state.graph_hash = spec_.graph.hash();
  state.seed = spec_.seed;
  state.step = step_;
  state.optimizer_step = optimizer_.updates();
  state.data_position = step_ * spec_.plan().samples_per_step();
  const std::vector<Tensors> own = average_buffers();
  HostCopies here;
  std::vector<TensorPiece> mine = pieces(reducer_.counted(), here);
  for (const PipelineRunner::StageBuffers& part : runner_.buffers()) {
    if (part.replica != 0 || part.tensor_index != 0) continue;
    const std::vector<TensorPiece> buffers = stored_buffers(part.named, here);
    mine.insert(mine.end(), buffers.begin(), buffers.end());
  }
  const CheckpointReport report = save_checkpoint(world_, folder, state, mine);
  put_back(own);
  return report;
}

void PlanSession::restore(const std::string& folder) {
  const Scope scope(*this);
  const CheckpointReader reader(folder);
  reader.expect_graph(spec_.graph.hash());
  const ArenaRange all{0, store_.elements()};
  HostCopies here;
  std::vector<TensorPiece> mine = pieces(std::span(&all, 1), here);
  for (const PipelineRunner::StageBuffers& part : runner_.buffers()) {
    const std::vector<TensorPiece> buffers = stored_buffers(part.named, here);
    mine.insert(mine.end(), buffers.begin(), buffers.end());
  }
  reader.read(mine);
  here.put_back();
  step_ = reader.state().step;
  optimizer_.restore_updates(reader.state().optimizer_step);
  store_.publish();
  if (spec_.moved) store_.move(rounding_of(spec_.precision));
}

}  // namespace

std::unique_ptr<TrainingSession> start_training(const TrainingSpec& spec, Communicator& group,
                                                Communicator* devices) {
  check_training_spec(spec, group.size());
  check_agreement(spec, group);
  const RankMemory memory;
  use_threads(spec.threads);
  const MemoryScope charged(memory);
  const c10::InferenceMode no_tape;
  Accelerator* const accelerator = spec.gpu ? &use_cuda(*spec.gpu) : nullptr;
  if (accelerator != nullptr) accelerator->reset_peak(*spec.gpu);
  return std::make_unique<PlanSession>(spec, group, devices, memory, accelerator);
}

}  // namespace heteroperf
