#pragma once

#include <string>
#include <vector>

#include "automl/trial.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// The trials of an earlier search and of those it started from itself, oldest first. Throws
/// UserError when `folder`, or one that its run names, is no run folder of a search or is damaged.
std::vector<HistoryEntry> read_search_history(const std::string& folder);

/// The part of read_search_history that reads no journal: throws where there is none.
void expect_search_history(const std::string& folder);

/// Throws UserError unless a search of `workload` can start from these trials: at least one, all on
/// samples and classes like the workload's, no architecture twice.
void check_search_history(const std::vector<HistoryEntry>& history, const Workload& workload,
                          const std::string& folder);

}  // namespace heteroperf
