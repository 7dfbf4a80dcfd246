#include "automl/trial_runner.hpp"

#include <exception>
#include <future>
#include <memory>

#include "automl/trial_master.hpp"

namespace heteroperf {
namespace {

/// Waits for a reply. Nothing when the master drops the callback: the group was declared lost.
template <class Reply, class Ask>
std::optional<Reply> reply_to(Ask ask) {
  auto promise = std::make_shared<std::promise<Reply>>();
  std::future<Reply> reply = promise->get_future();
  ask([owned = std::move(promise)](Reply value) { owned->set_value(std::move(value)); });
  try {
    return reply.get();
  } catch (const std::future_error&) {
    return std::nullopt;
  }
}

/// Runs one step of a trial; an exception becomes a failed report.
template <class Step>
TrialReport guarded(const Trial& trial, std::uint64_t steps_done, Step step) {
  TrialReport report;
  try {
    report = step();
  } catch (const std::exception& error) {
    report.health = TrialReport::Health::failed;
    report.reason = error.what();
    report.steps = steps_done;
  }
  report.id = trial.id;
  return report;
}

void run_one(TrialMaster& master, GroupId group, TrialRunner& runner, const Trial& trial) {
  TrialReport report = guarded(trial, 0, [&] {
    runner.begin(trial);
    return runner.advance(trial.steps);
  });
  while (true) {
    const auto decision = reply_to<Decision>(
        [&](auto reply) { master.report_milestone(group, report, std::move(reply)); });
    if (!decision || !decision->until_step) return;
    report = guarded(trial, report.steps, [&] { return runner.advance(*decision->until_step); });
  }
}

}  // namespace

void run_trials(TrialMaster& master, GroupId group, TrialRunner& runner) {
  try {
    while (true) {
      const auto assignment =
          reply_to<Assignment>([&](auto reply) { master.request_trial(group, std::move(reply)); });
      if (!assignment || !assignment->trial) return;
      run_one(master, group, runner, *assignment->trial);
      runner.end();
    }
  } catch (const std::exception& error) {
    master.group_lost(group, error.what());
    throw;
  }
}

}  // namespace heteroperf
