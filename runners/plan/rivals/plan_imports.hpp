#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/rivals/metis/metis.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

struct ImportKind;

/// One `--import KIND:PATH`.
struct PlanImport {
  const ImportKind* kind = nullptr;
  std::string path;
};

/// The flags of `plan` for a planner of its own inputs.
struct RivalRequest {
  std::vector<PlanImport> imports;
  std::string model, cluster, cost_model;
  std::optional<std::int64_t> batch;
  double time_limit_s = 10;
  bool compare = false, fill_profiles = false;
};

/// A planner's result as a plan file and as people read it.
struct PlanTexts {
  std::string json, table;
};

/// One kind of `--import`. A kind does what it has a function for.
struct ImportKind {
  const char* name;
  /// Reads a profile of the workload: gives classes of the cluster their rates.
  ProfiledRates (*rates)(const std::string& path, const ModelGraph& graph, const Cluster& cluster,
                         Precision precision) = nullptr;
  /// Reads a plan. What it returns makes a plan for the workload's graph.
  std::function<Plan(const ModelGraph&)> (*read)(const std::string& path) = nullptr;
  /// Plans for the imported inputs by itself, in place of our planner.
  PlanTexts (*plan)(const RivalRequest& request) = nullptr;
  /// With `plan`: why it takes no workload, and no objective but time.
  const char* no_workload = "";
  const char* no_objective = "";
};

/// Throws UserError with every text that is none, or of an unknown kind.
std::vector<PlanImport> parse_imports(const std::vector<std::string>& texts);

/// The first kind among them that plans by itself; null where our planner is to plan.
const ImportKind* planner_among(const std::vector<PlanImport>& imports);

/// Notes a cost model that only another planner has. Throws UserError for an unknown one.
void check_own_cost_model(const std::string& cost_model, ProblemList& problems);

/// A plan that another planner made, as our simulator sees it.
struct ImportedPlan {
  std::string source;  ///< "flagscale:train.yaml"
  Plan plan;
  double step_time_s = 0;
  std::string why_not;  ///< not empty: it cannot run here
  double throughput() const { return static_cast<double>(plan.samples_per_step()) / step_time_s; }
};

/// Simulates an imported plan, of a kind that has `read`, for this model and machine. Its ranks are
/// given the machine's devices of the classes that it names, in order; a plan that names none takes
/// them as they come. Throws UserError where the file cannot be read; `why_not` says what the model
/// or the machine does not fit.
ImportedPlan score_import(const PlanImport& import, const Workload& workload,
                          const Cluster& cluster);

}  // namespace heteroperf
