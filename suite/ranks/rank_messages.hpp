#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "results/journal/events.hpp"
#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// Ranks talk to rank 0 over the control channel: events for the journal, the clock, and (in a
/// search) questions to the trial master.

/// Rank 0's side.
struct RankMessageHandlers {
  std::function<void(const Event& event)> on_event;
  /// A question of a search's group, or news of it (`reply` is empty); may be absent.
  std::function<void(RankId from, std::string question, ControlChannel::Reply reply)> on_question;
};

/// Routes messages to `handlers`; install with ControlChannel::serve.
ControlChannel::Handler route_messages(RankMessageHandlers handlers);

/// Any rank: appends an event to the run's journal, in this rank's order.
void post_event(ControlChannel& control, const Event& event);
/// Any rank: returns when rank 0 has handled everything this rank posted before.
void flush_events(ControlChannel& control);
/// Any rank: rank 0's monotonic clock now.
std::int64_t ask_clock(ControlChannel& control);
/// Any rank: asks the search's master; the reply may take as long as a trial.
std::string ask_master(ControlChannel& control, const std::string& question);
/// Any rank: tells the search's master something that has no answer.
void tell_master(ControlChannel& control, const std::string& news);

}  // namespace heteroperf
