#pragma once

#include <string>
#include <vector>

#include "runners/plan/ready/ready_plan.hpp"
#include "runners/plan/search/bounds/lower_bound.hpp"
#include "runners/plan/search/problem/graph_problem.hpp"

namespace heteroperf {

/// Where a step's longest chain of passes and messages lies.
struct CriticalPart {
  PositionId position;
  int passes = 0;  ///< on the path, one after the other
  double start_s = 0, end_s = 0;
};

/// The claims about a plan, all of them worked out from plan, model and machine alone.
struct PlanCertificate {
  Prediction prediction;
  double operations_per_s = 0;  ///< strict
  PlanBound bound;
  double gap = 0;  ///< step time / bound − 1
  /// The bottleneck of the step: "stage 3: compute", "stage 0: sum over replicas", "messages".
  std::string limited_by;
  std::vector<CriticalPart> critical_path;  ///< changes of position, first to last
  struct RankMemory {
    std::string device_class;
    MemoryLedger ledger;
    Bytes limit{0};  ///< 0: not limited
  };
  std::vector<RankMemory> memory;  ///< [rank of the plan]
};

/// The certificate of a plan that is `ready` for devices of `whole`. Its lower bound is that of
/// GraphProblem on the whole cluster, for the plan's own samples per step. Throws UserError where
/// nothing is predicted.
PlanCertificate certify(const TrainingTask& task, const ReadyPlan& ready, const Cluster& whole);

}  // namespace heteroperf
