#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "metrics/base/clock.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/rate.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// The facts that decide whether, and on how much memory, the rate of a host is measured.
struct TriadHost {
  Bytes last_level_cache{0}, available{0};  ///< the host's; 0: not known
  int threads = 1;                          ///< on all ranks there, together
  int cpus = 1;                             ///< usable by them, or fewer by the group's limit
};

/// The arrays of every thread, or why the rate is not to be told.
struct TriadPlan {
  std::size_t elements = 0;  ///< doubles in each of three arrays
  std::string reason;        ///< empty: it is
};

/// All arrays of a host together are 4 times its last-level caches (STREAM's rule), so that no pass
/// finds them there. Not told: threads that have no CPU of their own, a cache or free memory that
/// is not known, arrays that are more than a quarter of it, or more than a thread can fill in time.
TriadPlan plan_triad(const TriadHost& host);

struct MemoryRate {
  std::optional<double> bytes_per_second;  ///< this rank's
  std::string reason;                      ///< why there is none
};

/// Bytes per second that this rank reads and writes in STREAM's triad (McCalpin 1995),
/// a[i] = b[i] + s·c[i] counted as 24 bytes, with so many threads on arrays of `elements`, in the
/// interval in which all threads of all ranks of `host` work: sums over a host's ranks are its
/// rate. Collective, for about `seconds`. No rank has one where there was no such interval, or
/// where the system refused one of them its arrays or threads.
MemoryRate measure_triad(Communicator& host, std::size_t elements, int threads, double seconds);

/// plan_triad() of the ranks of one host, then measure_triad(). `cpus` are those that this rank may
/// use. Collective.
MemoryRate measure_memory_rate(Communicator& host, const CpuSet& cpus, int threads, double seconds);

// Several threads reach together what they did in an interval in which all of them worked:
// sums of what each did while it ran count work that never coincided.

/// The same call again and again on one thread.
struct CallLog {
  std::int64_t start_ns = 0;
  std::vector<std::int64_t> ends_ns;  ///< end of each call, where the next begins; not empty

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
