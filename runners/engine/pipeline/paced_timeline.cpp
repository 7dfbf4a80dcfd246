// Emulated devices. A paced rank computes the true numbers and keeps to a modelled timeline, so the
// length of its steps is the one that the simulator predicts, whatever the machine below. Modelled
// time is stretched by the *dilation*, so that the machine can keep up; an operation that ends more
// than a hundredth of a step after its modelled end is *late* and is counted.
#include "runners/engine/pipeline/paced_timeline.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "metrics/base/clock.hpp"
#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

/// The share of a step that an operation may end behind its modelled end.
constexpr double late_share = 0.01;

/// The dilation is that of the second step of a process: in the first, memory and code are cold.
constexpr int calibration_steps = 2;

double thread_cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

PacedTimeline::PacedTimeline(const Pacing& pacing, Communicator& world,
                             std::int64_t clock_offset_ns)
    : pacing_(pacing),
      times_(&pacing.times),
      steps_to_calibration_(pacing.dilation > 0 ? 0 : calibration_steps),
      world_(world),
      clock_offset_ns_(clock_offset_ns) {
  report_.dilation = pacing.dilation > 0 ? pacing.dilation : 1.0;
}

void PacedTimeline::start_step(std::uint64_t step) {
  const std::optional<Pacing::Change>& change = pacing_.change;
  times_ = change && step >= change->from_step ? &change->times : &pacing_.times;
  std::int64_t start_ns = now_ns() + clock_offset_ns_;
  world_.all_reduce(std::span<std::int64_t>(&start_ns, 1), Reduction::max);
  start_ns_ = start_ns - clock_offset_ns_;
  free_s_ = inputs_s_ = 0;
  cpu_start_s_ = thread_cpu_s();
  report_.worst_lateness_s = report_.computing_s = 0;
  gradients_s_.assign(times_->reduction_s.size(), 0);
  reduced_.clear();
}

double PacedTimeline::duration_s(const RankRole::Part& role, Op op) const {
  const StageTimes::Compute& times = times_->compute[role.stage][role.replica];
  switch (op) {
    case Op::forward:
      return times.forward_s;
    case Op::input_gradient:
      return times.input_gradient_s;
    case Op::weight_gradient:
      return times.weight_gradient_s;
    case Op::recompute:
      return times.recompute_s;
    // A loss over a set of micro-batches is counted with the forward passes of its stage.
    case Op::interact:
      return 0;
    default:
      return times.input_gradient_s + times.weight_gradient_s;
  }
}

// The real work may have taken less time than the modelled one, then the rank sleeps; or more, then
// it is late and later operations may catch up.
void PacedTimeline::finish(const RankRole::Part& role, Op op, double work) {
  const double computing_s = duration_s(role, op) * work;
  report_.computing_s += computing_s;
  free_s_ = std::max(free_s_, inputs_s_) + computing_s;
  inputs_s_ = 0;
  const std::int64_t now = now_ns();
  ++report_.operations;
  const double lateness_s = static_cast<double>(now - real_ns(free_s_)) * 1e-9;
  report_.worst_lateness_s = std::max(report_.worst_lateness_s, lateness_s);
  const double allowed_s = late_share * report_.step_s * report_.dilation;
  if (report_.step_s > 0 && lateness_s > allowed_s) ++report_.late;
  sleep_to(free_s_);
}

void PacedTimeline::note_reduction(StageId stage, Op op) {
  double& gradients_s = gradients_s_[stage];
  gradients_s = std::max(gradients_s, free_s_);
  if (op == Op::reduce_grad) reduced_.push_back(stage);
}

// A stage's sum follows the last gradient of its slowest replica; the sums of a rank follow one
// another, beside the computation; then comes the optimizer, then all ranks agree. predict() has
// the same order.
void PacedTimeline::finish_step(std::span<const RankShare::Part> parts) {
  const StageTimes& times = *times_;
  world_.all_reduce(std::span<double>(gradients_s_), Reduction::max);
  double summed_s = 0, optimizer_s = 0;
  for (const StageId stage : reduced_) {
    const double duration_s = times.reduction_s[stage];
    if (duration_s == 0) continue;
    summed_s = std::max(summed_s, gradients_s_[stage]) + duration_s;
  }
  for (const RankShare::Part& part : parts) {
    optimizer_s += times.optimizer_s[part.role.stage];
  }
  report_.computing_s += optimizer_s;
  wait_until(summed_s);
  // The update is done: what this waits for is not this rank's lateness.
  wait_until(free_s_ + optimizer_s);
  double end_s = free_s_ + times.agreement_s;
  world_.all_reduce(std::span<double>(&end_s, 1), Reduction::max);
  wait_until(end_s);
  report_.step_s = free_s_;
  if (steps_to_calibration_ > 0 && --steps_to_calibration_ == 0) choose_dilation();
}

// The ranks together may take half of the time of the cores.
void PacedTimeline::choose_dilation() {
  double worked_s = thread_cpu_s() - cpu_start_s_;
  world_.all_reduce(std::span<double>(&worked_s, 1));
  const double room_s = 0.5 * pacing_.cores * report_.step_s;
  report_.dilation = room_s > 0 ? std::max(1.0, worked_s / room_s) : 1.0;
  report_.operations = report_.late = 0;
}

std::int64_t PacedTimeline::real_ns(double modelled_s) const {
  return start_ns_ + static_cast<std::int64_t>(modelled_s * report_.dilation * 1e9);
}

void PacedTimeline::wait_until(double modelled_s) {
  free_s_ = std::max(free_s_, modelled_s);
  sleep_to(free_s_);
}

void PacedTimeline::sleep_to(double modelled_s) {
  using Clock = std::chrono::steady_clock;
  std::this_thread::sleep_until(Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(real_ns(modelled_s)))));
}

}  // namespace heteroperf
