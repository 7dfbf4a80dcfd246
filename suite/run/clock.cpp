#include "suite/run/clock.hpp"

#include <limits>

#include "results/journal.hpp"
#include "runners/comm/control_channel.hpp"
#include "suite/run/rank_messages.hpp"

namespace heteroperf {

std::int64_t now_ns() { return monotonic_now_ns(); }

std::int64_t measure_clock_offset_ns(ControlChannel& control) {
  constexpr int round_trips = 8;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  std::int64_t offset = 0;
  for (int i = 0; i < round_trips; ++i) {
    const std::int64_t sent = now_ns();
    const std::int64_t theirs = ask_clock(control);
    const std::int64_t received = now_ns();
    if (received - sent < shortest) {
      shortest = received - sent;
      offset = theirs - (sent + (received - sent) / 2);
    }
  }
  return offset;
}

}  // namespace heteroperf
