#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "metrics/base/clock.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

/// Splits a step's wall time: each lap goes from the end of the one before to now and to one lane,
/// so the lanes add up.
class StepClock {
 public:
  /// `lanes`: every lap is appended to them; null: the step is not traced.
  explicit StepClock(std::vector<LaneSpan>* lanes = nullptr)
      : start_ns_(now_ns()), last_ns_(start_ns_), lanes_(lanes) {}

  /// The instruction that the laps from here on belong to; −1: none.
  void at(std::int32_t instruction) { instruction_ = instruction; }
  /// Notes what is under way, for whoever interrupts it with a lap of its own (SumLap).
  void doing(TimeLane lane) { doing_ = lane; }
  TimeLane doing() const { return doing_; }

  /// Since the last lap.
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
  }
  std::int64_t start_ns() const { return start_ns_; }

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

  std::int64_t start_ns_, last_ns_;
  TimeSplit split_;
  TimeLane doing_ = TimeLane::other;
  std::int32_t instruction_ = -1;
  std::vector<LaneSpan>* lanes_;
};

/// Its life is a sum amid something else, to which what came before belongs.
class SumLap {
 public:
  /// Null: nobody asks where the time goes.
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

}  // namespace heteroperf
