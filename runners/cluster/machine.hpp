#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "runners/cluster/system_files.hpp"
#include "runners/cluster/topology.hpp"

namespace heteroperf {

/// A shared object that the process has mapped.
struct LoadedLibrary {
  std::string path;
  std::string build_id;  ///< lower-case hex of the NT_GNU_BUILD_ID note; empty when it has none
};

/// Lists the libraries by path, without the program itself and the kernel's vdso.
std::vector<LoadedLibrary> loaded_libraries();

/// Returns the variables that steer a run, by the prefixes NCCL_ OMPI_ UCX_ CUDA_ OMP_ TORCH_ MKL_
/// LD_ ATEN_ DNNL_ ONEDNN_ SLURM_ HETEROPERF_. Values of names that contain TOKEN, SECRET, PASS or
/// KEY read "redacted". `environment` is a null-terminated list of NAME=value, as in environ(7).
std::map<std::string, std::string> steering_variables(const char* const* environment);
/// Returns those of this process.
std::map<std::string, std::string> steering_variables();

/// A detail of the machine that only needs to be kept. Its name ends in the unit.
struct Fact {
  std::string name;
  Observed<std::variant<std::int64_t, double, std::string>> value;
};

/// The host that a process runs on, as far as an ordinary user can read it.
struct Machine {
  Observed<std::string> host, os, kernel, cpu_model;
  Observed<std::string> governor;   ///< frequency governor of the first CPU
  Observed<std::string> container;  ///< "docker", "podman", …; unavailable outside of a container
  Topology topology;
  UsableCores cores;
  Observed<Bytes> memory_total, memory_available;
  Observed<Bytes> memory_limit;  ///< limit of the control group
  std::vector<Fact> facts;       ///< firmware, microcode, SMT, turbo, huge pages, load, …

  /// Returns the total memory, or the control group's limit where that is tighter; 0 when neither
  /// is known.
  Bytes usable_memory() const;
};

/// Reads everything once, which takes milliseconds. Never throws for what the machine does not
/// tell.
Machine probe_machine(const SystemFiles& files = SystemFiles());

/// The surroundings of this process, beside the machine itself.
struct ProcessContext {
  std::vector<LoadedLibrary> libraries;
  std::map<std::string, std::string> environment;  ///< allow-listed and redacted
};

/// The name of this host; "unknown" where the system does not tell.
std::string host_name();

/// Lists the libraries loaded so far, so call it after the backends are in use.
ProcessContext probe_process();

}  // namespace heteroperf
