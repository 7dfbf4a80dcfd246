#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "automl/trial_master.hpp"

namespace heteroperf::detail {

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

  void take_over(const TrialReport& report);
};

/// A group of ranks: its state, its clock, and the callbacks that wait for an answer.
struct Group {
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

}  // namespace heteroperf::detail
