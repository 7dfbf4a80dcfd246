#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "automl/trial_master.hpp"

namespace heteroperf::detail {

/// What a group is doing, from the master's point of view.
enum class Activity {
  thinking,    ///< has no trial; its request is still to come
  requesting,  ///< waits for a trial
  training,    ///< its report is still to come
  reporting,   ///< waits for a decision
  vanished,    ///< lost or left; not seen yet
  done,        ///< gets nothing more
};

/// The trial of a group and the segment it trains.
struct Training {
  Trial trial;
  Ops ops_per_step;
  std::uint64_t segment_end = 0;  ///< steps since the trial's start
  std::uint32_t rung = 0;         ///< whose milestone comes next
  TrialOutcome outcome;           ///< as far as known

  void take_over(const TrialReport& report);
};

struct Group {
  std::uint32_t ranks = 1;
  Activity activity = Activity::thinking;
  Ops next_event;                           ///< virtual time
  std::optional<std::uint64_t> steps_left;  ///< absent: no limit
  std::optional<Training> training;
  std::function<void(Assignment)> request_reply;
  std::function<void(Decision)> report_reply;
  TrialReport report;
  std::string lost_reason;  ///< empty: not lost
  std::uint64_t lost_steps = 0;
  std::chrono::steady_clock::time_point waiting_since;

  bool waits() const {
    return activity == Activity::requesting || activity == Activity::reporting ||
           activity == Activity::vanished;
  }
  bool is_gone() const { return activity == Activity::vanished || activity == Activity::done; }
};

}  // namespace heteroperf::detail
