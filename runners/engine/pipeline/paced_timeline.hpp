#pragma once

#include <cstdint>

#include "runners/engine/training.hpp"

namespace heteroperf {

/// One rank's device on a modelled timeline: an operation starts when the device is free and its
/// inputs have arrived, ends after its modelled time, and the rank sleeps to that end. Modelled
/// seconds count from the start of the step.
class PacedTimeline {
 public:
  explicit PacedTimeline(double dilation) { report_.dilation = dilation; }

  /// A step starts, on every rank at the same real time `start_ns` (steady clock of this process).
  void start_step(std::int64_t start_ns);
  /// An operation whose inputs arrive at `inputs_s` and that takes `duration_s`: the real work has
  /// just been done. Sleeps to the modelled end and returns it.
  double finish(double inputs_s, double duration_s);
  /// Nothing of this rank runs before.
  void wait_until(double modelled_s);
  double free_s() const { return free_s_; }

  void end_step();
  const PacingReport& report() const { return report_; }
  /// CPU seconds of the calling thread since the step's start.
  double worked_s() const;
  /// From the next step on; counts anew.
  void dilate(double dilation);

 private:
  std::int64_t real_ns(double modelled_s) const;
  void sleep_to(double modelled_s);

  PacingReport report_;
  std::int64_t start_ns_ = 0;
  double free_s_ = 0, cpu_start_s_ = 0;
};

}  // namespace heteroperf
