#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "automl/trial_master.hpp"
#include "results/journal/journal.hpp"
#include "runners/comm/control_channel.hpp"
#include "suite/config/run_config.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

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
  /// Restores `automl.history` when the configuration names a run.
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
  void note_end(const Assignment& assignment);
  void record_start(GroupId group, const Trial& trial);
  void record_outcome(GroupId group, const Trial& trial, const TrialOutcome& outcome);

  JournalWriter& journal_;
  const std::size_t groups_;
  const double duration_s_;
  const std::uint64_t steps_per_group_;
  mutable std::mutex end_mutex_;  // guards the next three
  std::string end_reason_;
  std::set<std::int32_t> counted_in_;  // groups that measure, or ask for no trial any more
  std::optional<std::int64_t> common_end_ns_;
  std::map<std::uint64_t, std::int64_t> started_ns_;
  std::unique_ptr<TrialMaster> master_;
};

}  // namespace heteroperf
