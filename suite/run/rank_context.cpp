#include "suite/run/rank_context.hpp"

#include <span>

#include "suite/run/rank_messages.hpp"
#include "suite/run/signals.hpp"

namespace heteroperf {

void RankContext::post(const Event& event) const {
  if (journal != nullptr) {
    journal->append(event);
  } else {
    post_event(control(), event);
  }
}

bool stop_wanted(const RankContext& context) {
  if (context.control().stop_requested()) return true;
  const char* signal = stop_signal();
  if (signal == nullptr) return false;
  context.control().request_stop(signal);
  return true;
}

Directive agree(Communicator& group, Directive of_leader) {
  std::uint8_t byte = static_cast<std::uint8_t>(of_leader);
  group.broadcast(std::span(&byte, 1), RankId(0));
  return static_cast<Directive>(byte);
}

}  // namespace heteroperf
