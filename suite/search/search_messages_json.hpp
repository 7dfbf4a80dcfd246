#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "automl/trial_master.hpp"

namespace heteroperf {

/// The messages of a group's leader to rank 0 over the control channel. All but the last one are
/// questions.
struct TrialRequest {
  GroupId group;
};
struct MilestoneReport {
  GroupId group;
  TrialReport report;
};
/// The group has done its warm-up. The answer is when all groups end (`end_from_text`); it may be
/// asked for again.
struct MeasureEntry {
  GroupId group;
};
struct GroupEnd {
  GroupId group;
  std::string lost_reason;       ///< empty: it leaves in order
  std::uint64_t steps_done = 0;  ///< the lost group had done in its trial
};
using SearchQuestion = std::variant<TrialRequest, MilestoneReport, MeasureEntry, GroupEnd>;

std::string to_text(const SearchQuestion& question);
SearchQuestion search_question_from_text(const std::string& text);

std::string to_text(const Assignment& assignment);
Assignment assignment_from_text(const std::string& text);
std::string to_text(const Decision& decision);
Decision decision_from_text(const std::string& text);

/// Nanoseconds on rank 0's monotonic clock; nothing while a group has not come.
std::string end_to_text(std::optional<std::int64_t> end_ns);
std::optional<std::int64_t> end_from_text(const std::string& text);

/// The hyper-parameters as a journal line keeps them.
std::string to_text(const HyperParameters& hyper);

}  // namespace heteroperf
