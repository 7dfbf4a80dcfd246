#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "runners/cluster/cluster.hpp"

namespace heteroperf {

/// The measurements of a run of a plan, on modelled time where its devices were emulated.
struct MeasuredPlan {
  std::string run_id;
  double step_time_s = 0;  ///< median of the steady window
  std::optional<double> samples_per_s;
  std::optional<double> bubble_rate;  ///< 1 − Σ compute / Σ wall over the ranks
};

/// Reads the measurements of the run whose `plan.json` this is; nothing where no journal with steps
/// lies beside it. Throws UserError or JournalError where the journal cannot be read, and UserError
/// where the run was not made on `machine`, the cluster as the plan uses it (plan_cluster()): what
/// it measured says nothing of other devices.
std::optional<MeasuredPlan> measured_beside(const std::filesystem::path& plan_file,
                                            const Cluster& machine);

/// The machine of the run whose `plan.json` this is, as far as that run measured it before its
/// steps: an equal share of the peak and of the memory's rate for each of its ranks, and messages
/// as copies in that memory, which is not measured. Nothing where there is no such run, where it
/// did not measure them, or where its ranks are not threads of one process. Throws UserError where
/// the journal has other ranks than the plan.
std::optional<Cluster> machine_beside(const std::filesystem::path& plan_file);

}  // namespace heteroperf
