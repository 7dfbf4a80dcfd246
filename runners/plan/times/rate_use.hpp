#pragma once

#include <array>
#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/staged_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// The ground that the time of an operation rests on.
enum class RateBasis {
  measured,     ///< an entry of this pass at this shape
  other_shape,  ///< an entry of this pass at the nearest shape
  analytic,     ///< worked out from rates of the class
};
constexpr std::array<const char*, 3> value_names(RateBasis) {
  return {"measured", "other_shape", "analytic"};
}

/// The grounds that the predicted computing time of a plan rests on.
struct RateUse {
  struct Operation {
    std::string device_class, operation;  ///< "gemm+gelu/forward"
    RateBasis basis = RateBasis::analytic;
    double seconds = 0;  ///< in a step, all ranks together
    std::string source;  ///< the entry's
    std::string shape;   ///< the shape asked for
  };
  std::vector<Operation> operations;  ///< each class, operation, shape and basis once

  double seconds() const;
  /// Share of seconds(); 0 where there is nothing.
  double fraction(RateBasis basis) const;
};

/// Passes of all stages and replicas over a step; optimizer, sums and messages are apart. `cluster`
/// as stage_times() takes it.
RateUse rate_use(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
                 const Cluster& cluster, Precision precision);

}  // namespace heteroperf
