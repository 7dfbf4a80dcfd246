#include "automl/trial_runner.hpp"

namespace heteroperf {
namespace {

/// Runs a step of a trial; an exception that the runner survives becomes a failed report.
template <class Step>
TrialReport guarded(const TrialRunner& runner, const Trial& trial, Step step) {
  TrialReport report;
  try {
    report = step();
  } catch (const std::exception& error) {
    if (!runner.survives(error)) throw;
    report.health = TrialReport::Health::failed;
    report.reason = error.what();
    report.steps = runner.steps_done();
  }
  report.id = trial.id;
  return report;
}

/// Trains one trial, segment by segment, until the master says that it is over.
void run_trial(MasterLink& master, TrialRunner& runner, const Trial& trial) {
  TrialReport report = guarded(runner, trial, [&] {
    runner.begin(trial);
    return runner.advance(trial.steps);
  });
  for (;;) {
    const Decision decision = master.report_milestone(report);
    if (!decision.until_step) return;
    report = guarded(runner, trial, [&] { return runner.advance(*decision.until_step); });
  }
}

}  // namespace

void run_trials(MasterLink& master, TrialRunner& runner) {
  try {
    while (!runner.over()) {
      const Assignment assignment = master.request_trial();
      if (!assignment.trial) return;
      run_trial(master, runner, *assignment.trial);
      runner.end();
    }
    master.leave();
  } catch (const std::exception& error) {
    master.lose(error.what(), runner.steps_done());
    throw;
  }
}

}  // namespace heteroperf
