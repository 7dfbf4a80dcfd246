#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "automl/trial_master.hpp"

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
  /// Frees the model. Also called after an exception of the other two that ended the trial alone.
  virtual void end() = 0;

  /// Of the trial, also after an exception; 0 outside one.
  virtual std::uint64_t steps_done() const = 0;
  /// Whether an exception of begin or advance ends the trial alone; else it ends run_trials.
  virtual bool survives(const std::exception& error) const = 0;
  /// The run's time is over: no further trial is asked for.
  virtual bool over() const = 0;
};

/// One group's line to the master, however far away that is. Calls that answer block until then.
class MasterLink {
 public:
  virtual ~MasterLink() = default;
  virtual Assignment request_trial() = 0;
  virtual Decision report_milestone(const TrialReport& report) = 0;
  /// TrialMaster::group_left.
  virtual void leave() = 0;
  /// TrialMaster::group_lost.
  virtual void lose(const std::string& reason, std::uint64_t steps_done) noexcept = 0;
};

/// The body of one group: asks for trials and trains them until there is none or the runner is
/// over. An exception that the runner survives makes the trial `failed` with the exception's text;
/// any other is told to the master and leaves the loop.
void run_trials(MasterLink& master, TrialRunner& runner);

}  // namespace heteroperf
