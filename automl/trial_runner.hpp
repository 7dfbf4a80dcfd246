#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "automl/trial_master.hpp"

namespace heteroperf {

/// Trains trials on one group of ranks; the suite supplies it. All calls come from one thread:
/// begin, advance one or more times with growing arguments, end; then the next trial.
class TrialRunner {
 public:
  virtual ~TrialRunner() = default;

  /// Builds the model of `trial` with weights from its seed.
  virtual void begin(const Trial& trial) = 0;
  /// Trains until `until_step` optimizer steps since begin, then evaluates. May return early: when
  /// the trial diverged or failed (`health`), or when the run's time is over (fewer steps).
  virtual TrialReport advance(std::uint64_t until_step) = 0;
  /// Frees the model. It is also called after an exception of begin or advance that ended the
  /// trial.
  virtual void end() = 0;

  /// Returns the steps of the trial, also after an exception; 0 outside one.
  virtual std::uint64_t steps_done() const = 0;
  /// Says if an exception of begin or advance ends only the trial; else it ends run_trials.
  virtual bool survives(const std::exception& error) const = 0;
  /// Returns true once the run's time is over: no further trial is asked for.
  virtual bool over() const = 0;
};

/// The line of one group to the master, however far away that is. Calls block until the answer.
class MasterLink {
 public:
  virtual ~MasterLink() = default;
  virtual Assignment request_trial() = 0;
  virtual Decision report_milestone(const TrialReport& report) = 0;
  /// Calls TrialMaster::group_left.
  virtual void leave() = 0;
  /// Calls TrialMaster::group_lost.
  virtual void lose(const std::string& reason, std::uint64_t steps_done) noexcept = 0;
};

/// The body of one group: it asks for trials and trains them until there is none or the runner is
/// over. An exception that the runner survives makes the trial `failed` with the exception's text;
/// any other is told to the master and leaves the loop.
void run_trials(MasterLink& master, TrialRunner& runner);

}  // namespace heteroperf
