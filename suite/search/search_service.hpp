#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "automl/trial_master.hpp"
#include "results/journal/journal.hpp"
#include "runners/comm/control_channel.hpp"
#include "suite/ranks/rank_context.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// A message of a group's leader to rank 0 over the control channel. Without anything but the group
/// it asks for a trial and is answered with an Assignment.
struct SearchQuestion {
  GroupId group;
  std::optional<TrialReport> report = {};  ///< the answer is a Decision
  /// The group has done its warm-up. The answer is when all groups end, in nanoseconds on rank 0's
  /// monotonic clock, and empty while a group has not come; it may be asked for again.
  bool measures = false;
  /// The group asks no more, which has no answer. A lost group says why and how many steps of its
  /// trial it had done; one that leaves in order has no reason.
  std::optional<std::pair<std::string, std::uint64_t>> end = {};
};
std::string to_text(const SearchQuestion& question);

/// Why a group got no further trial.
struct SearchEnd {
  enum class Kind { ordinary, early, failed };
  Kind kind = Kind::ordinary;  ///< early: before the run's time or steps were used up
  std::string reason;          ///< empty: every group stopped asking
};

/// Rank 0's side of a search: the trial master, answering groups over the control channel and
/// writing every trial into the journal in the master's order. It also tells all groups one moment
/// to end at: the run's duration after the last of them has begun to measure.
class SearchService {
 public:
  /// Restores `automl.history` when the configuration names a run. `config` outlives it.
  SearchService(const RunConfig& config, const Workload& workload, int groups,
                JournalWriter& journal);

  void answer(const std::string& question, ControlChannel::Reply reply);
  /// No more trials from now on.
  void close(const std::string& reason);
  /// Writes the master's own numbers into the journal; once no group asks any more.
  void record_statistics();
  /// Why the first group that was told to end got no trial. Call it once no group asks any more.
  SearchEnd end() const;

 private:
  std::optional<std::int64_t> count_in(GroupId group);
  void record_start(GroupId group, const Trial& trial);
  void record_outcome(GroupId group, const Trial& trial, const TrialOutcome& outcome);

  JournalWriter& journal_;
  const std::size_t groups_;
  const MeasureConfig& measure_;
  mutable std::mutex end_mutex_;  // guards the next three
  std::string end_reason_;
  std::set<std::int32_t> counted_in_;  // groups that measure, or ask for no trial any more
  std::optional<std::int64_t> common_end_ns_;
  std::map<std::uint64_t, std::int64_t> started_ns_;
  std::unique_ptr<TrialMaster> master_;
};

/// Steps of a trial that passes all rungs.
std::uint64_t last_milestone(const AutomlConfig& automl);

/// Groups of a search: ranks / automl.group_ranks. Throws UserError when they do not divide.
int search_groups(const RunConfig& config, int ranks);

/// The training of the model that the search starts from, by one group.
TrainingSpec first_trial_spec(const RankContext& context, const Workload& workload);

/// The body of one rank of a search: its group asks the master for trials and trains them until the
/// duration or the steps are used up. `service` is rank 0's, else null.
void run_search(RankContext& context, const Workload& workload, SearchService* service);

/// The trials of an earlier search and of those it started from itself, oldest first. Throws
/// UserError when `folder`, or one that its run names, is no run folder of a search or is damaged.
std::vector<HistoryEntry> read_search_history(const std::string& folder);

/// Throws UserError unless a search of `workload` can start from the trials of `folder`: at least
/// one, all on samples and classes like the workload's, no architecture twice. Without a workload
/// the journal need only be there and is not read.
void check_search_history(const std::string& folder, const Workload* workload);

}  // namespace heteroperf
