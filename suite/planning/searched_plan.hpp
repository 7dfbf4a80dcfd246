#pragma once

#include <cstdint>
#include <optional>

#include "runners/plan/ready/ready_plan.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// The planner's answer to a run, whose ranks all have a part in every plan of it.
struct SearchedPlan {
  std::optional<ReadyPlan> best;  ///< none where every plan that was found leaves devices idle
  std::uint64_t candidates = 0;
  double seconds = 0;
};

/// Searches the fastest plan of `samples` per step for all devices of `used`, which outlives the
/// result's use of it. Throws UserError where the workload fits nowhere.
SearchedPlan search_plan(const Workload& workload, const Cluster& used, std::uint64_t samples,
                         double time_limit_s);

}  // namespace heteroperf
