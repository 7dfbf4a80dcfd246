#include "automl/trial_master.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"

// Groups of ranks ask for trials and report results, each at its own pace. All state lies behind
// one mutex; answers leave through a queue of calls that are made without it. In virtual time the
// next event of every group is ordered by counted operations, and an event is answered only when no
// other group can still come before it.

namespace heteroperf {
namespace {

/// Calls that leave an object guarded by a mutex: they are posted under its lock, and made in order
/// without it. Where a call or another thread delivers at the same time, the deliverer at work
/// makes those calls as well, so that one call runs at a time.
class CallbackQueue {
 public:
  void post(std::function<void()> call) { calls_.push_back(std::move(call)); }

  /// `lock` is held on entry and on return. An exception of a call is thrown on once all calls are
  /// made (of several the first): a journal on a full disk must not keep a trial's answer back.
  void deliver(std::unique_lock<std::mutex>& lock) {
    if (delivering_) return;
    delivering_ = true;
    std::exception_ptr thrown;
    while (!calls_.empty()) {
      std::function<void()> call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      try {
        call();
      } catch (...) {
        if (!thrown) thrown = std::current_exception();
      }
      call = nullptr;  // objects that it owns may call back when they die
      lock.lock();
    }
    delivering_ = false;
    if (thrown) std::rethrow_exception(thrown);
  }

 private:
  std::deque<std::function<void()>> calls_;
  bool delivering_ = false;
};

/// The state of a group from the master's point of view.
enum class Activity {
  thinking,    ///< it has no trial; its request is still to come
  requesting,  ///< it waits for a trial
  training,    ///< its report is still to come
  reporting,   ///< it waits for a decision
  vanished,    ///< it was lost or left, which the others have not seen yet
  done,        ///< it gets nothing more
};

/// The trial of a group and the segment that it trains.
struct Training {
  Trial trial;
  Ops ops_per_step;
  std::uint64_t segment_end = 0;  ///< steps since the trial's start
  std::uint32_t rung = 0;         ///< the rung whose milestone comes next
  TrialOutcome outcome;           ///< filled in as it becomes known

  void take_over(const TrialReport& report) {
    outcome.quality = std::isfinite(report.quality) ? report.quality : 0.0;
    outcome.loss = report.loss;
    outcome.steps = report.steps;
    outcome.ops = ops_per_step * report.steps;
    outcome.reason = report.reason;
  }
};

/// A group of ranks: its state, its clock, and the callbacks that wait for an answer.
struct Group {
  GroupId id;
  std::uint32_t ranks = 1;
  Activity activity = Activity::thinking;
  Ops next_event;                           ///< its virtual time
  std::optional<std::uint64_t> steps_left;  ///< absent where there is no limit
  std::optional<Training> training;
  std::function<void(Assignment)> request_reply;
  std::function<void(Decision)> report_reply;
  TrialReport report;
  std::string lost_reason;  ///< empty where the group is not lost
  std::uint64_t lost_steps = 0;
  std::chrono::steady_clock::time_point waiting_since;

  bool waits() const {
    return activity == Activity::requesting || activity == Activity::reporting ||
           activity == Activity::vanished;
  }
  bool is_gone() const { return activity == Activity::vanished || activity == Activity::done; }
};

using Clock = std::chrono::steady_clock;

constexpr std::size_t kept_latencies = 4096;

}  // namespace

class TrialMaster::Impl {
 public:
  Impl(Search search, MasterOptions options, MasterObserver observer)
      : search_(std::move(search)),
        options_(std::move(options)),
        observer_(std::move(observer)),
        rungs_(options_.rungs) {
    HETEROPERF_EXPECT(!options_.group_ranks.empty() && options_.failures_in_a_row > 0);
    for (const std::uint32_t ranks : options_.group_ranks) {
      HETEROPERF_EXPECT(ranks > 0);
      Group& group = groups_.emplace_back();
      group.id = GroupId(groups_.size() - 1);
      group.ranks = ranks;
      order_.emplace(group.next_event, group.id);
      if (options_.steps_per_group > 0) group.steps_left = options_.steps_per_group;
    }
  }

