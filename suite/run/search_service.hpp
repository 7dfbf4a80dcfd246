#pragma once

#include <map>
#include <memory>
#include <string>

#include "automl/trial_master.hpp"
#include "results/journal.hpp"
#include "runners/comm/control_channel.hpp"
#include "suite/run/run_config.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// Rank 0's side of a search: the trial master, answering groups over the control channel and
/// writing every trial into the journal in the master's order.
class SearchService {
 public:
  /// Restores `automl.history` when the configuration names a run.
  SearchService(const RunConfig& config, const Workload& workload, int groups,
                JournalWriter& journal);

  void answer(const std::string& question, ControlChannel::Reply reply);
  /// No more trials from now on.
  void close(const std::string& reason);
  MasterStatistics statistics() const { return master_->statistics(); }

 private:
  void record_start(GroupId group, const Trial& trial);
  void record_outcome(GroupId group, const Trial& trial, const TrialOutcome& outcome);

  JournalWriter& journal_;
  std::map<std::uint64_t, std::int64_t> started_ns_;
  std::unique_ptr<TrialMaster> master_;
};

}  // namespace heteroperf
