#include "runners/engine/training_session.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "metrics/error.hpp"
#include "metrics/hash.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/batch_loader.hpp"
#include "runners/engine/graph_executor.hpp"
#include "runners/engine/operation_observer.hpp"
#include "runners/engine/optimizer.hpp"
#include "runners/engine/parameter_store.hpp"
#include "runners/engine/peak_rate.hpp"
#include "runners/engine/spec_check.hpp"

namespace heteroperf {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Splits a step's wall time: each lap goes to one part, so the parts add up.
class StepClock {
 public:
  StepClock() : start_ns_(now_ns()), last_ns_(start_ns_) {}

  void lap(double TimeSplit::*part) {
    const std::int64_t now = now_ns();
    split_.*part += static_cast<double>(now - last_ns_) * 1e-9;
    last_ns_ = now;
  }
  void finish(StepReport& report) {
    lap(&TimeSplit::other_s);
    report.t_start_ns = start_ns_;
    report.t_end_ns = last_ns_;
    report.split = split_;
  }

 private:
  std::int64_t start_ns_, last_ns_;
  TimeSplit split_;
};

DataType data_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? DataType::f64 : DataType::f32;
}

std::uint64_t digest(const TrainingSpec& spec) {
  const OptimizerRecipe& r = spec.recipe;
  Hash128 hash("training");
  hash.update(spec.graph.hash()).update(spec.data->fingerprint()).update(spec.precision);
  hash.update(spec.micro_batch).update(spec.micro_batches).update(spec.seed);
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
                  "model, data, recipe, batch or seed differ",
                  "Start every rank with the same arguments and the same files");
}

class DataParallelSession final : public TrainingSession {
 public:
  DataParallelSession(const TrainingSpec& spec, Communicator& group, RankMemory memory);

  StepReport step() override;
  StepReport observed_step(ObservedOperations& observed) override;
  EvaluationReport evaluate(std::uint64_t samples) override;
  std::string parameter_fingerprint() const override { return store_.fingerprint(); }
  MemoryReport memory() const override;

 private:
  /// What every call of the session runs under: charged to this rank, without autograd.
  struct Scope {
    explicit Scope(const DataParallelSession& session) : charged(session.memory_) {
      use_threads(session.spec_.threads);
    }
    MemoryScope charged;
    c10::InferenceMode no_tape;
  };

  StepReport run_step();
  double run_micro_batches(StepClock& clock);
  double train_micro_batch(std::int64_t index, StepClock& clock);
  double reduce(double local_loss);
  void finish_update(StepReport& report);
  std::vector<double> score_own_batches(std::uint64_t samples);
  Tensors average_buffers();

  std::uint64_t ranks() const { return static_cast<std::uint64_t>(group_.size()); }
  std::uint64_t rank() const { return static_cast<std::uint64_t>(group_.rank().value()); }
  std::uint64_t samples_per_step() const;
  double loss_scale() const;

  TrainingSpec spec_;
  Communicator& group_;
  RankMemory memory_;
  ParameterStore store_;
  GraphExecutor executor_;
  Optimizer optimizer_;
  BatchLoader loader_;
  std::uint64_t step_ = 0;
};

DataParallelSession::DataParallelSession(const TrainingSpec& spec, Communicator& group,
                                         RankMemory memory)
    : spec_(spec),
      group_(group),
      memory_(std::move(memory)),
      store_(spec_.graph, spec_.precision, spec_.seed),
      executor_(spec_.graph, store_, Fusion::on),
      optimizer_(spec_.recipe, store_),
      loader_(spec_.data, executor_.type(), spec_.seed) {}

std::uint64_t DataParallelSession::samples_per_step() const {
  return ranks() * static_cast<std::uint64_t>(spec_.micro_batch * spec_.micro_batches);
}

// Every sample has the same number of targets, so each micro-batch weighs the same.
double DataParallelSession::loss_scale() const {
  return 1.0 / (static_cast<double>(ranks()) * static_cast<double>(spec_.micro_batches));
}

StepReport DataParallelSession::step() {
  const Scope scope(*this);
  return run_step();
}

StepReport DataParallelSession::observed_step(ObservedOperations& observed) {
  const Scope scope(*this);
  const OperationObserver observer;
  const StepReport report = run_step();
  observed = observer.observed();
  return report;
}

StepReport DataParallelSession::run_step() {
  StepClock clock;
  StepReport report;
  report.step = step_;
  report.samples = samples_per_step();
  report.learning_rate = learning_rate_at(spec_.recipe, step_);
  const double local_loss = run_micro_batches(clock);
  report.loss = reduce(local_loss);
  clock.lap(&TimeSplit::communication_s);
  finish_update(report);
  clock.lap(&TimeSplit::compute_s);
  ++step_;
  clock.finish(report);
  return report;
}

double DataParallelSession::run_micro_batches(StepClock& clock) {
  double loss = 0;
  for (std::int64_t index = 0; index < spec_.micro_batches; ++index) {
    loss += train_micro_batch(index, clock);
  }
  return loss * loss_scale();
}

