#pragma once

#include <string>

#include "suite/sweep/sweep_request.hpp"
#include "suite/program/verb.hpp"

namespace heteroperf {

/// Where the runs of a sweep go and how long one may take.
struct SweepLimits {
  std::string out;  ///< empty: results/sweep-<UTC>-<workload>-<id>
  double deadline_s = 86400;
};

/// Runs the sweep, each run a process of its own, and prints its table. 6 where runs failed (their
/// own exit code where none is complete), 8 where one is invalid.
ExitCode launch_sweep(const SweepRequest& request, const SweepLimits& limits,
                      const GlobalOptions& options);

}  // namespace heteroperf
