#pragma once

#include "metrics/base/quantity.hpp"
#include "runners/cluster/system_files.hpp"

namespace heteroperf {

/// The limits that the control groups of this process set. A limit that is not set is `unavailable`
/// with the reason "no limit". A group without a limit of its own is still bound by its parents.
struct CgroupLimits {
  Observed<double> cores;  ///< CPU time per wall time (cpu.max, cpu.cfs_quota_us)
  Observed<Bytes> memory;  ///< memory.max, memory.limit_in_bytes
  /// The least memory that any of these groups leaves of its limit. Files that the kernel only
  /// keeps until somebody needs the memory (inactive_file) do not count as used.
  Observed<Bytes> memory_left;
};

/// Reads the tightest limits on the way from this process's group to the root of its hierarchy, for
/// hierarchies of version 2 and of version 1, which may stand side by side.
CgroupLimits read_cgroup_limits(const SystemFiles& files);

/// Returns the memory that further processes may take: that which the system has available, or that
/// which the control groups leave, whichever is less.
Observed<Bytes> available_memory(const SystemFiles& files);

}  // namespace heteroperf
