#pragma once

#include <string>
#include <vector>

#include "runners/cluster/efficiency_matrix.hpp"
#include "runners/plan/rivals/metis/metis_profiles.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// The rates of a cluster's classes that explain a profile of a workload.
struct ProfiledRates {
  struct ClassFit {
    std::string device_class;
    int entries = 0;  ///< only degree 1: entries of larger degrees hold their sums
    double predicted_s = 0, profiled_s = 0;  ///< passes over the whole model, over the entries
    /// Mean of |predicted − profiled| / profiled over the entries, with the rates below.
    double error = 0;
  };
  std::vector<ClassFit> classes;
  /// Every rate of such a class × predicted / profiled.
  EfficiencyMatrix matrix;
};

/// `graph`: the profiled model. Predictions are the planner's own, of one device, forward and
/// backward. Throws UserError where the profile is another model's (its parameters are not the
/// graph's, of 2 or of 4 bytes each), where none of its classes is the cluster's or has an entry
/// of degree 1, or where prediction and profile are a hundredfold apart.
ProfiledRates metis_rates(const MetisProfiles& profiles, const ModelGraph& graph,
                          const Cluster& cluster, Precision precision);

}  // namespace heteroperf
