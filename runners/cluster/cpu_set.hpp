#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runners/cluster/system_files.hpp"

namespace heteroperf {

/// Logical CPUs, in the order in which work should take them.
using CpuSet = std::vector<int>;

/// Writes the kernel's list form, such as "0-3,8"; empty for an empty set.
std::string to_list(CpuSet cpus);
/// Reads that form. Throws UserError when the text is no such list.
CpuSet parse_cpu_list(std::string_view text);

/// The CPUs that this process may use.
struct UsableCores {
  CpuSet cpus;             ///< affinity mask; one hardware thread of every core comes first
  int physical = 1;        ///< number of distinct cores among them
  Observed<double> quota;  ///< the time that the control group allows, in cores
  std::string source;      ///< the place where `cpus` was read

  /// Returns how many threads can compute at once: the cores, or less where the quota is tighter;
  /// at least 1.
  int count() const;
  /// Returns false where the quota is below the mask. Work then wanders over all CPUs, and pinning
  /// it to some would only collide with other groups.
  bool may_bind() const;
};

/// Reads the mask of the process's first thread; call it before that thread is bound.
UsableCores usable_cores(const SystemFiles& files = SystemFiles());

/// Restricts the calling thread (and threads it starts later) to `cpus`, which is not empty.
/// Throws SystemError{environment} with the system's words.
void bind_this_thread(const CpuSet& cpus);

/// Returns the CPUs of each rank: disjoint blocks of `threads_per_rank`, in order. The result is
/// empty (nothing is to be bound) where ranks × threads do not fit or a quota forbids binding. Both
/// numbers are above 0.
std::vector<CpuSet> place_ranks(const UsableCores& cores, int ranks, int threads_per_rank);

}  // namespace heteroperf