// Micro-batches are numbered through the ranks: k ranks see the samples that one rank with k times
// the micro-batches sees.
double DataParallelSession::train_micro_batch(std::int64_t index, StepClock& clock) {
  const auto number =
      rank() * static_cast<std::uint64_t>(spec_.micro_batches) + static_cast<std::uint64_t>(index);
  const std::uint64_t first = number * static_cast<std::uint64_t>(spec_.micro_batch);
  clock.lap(&TimeSplit::other_s);
  const Batch batch = loader_.train(step_ * samples_per_step() + first, spec_.micro_batch);
  clock.lap(&TimeSplit::data_s);
  PassContext context;
  context.seed = spec_.seed;
  context.step = step_;
  context.first_sample = first;
  context.loss_scale = loss_scale();
  const bool first_of_step = index == 0;
  // In bf16 each micro-batch overwrites and the float32 sum adds.
  context.accumulation = first_of_step || spec_.precision == Precision::bf16
                             ? Accumulation::overwrite
                             : Accumulation::add;
  const double loss = executor_.train(batch.sample, batch.targets, context);
  store_.collect_gradients(first_of_step ? ParameterStore::Collect::overwrite
                                         : ParameterStore::Collect::add);
  clock.lap(&TimeSplit::compute_s);
  return loss;
}

// The loss rides behind the gradients, so that one rank's NaN reaches every rank's decision.
double DataParallelSession::reduce(double local_loss) {
  if (group_.size() == 1) return local_loss;
  const at::Tensor& gradient = store_.reduced_gradient();
  at::Tensor place = gradient.narrow(0, store_.elements(), 1);
  place.fill_(local_loss);
  group_.all_reduce(MutableBuffer(gradient.mutable_data_ptr(),
                                  static_cast<std::size_t>(gradient.numel()), data_type(gradient)));
  return place.item().toDouble();
}

void DataParallelSession::finish_update(StepReport& report) {
  report.gradient_norm = optimizer_.gradient_norm();
  if (!std::isfinite(report.loss) || !std::isfinite(report.gradient_norm)) return;
  optimizer_.update(report.learning_rate, report.gradient_norm);
}

EvaluationReport DataParallelSession::evaluate(std::uint64_t samples) {
  const Scope scope(*this);
  EvaluationReport report;
  report.t_start_ns = now_ns();
  report.samples = std::min(samples, spec_.data->size(Split::validation));
  if (report.samples == 0) {
    throw UserError("there is nothing to evaluate on",
                    "0 validation samples asked for or there: " + spec_.data->description(),
                    "Use data with a validation split");
  }
  const Tensors own = average_buffers();
  const std::vector<double> scores = score_own_batches(report.samples);
  const Tensors present = executor_.buffers();
  for (std::size_t i = 0; i < own.size(); ++i) at::Tensor(present[i]).copy_(own[i]);

  const std::size_t batches = scores.size() - 2;
  double loss = 0;
  for (std::size_t b = 0; b < batches; ++b) loss += scores[b];
  report.loss = loss / scores[batches + 1];
  report.accuracy = scores[batches] / scores[batches + 1];
  report.t_end_ns = now_ns();
  return report;
}

// One slot per batch, filled by one rank each: the sum does not depend on the number of ranks.
// Behind them the right answers and the targets, exact as doubles.
std::vector<double> DataParallelSession::score_own_batches(std::uint64_t samples) {
  const auto width = static_cast<std::uint64_t>(spec_.micro_batch);
  const std::uint64_t batches = (samples + width - 1) / width;
  std::vector<double> scores(batches + 2);
  for (std::uint64_t b = rank(); b < batches; b += ranks()) {
    const std::uint64_t count = std::min(width, samples - b * width);
    const Batch batch = loader_.validation(b * width, static_cast<std::int64_t>(count));
    const BatchScore score = executor_.evaluate(batch.sample, batch.targets);
    scores[b] = score.loss * static_cast<double>(score.targets);
    scores[batches] += static_cast<double>(score.correct);
    scores[batches + 1] += static_cast<double>(score.targets);
  }
  group_.all_reduce(std::span<double>(scores));
  return scores;
}

// Each rank's running statistics come from its own micro-batches; every rank evaluates with their
// mean. Returns the rank's own, to be put back.
Tensors DataParallelSession::average_buffers() {
  Tensors own;
  if (group_.size() == 1) return own;
  std::vector<double> flat;
  const Tensors buffers = executor_.buffers();
  for (const at::Tensor& buffer : buffers) {
    own.push_back(buffer.clone());
    const at::Tensor wide = buffer.to(at::kDouble).contiguous();
    const auto* data = wide.const_data_ptr<double>();
    flat.insert(flat.end(), data, data + wide.numel());
  }
  if (flat.empty()) return own;
  group_.all_reduce(std::span<double>(flat), Reduction::average);
  auto* next = flat.data();
  for (at::Tensor buffer : buffers) {
    buffer.copy_(at::from_blob(next, buffer.sizes(), at::TensorOptions().dtype(at::kDouble)));
    next += buffer.numel();
  }
  return own;
}

MemoryReport DataParallelSession::memory() const {
  const MemoryUse use = memory_.use();
  return {use.peak_bytes, use.current_bytes, process_peak_resident_bytes()};
}

}  // namespace

std::unique_ptr<TrainingSession> start_training(const TrainingSpec& spec, Communicator& group) {
  check_training_spec(spec, group.size());
  check_agreement(spec, group);
  const RankMemory memory;
  use_threads(spec.threads);
  const MemoryScope charged(memory);
  const c10::InferenceMode no_tape;
  return std::make_unique<DataParallelSession>(spec, group, memory);
}

}  // namespace heteroperf
