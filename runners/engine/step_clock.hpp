#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "runners/engine/training.hpp"

namespace heteroperf {

inline std::int64_t steady_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Splits a step's wall time: each lap goes to one part, so the parts add up.
class StepClock {
 public:
  StepClock() : start_ns_(steady_now_ns()), last_ns_(start_ns_) {}

  /// Since the last lap.
  void lap(double TimeSplit::*part) { lap_until(steady_now_ns(), part); }
  /// A wait that ended now for something that left its sender at `sent_ns`: until then its sender
  /// was not ready, after that it was under way.
  void lap_wait(std::int64_t sent_ns) {
    lap_until(std::clamp(sent_ns, last_ns_, std::max(last_ns_, steady_now_ns())),
              &TimeSplit::bubble_s);
    lap(&TimeSplit::communication_s);
  }
  /// Part of the last compute lap was something else.
  void move(double TimeSplit::*from, double TimeSplit::*to, double seconds) {
    split_.*from -= seconds;
    split_.*to += seconds;
  }

  void finish(StepReport& report) {
    lap(&TimeSplit::other_s);
    report.t_start_ns = start_ns_;
    report.t_end_ns = last_ns_;
    report.split = split_;
  }
  std::int64_t start_ns() const { return start_ns_; }

 private:
  void lap_until(std::int64_t now, double TimeSplit::*part) {
    split_.*part += static_cast<double>(now - last_ns_) * 1e-9;
    last_ns_ = now;
  }

  std::int64_t start_ns_, last_ns_;
  TimeSplit split_;
};

}  // namespace heteroperf
