#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "metrics/base/clock.hpp"
#include "metrics/rate.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

// Several threads reach together what they did in an interval in which all of them worked:
// sums of what each did while it ran count work that never coincided.

/// The same call again and again on one thread.
struct CallLog {
  std::int64_t start_ns = 0;
  std::vector<std::int64_t> ends_ns;  ///< of each call, where the next one begins; not empty

  TimeWindow window() const { return {start_ns, ends_ns.back()}; }
  /// Calls in the interval; of one that lies there in part, that share of its time.
  double calls_in(const TimeWindow& interval) const;
};

using NanosecondClock = std::function<std::int64_t()>;

/// Calls until `seconds` are over, and once at least.
CallLog call_repeatedly(const std::function<void()>& call, double seconds,
                        const NanosecondClock& clock = now_ns);

/// From the last start to the first end of threads, of which there is one at least; the end is not
/// behind the start where one had ended before another began.
TimeWindow overlap_of(std::span<const TimeWindow> windows);
/// The same of the ranks of a group that have a window, all on the same clock. Collective; nothing
/// on every rank where there is no such interval, or no window.
std::optional<TimeWindow> common_interval(Communicator& group,
                                          const std::optional<TimeWindow>& window);

}  // namespace heteroperf
