#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runners/cluster/observed.hpp"
#include "runners/cluster/system_files.hpp"

namespace heteroperf {

/// Logical CPUs, in the order in which work should take them.
using CpuSet = std::vector<int>;

/// The kernel's list form: "0-3,8". Empty for an empty set.
std::string to_list(CpuSet cpus);
/// Throws UserError when the text is not such a list.
CpuSet parse_cpu_list(std::string_view text);

/// The CPUs this process may use.
struct UsableCores {
  CpuSet cpus;             ///< affinity mask; one hardware thread of every core first
  int physical = 1;        ///< distinct cores among them
  Observed<double> quota;  ///< cores' worth of time the control group allows
  std::string source;      ///< where `cpus` comes from

  /// Threads that can compute at once: cores, or less where the quota is tighter; at least 1.
  int count() const;
  /// A quota below the mask lets work wander over all CPUs: pinning it to some would only
  /// collide with other groups.
  bool may_bind() const;
};

/// Reads the mask of the process's first thread: ask before that thread is bound.
UsableCores usable_cores(const SystemFiles& files = SystemFiles());

/// Restricts the calling thread (and threads it starts later) to `cpus`, which is not empty.
/// Throws SystemError{environment} with the system's words.
void bind_this_thread(const CpuSet& cpus);

/// The CPUs of each rank: disjoint blocks of `threads_per_rank`, in order. Empty (nothing is to be
/// bound) where ranks × threads do not fit or a quota forbids binding. Both arguments are > 0.
std::vector<CpuSet> place_ranks(const UsableCores& cores, int ranks, int threads_per_rank);

}  // namespace heteroperf
