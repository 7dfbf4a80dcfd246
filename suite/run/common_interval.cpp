#include "suite/run/common_interval.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t never_ns = std::numeric_limits<std::int64_t>::min();

}  // namespace

double CallLog::calls_in(const TimeWindow& interval) const {
  double calls = 0;
  std::int64_t begin_ns = start_ns;
  for (const std::int64_t end_ns : ends_ns) {
    const std::int64_t from_ns = std::max(begin_ns, interval.start_ns);
    const std::int64_t to_ns = std::min(end_ns, interval.end_ns);
    if (from_ns < to_ns) {
      calls += static_cast<double>(to_ns - from_ns) / static_cast<double>(end_ns - begin_ns);
    }
    begin_ns = end_ns;
  }
  return calls;
}

CallLog call_repeatedly(const std::function<void()>& call, double seconds,
                        const NanosecondClock& clock) {
  CallLog log{clock(), {}};
  const std::int64_t end_ns = log.start_ns + static_cast<std::int64_t>(seconds / nanosecond);
  do {
    call();
    log.ends_ns.push_back(clock());
  } while (log.ends_ns.back() < end_ns);
  return log;
}

TimeWindow overlap_of(std::span<const TimeWindow> windows) {
  TimeWindow common = windows.front();
  for (const TimeWindow& window : windows) {
    common.start_ns = std::max(common.start_ns, window.start_ns);
    common.end_ns = std::min(common.end_ns, window.end_ns);
  }
  return common;
}

std::optional<TimeWindow> common_interval(Communicator& group,
                                          const std::optional<TimeWindow>& window) {
  std::array<std::int64_t, 2> latest{never_ns, never_ns};  // start, and the end's opposite
  if (window) latest = {window->start_ns, -window->end_ns};
  group.all_reduce(std::span(latest), Reduction::max);
  if (latest[0] == never_ns || latest[0] >= -latest[1]) return std::nullopt;
  return TimeWindow{latest[0], -latest[1]};
}

}  // namespace heteroperf
