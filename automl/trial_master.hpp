#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "automl/rungs.hpp"
#include "automl/search.hpp"
#include "automl/trial.hpp"
#include "metrics/base/quantity.hpp"

namespace heteroperf {

/// The order in which the master sees events.
enum class MasterClock {
  wall,                ///< the real order: the master answers at once
  counted_operations,  ///< virtual time: the same trials whatever the real timing
};

/// The answer to a request: a trial, or the reason why there is none (then the group is done).
struct Assignment {
  std::optional<Trial> trial;
  std::string reason;
  HETEROPERF_FIELDS(trial, reason);
};

/// The answer to a report.
struct Decision {
  /// The trial goes on until this many steps since its start; absent where the trial is over.
  std::optional<std::uint64_t> until_step;
  std::uint32_t rung = 0;               ///< the rung whose milestone `until_step` is
  std::optional<TrialOutcome> outcome;  ///< present where the trial is over
  HETEROPERF_FIELDS(until_step, rung, outcome);
};

/// Callbacks that are called in the master's order of events, one call at a time.
struct MasterObserver {
  std::function<void(GroupId, const Trial&)> on_trial;
  std::function<void(GroupId, const Trial&, const TrialOutcome&)> on_outcome;
};

struct MasterOptions {
  MasterClock clock = MasterClock::wall;
  std::vector<std::uint32_t> group_ranks{
      1};  ///< ranks of each group; there are as many groups as entries
  /// Optimizer steps per group over all its trials; 0 for no limit. The last trial is truncated to
  /// the rest. A segment that failed or diverged is charged in full.
  std::uint64_t steps_per_group = 0;
  RungOptions rungs;
  /// After so many consecutive failed trials of the whole run nothing more is handed out.
  std::uint32_t failures_in_a_row = 50;
};

struct MasterStatistics {
  SearchStatistics search;
  Seconds proposal_p50, proposal_p99;  ///< time to make one proposal, over the newest 4096
  Seconds idle;  ///< waiting of groups at the master, from arrival to answer, summed
  std::uint64_t answers = 0;
  std::uint64_t groups_lost = 0;
  bool gave_up = false;  ///< so many trials failed in a row that no more are handed out
};

/// Hands trials to groups of ranks as they become free.
///
/// It is thread-safe. Every call returns at once and answers by callback, now or later, in
/// whichever thread makes the answer possible, never under a lock: a callback may call the master.
/// Callbacks should be short, because they run one at a time. An exception of one, as for a journal
/// on a full disk, is thrown in that thread once the others have been called.
///
/// In virtual time each group has a clock that a segment of training advances by its strict
/// operations (steps × batch × operations per sample × ranks), known when the segment starts. An
/// event (request or report) at virtual time t is answered when no other active group can still
/// produce an earlier one (ties: lower group first), so it sees exactly the outcomes earlier in
/// virtual time (conservative discrete-event order: Chandy and Misra, 1979). A segment that
/// diverges or fails is seen at its planned end. Every group must ask for trials until it gets
/// none, leave, or be declared lost: the others wait for it.
class TrialMaster {
 public:
  /// There is a group, and every group has a rank. The observer may be empty.
  TrialMaster(Search search, MasterOptions options, MasterObserver observer = {});
  ~TrialMaster();

  /// Takes trials and outcomes of an earlier run, in its order of outcomes; before any request.
  void restore(std::span<const HistoryEntry> history);

  /// Asks for a trial, for a group that has none. A lost or finished group gets none.
  void request_trial(GroupId group, std::function<void(Assignment)> reply);

  /// Reports that the group has finished a segment, or that its trial broke. Reports of a lost
  /// group are answered with "over" and otherwise ignored.
  void report_milestone(GroupId group, TrialReport report, std::function<void(Decision)> reply);

  /// Says that the group, which has no trial, asks for nothing more: the others no longer wait for
  /// it.
  void group_left(GroupId group);

  /// Says that the group has vanished. Its trial (if any) becomes failed with `reason` after
  /// `steps` optimizer steps since its start, and its waiting call is never answered. May be called
  /// more than once.
  void group_lost(GroupId group, std::string reason, std::uint64_t steps = 0);

  /// Hands out no more trials, truncates running ones at their next report, and answers all who
  /// wait.
  void close(std::string reason = "the run is over");

  MasterStatistics statistics() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heteroperf