  void restore(std::span<const HistoryEntry> history) {
    const std::lock_guard lock(mutex_);
    search_.restore(history);
    for (const HistoryEntry& entry : history) {
      if (!entry.outcome) continue;
      const auto& milestones = entry.outcome->milestones;
      const std::size_t count = std::min<std::size_t>(milestones.size(), rungs_.count());
      for (std::size_t rung = 0; rung < count; ++rung) {
        rungs_.record(static_cast<std::uint32_t>(rung), milestones[rung].quality,
                      milestones[rung].loss);
      }
    }
  }

  void request(GroupId id, std::function<void(Assignment)> reply) {
    const Clock::time_point came = Clock::now();
    std::unique_lock lock(mutex_);
    Group& group = at(id);
    if (group.is_gone()) {
      calls_.post([reply = std::move(reply), reason = gone_reason(group)] { reply({{}, reason}); });
      return calls_.deliver(lock);
    }
    HETEROPERF_EXPECT(group.activity == Activity::thinking);
    group.request_reply = std::move(reply);
    arrive(group, Activity::requesting, came, lock);
  }

  void report(GroupId id, TrialReport report, std::function<void(Decision)> reply) {
    const Clock::time_point came = Clock::now();
    std::unique_lock lock(mutex_);
    Group& group = at(id);
    if (group.is_gone()) {
      calls_.post([reply = std::move(reply)] { reply({}); });
      return calls_.deliver(lock);
    }
    HETEROPERF_EXPECT(group.activity == Activity::training);
    HETEROPERF_EXPECT(group.training->trial.id == report.id);
    group.report = std::move(report);
    group.report_reply = std::move(reply);
    arrive(group, Activity::reporting, came, lock);
  }

  void leave(GroupId id) {
    std::unique_lock lock(mutex_);
    Group& group = at(id);
    if (group.is_gone()) return;
    HETEROPERF_EXPECT(group.activity == Activity::thinking);
    arrive(group, Activity::vanished, Clock::now(), lock);
  }

  void lose(GroupId id, std::string reason, std::uint64_t steps) {
    std::unique_lock lock(mutex_);
    Group& group = at(id);
    if (group.is_gone()) return;
    ++statistics_.groups_lost;
    group.lost_reason = std::move(reason);
    group.lost_steps = steps;
    // A dropped callback may hold the last reference to something that calls back, so it is posted.
    calls_.post([dropped = std::pair(std::exchange(group.request_reply, {}),
                                     std::exchange(group.report_reply, {}))] {});
    arrive(group, Activity::vanished, Clock::now(), lock);
  }

  void close(std::string reason) {
    std::unique_lock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    if (no_more_.empty()) no_more_ = std::move(reason);
    answer_ready_groups();
    calls_.deliver(lock);
  }

  MasterStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    MasterStatistics statistics = statistics_;
    statistics.search = search_.statistics();
    if (!latencies_.empty()) {
      statistics.proposal_p50 = Seconds(quantile(latencies_, 0.5));
      statistics.proposal_p99 = Seconds(quantile(latencies_, 0.99));
    }
    statistics.idle = Seconds(static_cast<double>(idle_ns_) * 1e-9);
    return statistics;
  }

 private:
  Group& at(GroupId id) {
    HETEROPERF_EXPECT(id.value() >= 0 && id.index() < groups_.size());
    return groups_[id.index()];
  }

  /// Says why a group gets nothing more.
  std::string gone_reason(const Group& group) const {
    if (!group.lost_reason.empty()) return "the group was lost: " + group.lost_reason;
    return no_more_.empty() ? "the group is done" : no_more_;
  }

  // ---- The order of events

  /// Notes an event of a group, answers it or what it unblocks, and makes the calls.
  void arrive(Group& group, Activity activity, Clock::time_point came,
              std::unique_lock<std::mutex>& lock) {
    group.activity = activity;
    group.waiting_since = came;
    answer_ready_groups();
    calls_.deliver(lock);
  }

  /// In virtual time: answers while the earliest event has arrived. On the wall clock and after
  /// `close` the order does not matter, and everybody who waits is answered.
  void answer_ready_groups() {
    if (options_.clock == MasterClock::wall || closed_) {
      for (Group& group : groups_) {
        if (group.waits()) answer(group);
      }
      return;
    }
    while (!order_.empty() && at(order_.begin()->second).waits()) {
      answer(at(order_.begin()->second));
    }
  }

