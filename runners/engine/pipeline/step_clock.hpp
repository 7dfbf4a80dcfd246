#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "metrics/base/clock.hpp"
#include "runners/device/accelerator.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

/// Splits a step's wall time into lanes. Each lap reaches from the end of the lap before to now and
/// belongs to one lane, so the lanes add up to the step.
class StepClock {
 public:
  /// A step starts now. Until finish() every lap is appended to `lanes`; null: the step is not
  /// traced.
  void start(std::vector<LaneSpan>* lanes) {
    *this = StepClock();
    start_ns_ = last_ns_ = now_ns();
    lanes_ = lanes;
  }

  /// The instruction that the laps from here on belong to; −1: none.
  void at(std::int32_t instruction) { instruction_ = instruction; }
  /// Notes the lane of the work under way, which a sum in between interrupts (SumLap).
  void doing(TimeLane lane) { doing_ = lane; }
  TimeLane doing() const { return doing_; }

  /// The time since the last lap belongs to `lane`.
  void lap(TimeLane lane) { lap_until(now_ns(), lane); }
  /// A wait that ended now for something that left its sender at `sent_ns`: until then its sender
  /// was not ready, after that it was under way.
  void lap_wait(std::int64_t sent_ns) {
    lap_until(std::clamp(sent_ns, last_ns_, std::max(last_ns_, now_ns())), TimeLane::waiting);
    lap(TimeLane::messages);
  }

  void finish(StepReport& report) {
    lap(TimeLane::other);
    report.t_start_ns = start_ns_;
    report.t_end_ns = last_ns_;
    report.split = split_;
    lanes_ = nullptr;
  }
  std::int64_t start_ns() const { return start_ns_; }
  /// The computing of the step so far.
  double compute_s() const { return split_.compute_s; }

 private:
  /// The part of the split that each lane belongs to.
  static constexpr std::array<double TimeSplit::*, 7> parts{
      &TimeSplit::compute_s,        // compute
      &TimeSplit::communication_s,  // messages
      &TimeSplit::communication_s,  // sums
      &TimeSplit::compute_s,        // optimizer
      &TimeSplit::data_s,           // data
      &TimeSplit::bubble_s,         // waiting
      &TimeSplit::other_s,          // other
  };

  void lap_until(std::int64_t now, TimeLane lane) {
    split_.*parts.at(static_cast<std::size_t>(lane)) += static_cast<double>(now - last_ns_) * 1e-9;
    if (lanes_ != nullptr) note(now, lane);
    last_ns_ = now;
  }

  /// Laps of one kind that follow each other are one span.
  void note(std::int64_t now, TimeLane lane) {
    if (now == last_ns_) return;
    if (!lanes_->empty()) {
      LaneSpan& before = lanes_->back();
      if (before.lane == lane && before.instruction == instruction_ && before.end_ns == last_ns_) {
        before.end_ns = now;
        return;
      }
    }
    lanes_->push_back({lane, instruction_, last_ns_, now});
  }

  std::int64_t start_ns_ = 0, last_ns_ = 0;
  TimeSplit split_;
  TimeLane doing_ = TimeLane::other;
  std::int32_t instruction_ = -1;
  std::vector<LaneSpan>* lanes_ = nullptr;
};

/// Notes a sum that interrupts other work: the time before it belongs to that work, the time of
/// this object's life to the lane of sums.
class SumLap {
 public:
  /// Null: nobody keeps time.
  explicit SumLap(StepClock* clock) : clock_(clock) {
    if (clock_ != nullptr) clock_->lap(clock_->doing());
  }
  ~SumLap() {
    if (clock_ != nullptr) clock_->lap(TimeLane::sums);
  }
  SumLap(const SumLap&) = delete;
  SumLap& operator=(const SumLap&) = delete;

 private:
  StepClock* clock_;
};

/// The time that a device takes for the work of a step, by its own clock: the host only hands the
/// work over.
class DeviceTimes {
 public:
  /// Null: the host computes, and nothing is noted.
  explicit DeviceTimes(Accelerator* accelerator) : accelerator_(accelerator) {}

  /// `start_ns` is the present moment on the host's clock.
  void begin_step(std::int64_t start_ns) {
    times_.clear();
    start_ns_ = start_ns;
    if (accelerator_ != nullptr) start_ = accelerator_->mark();
  }

  /// The work that the host hands over between begin() and end() is timed. `instruction` is the one
  /// that it belongs to, if any.
  void begin() {
    if (accelerator_ != nullptr) times_.push_back({accelerator_->mark(), nullptr, {}, nullptr});
  }
  /// finish() also adds the time to `sum`, if there is one.
  void end(std::optional<std::int32_t> instruction = {}, double* sum = nullptr) {
    if (accelerator_ == nullptr) return;
    times_.back().end = accelerator_->mark();
    times_.back().instruction = instruction;
    times_.back().sum = sum;
  }

  /// The sum of the step's times, once the device has done the work. Those of instructions are
  /// appended to `lanes`, unless it is null.
  double finish(std::vector<LaneSpan>* lanes) {
    const auto nanoseconds = [](double s) { return static_cast<std::int64_t>(s * 1e9); };
    double sum = 0;
    for (const Time& time : times_) {
      const double seconds = time.end->seconds_since(*time.begin);
      sum += seconds;
      if (time.sum != nullptr) *time.sum += seconds;
      if (!time.instruction || lanes == nullptr) continue;
      const std::int64_t begin_ns = start_ns_ + nanoseconds(time.begin->seconds_since(*start_));
      lanes->push_back({TimeLane::overlapped_device, *time.instruction, begin_ns,
                        begin_ns + nanoseconds(seconds)});
    }
    times_.clear();
    return sum;
  }

 private:
  struct Time {
    std::unique_ptr<Accelerator::Mark> begin, end;
    std::optional<std::int32_t> instruction;
    double* sum = nullptr;
  };

  Accelerator* accelerator_;
  std::int64_t start_ns_ = 0;
  std::unique_ptr<Accelerator::Mark> start_;
  std::vector<Time> times_;
};

}  // namespace heteroperf
