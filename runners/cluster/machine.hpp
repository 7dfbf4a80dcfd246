#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "runners/cluster/observed.hpp"
#include "runners/cluster/process_environment.hpp"
#include "runners/cluster/system_files.hpp"
#include "runners/cluster/topology.hpp"

namespace heteroperf {

/// One detail of the machine that only needs to be kept: its name ends in the unit.
struct Fact {
  std::string name;
  Observed<std::variant<std::int64_t, double, std::string>> value;
};

/// The node a process runs on, as far as an ordinary user can read it.
struct Machine {
  Observed<std::string> host, os, kernel, cpu_model;
  Observed<std::string> governor;   ///< frequency governor of the first CPU
  Observed<std::string> container;  ///< "docker", "podman", …; unavailable outside of one
  Topology topology;
  UsableCores cores;
  Observed<Bytes> memory_total, memory_available;
  Observed<Bytes> memory_limit;  ///< of the control group
  std::vector<Fact> facts;       ///< firmware, microcode, SMT, turbo, huge pages, load, …

  /// Total memory, or the control group's limit where that is tighter; 0 when neither is known.
  Bytes usable_memory() const;
};

/// Reads everything once; takes milliseconds. Never throws for what the machine does not tell.
Machine probe_machine(const SystemFiles& files = SystemFiles());

/// What surrounds this process, beside the machine itself.
struct ProcessContext {
  std::vector<LoadedLibrary> libraries;
  std::map<std::string, std::string> environment;  ///< allow-listed and redacted
};

/// Libraries are those loaded so far: ask after the backends are in use.
ProcessContext probe_process();

}  // namespace heteroperf
