#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "metrics/base/quantity.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// The facts that decide whether, and on how much memory, the rate of a host is measured.
struct TriadHost {
  Bytes last_level_cache{0}, available{0};  ///< of the host; 0: not known
  int threads = 1;                          ///< of all ranks there
  int cpus = 1;                             ///< that they may use, or less by the group's limit
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
  std::optional<double> bytes_per_second;  ///< of this rank
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

}  // namespace heteroperf