  /// Answers the event of a group that waits.
  void answer(Group& group) {
    const Activity activity = group.activity;
    if (activity != Activity::vanished) ++statistics_.answers;
    if (activity == Activity::requesting) answer_request(group);
    if (activity == Activity::reporting) answer_report(group);
    if (activity == Activity::vanished) answer_loss(group);
  }

  /// Call it just before a reply leaves: the group waited for all that came before, journal
  /// included.
  void count_idle(Clock::time_point came) {
    idle_ns_ += std::chrono::nanoseconds(Clock::now() - came).count();
  }

  /// Takes a group out of the order of events for good.
  void retire(Group& group) {
    order_.erase({group.next_event, group.id});
    group.activity = Activity::done;
  }

  // ---- Requests

  void answer_request(Group& group) {
    auto reply = std::exchange(group.request_reply, {});
    const Clock::time_point came = group.waiting_since;
    std::optional<Trial> trial = next_trial(group);
    if (!trial) {
      const std::string reason =
          no_more_.empty() ? fmt::format("its {} steps are done", options_.steps_per_group)
                           : no_more_;
      retire(group);
      return calls_.post([this, came, reply = std::move(reply), reason] {
        count_idle(came);
        reply({{}, reason});
      });
    }
    Training& training = group.training.emplace();
    training.outcome.id = trial->id;
    training.ops_per_step = ops_per_step(*trial, group.ranks);
    training.trial = *std::move(trial);
    start_segment(group);
    training.trial.steps = training.segment_end;
    calls_.post([this, id = group.id, came, reply = std::move(reply), trial = training.trial] {
      if (observer_.on_trial) observer_.on_trial(id, trial);
      count_idle(came);
      reply({trial, {}});
    });
  }

  /// Proposes a trial; nothing where the run or the group is at its end.
  std::optional<Trial> next_trial(const Group& group) {
    if (!no_more_.empty() || group.steps_left == 0u) return std::nullopt;
    const Clock::time_point start = Clock::now();
    try {
      Trial trial = search_.propose();
      latencies_.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      if (latencies_.size() > kept_latencies) latencies_.erase(latencies_.begin());
      return trial;
    } catch (const UserError& error) {
      no_more_ = error.what();
      return std::nullopt;
    }
  }

  /// Lets a group train up to the next milestone, or to the end of its steps.
  void start_segment(Group& group) {
    Training& training = *group.training;
    std::uint64_t steps = rungs_.milestone(training.rung) - training.segment_end;
    if (group.steps_left) {
      steps = std::min(steps, *group.steps_left);
      *group.steps_left -= steps;
    }
    training.segment_end += steps;
    group.activity = Activity::training;
    order_.erase({group.next_event, group.id});
    group.next_event += training.ops_per_step * steps;
    order_.emplace(group.next_event, group.id);
  }

  // ---- Reports

  /// Judges a report and lets the group go on or ends its trial.
  void answer_report(Group& group) {
    Training& training = *group.training;
    training.take_over(group.report);
    if (const std::optional<TrialState> end = judge(group)) return finish(group, *end);
    start_segment(group);
    calls_.post([this, came = group.waiting_since, reply = std::exchange(group.report_reply, {}),
                 until = training.segment_end, rung = training.rung] {
      count_idle(came);
      reply({until, rung, {}});
    });
  }

  /// Returns how the trial ends here; nothing when it goes on to the next rung.
  std::optional<TrialState> judge(Group& group) {
    Training& training = *group.training;
    std::string& reason = training.outcome.reason;
    const TrialReport& report = group.report;
    if (report.health == TrialReport::Health::failed) return TrialState::failed;
    if (report.health == TrialReport::Health::truncated) return TrialState::truncated;
    if (report.health == TrialReport::Health::diverged || !std::isfinite(report.quality)) {
      if (reason.empty()) reason = fmt::format("loss {}, quality {}", report.loss, report.quality);
      return TrialState::diverged;
    }
    if (report.steps < training.segment_end) {
      reason = closed_ ? no_more_
                       : fmt::format("its group stopped after {} of {} steps", report.steps,
                                     training.segment_end);
      return TrialState::truncated;
    }
    if (training.segment_end < rungs_.milestone(training.rung)) return out_of_steps(reason);
    return judge_milestone(group);
  }

