#pragma once

#include "metrics/base/quantity.hpp"
#include "runners/cluster/observed.hpp"
#include "runners/cluster/system_files.hpp"

namespace heteroperf {

/// What the control groups of this process allow. A limit that is not set is `unavailable` with
/// the reason "no limit".
struct CgroupLimits {
  Observed<double> cores;  ///< CPU time per wall time (cpu.max, cpu.cfs_quota_us)
  Observed<Bytes> memory;  ///< memory.max, memory.limit_in_bytes
  /// The least that any of these groups leaves of its limit, files that the kernel only keeps in
  /// case of need (inactive_file) not counted as used.
  Observed<Bytes> memory_left;
};

/// The tightest limit on the way from this process's group to the root of its hierarchy, for
/// version 2 and version 1 hierarchies, which may stand side by side.
CgroupLimits read_cgroup_limits(const SystemFiles& files);

/// What further processes may take: what the system has available, or what is left of a limit.
Observed<Bytes> available_memory(const SystemFiles& files);

}  // namespace heteroperf
