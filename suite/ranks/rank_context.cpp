// Everything that a rank does for the sake of measuring (events, log lines, the progress line) is
// timed here, once, and summed in `measuring_s`; the record reports it as overhead. The journal's
// writer on rank 0 counts its own cost, so an event that goes there directly is not counted twice.
#include "suite/ranks/rank_context.hpp"

#include <span>

#include "metrics/base/clock.hpp"
#include "suite/program/signals.hpp"
#include "suite/ranks/rank_messages.hpp"

namespace heteroperf {

void RankContext::show(const ProgressState& state) {
  if (first.progress == nullptr) return;
  const ScopedSeconds measured(&measuring_s);
  first.progress->update(state);
}

void RankContext::log(const std::string& text) {
  if (!log_file) return;
  const ScopedSeconds measured(&measuring_s);
  log_file->write(text);
}

void RankContext::log_step(std::uint64_t n, double loss) {
  if (!log_file) return;
  const ScopedSeconds measured(&measuring_s);
  log_file->step(n, loss);
}

void RankContext::post(const Event& event) {
  if (log_file) {
    const ScopedSeconds measured(&measuring_s);
    log_file->note(event);
  }
  if (first.journal != nullptr)
    return first.journal->append(event);  // which keeps account of itself
  const ScopedSeconds measured(&measuring_s);
  post_event(control(), event);
}

bool stop_wanted(const RankContext& context) {
  // A dead rank comes first: a launcher then sends signals that are no user's wish. A group that
  // needs nobody else would otherwise train on.
  if (const auto failure = context.control().failure()) throw PeerError(*failure, "training");
  if (context.control().stop_requested()) return true;
  const char* signal = stop_signal();
  if (signal == nullptr) return false;
  context.control().request_stop(signal);
  return true;
}

bool share_answer(Communicator& group, bool mine, RankId root) {
  std::uint8_t answer = mine ? 1 : 0;
  group.broadcast(std::span(&answer, 1), root);
  return answer != 0;
}

Directive agree(Communicator& group, Directive of_leader) {
  std::uint8_t byte = static_cast<std::uint8_t>(of_leader);
  group.broadcast(std::span(&byte, 1), RankId(0));
  return static_cast<Directive>(byte);
}

}  // namespace heteroperf
