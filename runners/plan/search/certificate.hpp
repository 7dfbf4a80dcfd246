#pragma once

#include <string>
#include <vector>

#include "runners/plan/prediction.hpp"
#include "runners/plan/search/graph_problem.hpp"
#include "runners/plan/search/lower_bound.hpp"

namespace heteroperf {

/// Where a step's longest chain of passes and messages lies.
struct CriticalPart {
  int position = 0;
  int passes = 0;  ///< on the path, one after the other
  double start_s = 0, end_s = 0;
};

/// What is claimed of a plan, all of it worked out from plan, model and machine alone.
struct PlanCertificate {
  Prediction prediction;
  double operations_per_s = 0;  ///< strict
  PlanBound bound;
  double gap = 0;  ///< step time / bound − 1
  /// What decides the step time: "stage 3: compute", "stage 0: sum over replicas", "messages".
  std::string limited_by;
  std::vector<CriticalPart> critical_path;  ///< changes of position, first to last
  struct RankMemory {
    std::string device_class;
    MemoryLedger ledger;
    Bytes limit{0};  ///< 0: not limited
  };
  std::vector<RankMemory> memory;  ///< [rank of the plan]
};

/// Throws UserError with all that check_plan() finds. The lower bound is that of GraphProblem on
/// the whole of `cluster`, for the plan's own samples per step.
PlanCertificate certify(const Plan& plan, const ModelGraph& graph, const Cluster& cluster,
                        Precision precision, OptimizerKind optimizer);

}  // namespace heteroperf
