#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/parameters/rank_share.hpp"
#include "runners/engine/training.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// One rank's device on a modelled timeline: an operation starts when the device is free and its
/// inputs have arrived, ends after its modelled time, and the rank sleeps to that end. Modelled
/// seconds count from the start of the step.
///
/// Order of calls in a step: start_step(); for every computation input_arrives() and finish();
/// note_reduction() at every REDUCE_GRAD and REDUCE_TIED; after the update finish_step().
class PacedTimeline {
 public:
  /// All references outlive the timeline. `clock_offset_ns` leads from this process's steady clock
  /// to rank 0's.
  PacedTimeline(const Pacing& pacing, Communicator& world, std::int64_t clock_offset_ns);

  /// Collective: a step starts, on every rank at the same real moment. `step` is the number of
  /// steps before this one.
  void start_step(std::uint64_t step);
  /// An input of the next computation is there from this moment on.
  void input_arrives(double modelled_s) { inputs_s_ = std::max(inputs_s_, modelled_s); }
  /// The real work of a computation has just been done, so many times the usual. Sleeps to its
  /// modelled end.
  void finish(const RankRole::Part& role, Op op, double work);
  /// The gradients of a stage are final here.
  void note_reduction(StageId stage, Op op);
  /// Collective: sleeps to the modelled end of the sums, of the optimizer for the stages of `parts`
  /// and of the agreement of all ranks.
  void finish_step(std::span<const RankShare::Part> parts);

  /// The modelled moment from which on the device is free.
  double free_s() const { return free_s_; }
  const PacingReport& report() const { return report_; }

 private:
  double duration_s(const RankRole::Part& role, Op op) const;
  std::int64_t real_ns(double modelled_s) const;
  void wait_until(double modelled_s);
  void sleep_to(double modelled_s);
  void choose_dilation();

  const Pacing& pacing_;
  const StageTimes* times_;  ///< those of the step under way
  int steps_to_calibration_;
  Communicator& world_;
  std::int64_t clock_offset_ns_;
  PacingReport report_;
  std::int64_t start_ns_ = 0;
  double free_s_ = 0, inputs_s_ = 0, cpu_start_s_ = 0;
  IdVector<StageId, double> gradients_s_;  ///< modelled end of its last gradient here
  std::vector<StageId> reduced_;           ///< in the order of REDUCE_GRAD
};

}  // namespace heteroperf