  /// Records the result at a rung and applies the rung's verdict.
  std::optional<TrialState> judge_milestone(Group& group) {
    Training& training = *group.training;
    TrialOutcome& outcome = training.outcome;
    outcome.milestones.push_back({outcome.quality, outcome.loss});
    const RungVerdict verdict = rungs_.record(training.rung, outcome.quality, outcome.loss);
    if (verdict == RungVerdict::finished) return TrialState::completed;
    if (verdict == RungVerdict::stop) {
      outcome.reason = fmt::format("not among the best 1/{} of {} at {} steps", options_.rungs.eta,
                                   rungs_.recorded(training.rung), outcome.steps);
      return TrialState::stopped;
    }
    if (closed_) {
      outcome.reason = no_more_;
      return TrialState::truncated;
    }
    if (group.steps_left == 0u) return out_of_steps(outcome.reason);
    ++training.rung;
    return std::nullopt;
  }

  /// Ends a trial because its group has no steps left.
  TrialState out_of_steps(std::string& reason) const {
    reason = fmt::format("the group's {} steps are done", options_.steps_per_group);
    return TrialState::truncated;
  }

  /// Ends a group's trial, tells the search, and answers the report.
  void finish(Group& group, TrialState state) {
    Training training = std::move(*group.training);
    group.training.reset();
    group.activity = Activity::thinking;
    training.outcome.state = state;
    search_.report(training.outcome);
    count_failures(training.outcome);
    calls_.post([this, id = group.id, came = group.waiting_since,
                 reply = std::exchange(group.report_reply, {}), trial = std::move(training.trial),
                 outcome = std::move(training.outcome)] {
      if (observer_.on_outcome) observer_.on_outcome(id, trial, outcome);
      if (!reply) return;
      count_idle(came);
      reply({std::nullopt, 0, outcome});
    });
  }

  /// Closes the search after too many failed trials in a row.
  void count_failures(const TrialOutcome& outcome) {
    failures_ = outcome.state == TrialState::failed ? failures_ + 1 : 0;
    if (failures_ < options_.failures_in_a_row || !no_more_.empty()) return;
    statistics_.gave_up = true;
    no_more_ = fmt::format("{} trials in a row failed (the last: {})", failures_, outcome.reason);
  }

  /// Ends the trial of a lost group, whose clock stands at the planned end of its segment.
  void answer_loss(Group& group) {
    if (group.training) {
      Training& training = *group.training;
      training.outcome.steps = std::max(training.outcome.steps, group.lost_steps);
      training.outcome.ops = training.ops_per_step * training.outcome.steps;
      training.outcome.reason = group.lost_reason;
      finish(group, TrialState::failed);
    }
    retire(group);
  }

  mutable std::mutex mutex_;
  Search search_;
  MasterOptions options_;
  MasterObserver observer_;
  Rungs rungs_;
  std::vector<Group> groups_;
  std::set<std::pair<Ops, GroupId>> order_;  ///< next events of all groups that are not done
  bool closed_ = false;
  std::string no_more_;  ///< the reason why no further trial is handed out; empty while they are
  std::uint32_t failures_ = 0;
  CallbackQueue calls_;
  std::vector<double> latencies_;
  std::atomic<std::int64_t> idle_ns_{0};
  MasterStatistics statistics_;  ///< its counters; statistics() adds the rest
};

TrialMaster::TrialMaster(Search search, MasterOptions options, MasterObserver observer)
    : impl_(std::make_unique<Impl>(std::move(search), std::move(options), std::move(observer))) {}
TrialMaster::~TrialMaster() = default;

void TrialMaster::restore(std::span<const HistoryEntry> history) { impl_->restore(history); }
void TrialMaster::request_trial(GroupId group, std::function<void(Assignment)> reply) {
  impl_->request(group, std::move(reply));
}
void TrialMaster::report_milestone(GroupId group, TrialReport report,
                                   std::function<void(Decision)> reply) {
  impl_->report(group, std::move(report), std::move(reply));
}
void TrialMaster::group_left(GroupId group) { impl_->leave(group); }
void TrialMaster::group_lost(GroupId group, std::string reason, std::uint64_t steps) {
  impl_->lose(group, std::move(reason), steps);
}
void TrialMaster::close(std::string reason) { impl_->close(std::move(reason)); }
MasterStatistics TrialMaster::statistics() const { return impl_->statistics(); }

}  // namespace heteroperf
