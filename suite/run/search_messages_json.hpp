#pragma once

#include <string>
#include <variant>
#include <vector>

#include "automl/trial_master.hpp"
#include "results/journal.hpp"

namespace heteroperf {

/// What a group's leader tells the trial master over the control channel. The first two are
/// questions, the last one has no answer.
struct TrialRequest {
  GroupId group;
};
struct MilestoneReport {
  GroupId group;
  TrialReport report;
};
struct GroupEnd {
  GroupId group;
  std::string lost_reason;       ///< empty: it leaves in order
  std::uint64_t steps_done = 0;  ///< of the trial that a lost group trained
};
using SearchQuestion = std::variant<TrialRequest, MilestoneReport, GroupEnd>;

std::string to_text(const SearchQuestion& question);
SearchQuestion search_question_from_text(const std::string& text);

std::string to_text(const Assignment& assignment);
Assignment assignment_from_text(const std::string& text);
std::string to_text(const Decision& decision);
Decision decision_from_text(const std::string& text);

/// The hyper-parameters as a journal line keeps them.
std::string to_text(const HyperParameters& hyper);

/// The trials of an earlier run in its order of outcomes, for TrialMaster::restore.
std::vector<HistoryEntry> history_from_journal(const Journal& journal);

}  // namespace heteroperf
