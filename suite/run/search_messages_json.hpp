#pragma once

#include <string>
#include <variant>
#include <vector>

#include "automl/trial_master.hpp"
#include "results/journal.hpp"

namespace heteroperf {

/// What a group's leader asks the trial master over the control channel.
struct TrialRequest {
  GroupId group;
};
struct MilestoneReport {
  GroupId group;
  TrialReport report;
};
using SearchQuestion = std::variant<TrialRequest, MilestoneReport>;

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
