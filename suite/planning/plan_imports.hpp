#pragma once

#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// One `--import KIND:PATH`.
struct PlanImport {
  std::string kind, path;
};

/// Throws UserError with every text that is none, or of an unknown kind.
std::vector<PlanImport> parse_imports(const std::vector<std::string>& texts);
/// Paths of one kind.
std::vector<std::string> imports_of(const std::vector<PlanImport>& imports,
                                    const std::string& kind);

/// A plan that another planner made, as our simulator sees it.
struct ImportedPlan {
  std::string source;  ///< "flagscale:train.yaml"
  Plan plan;
  double step_time_s = 0;
  std::string why_not;  ///< not empty: it cannot run here
  double throughput() const { return static_cast<double>(plan.samples_per_step()) / step_time_s; }
};

/// The plan of a FlagScale configuration or of a plan file, for this model and machine. Its ranks
/// are given the machine's devices of the classes that it names, in order; a plan that names none
/// takes them as they come. Throws UserError where the file cannot be read; what the model or the
/// machine does not fit is in `why_not`.
ImportedPlan score_import(const PlanImport& import, const Workload& workload,
                          const Cluster& cluster);

}  // namespace heteroperf
