#pragma once

#include <cstdint>

#include "automl/trial.hpp"

namespace heteroperf {

/// Trains trials on one group of ranks; the suite supplies it. Calls: begin, advance one or more
/// times with growing arguments, end; then the next trial. One thread.
class TrialRunner {
 public:
  virtual ~TrialRunner() = default;

  /// Builds the model of `trial` with weights from its seed.
  virtual void begin(const Trial& trial) = 0;
  /// Trains until `until_step` optimizer steps since begin, then evaluates. May return early: when
  /// the trial diverged or failed (`health`), or when the run's time is over (fewer steps).
  virtual TrialReport advance(std::uint64_t until_step) = 0;
  /// Frees the model. Also called after an exception of the other two.
  virtual void end() = 0;
};

class TrialMaster;

/// Asks `master` for trials and trains them until it has no more. An exception of the runner makes
/// the trial `failed` with the exception's text; the loop goes on. Blocks in the caller's thread.
void run_trials(TrialMaster& master, GroupId group, TrialRunner& runner);

}  // namespace heteroperf
