#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/cluster/efficiency_matrix.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// One file of a Metis profile folder: a device class, a tensor-parallel
/// degree, a batch size.
struct MetisProfile {
  std::vector<double> compute_s;  ///< forward and backward, by layer
  std::vector<Bytes> memory;      ///< by layer
  double forward_backward_s = 0, optimizer_s = 0, batch_generation_s = 0;
  friend bool operator==(const MetisProfile &, const MetisProfile &) = default;
};

/// The profiles that Metis (Um et al., ATC 2024) has of a model on some
/// devices.
struct MetisProfiles {
  std::string model;                             ///< name in the files; may be empty
  std::map<int, std::vector<Bytes>> parameters;  ///< by degree, then layer, as the files say
  std::map<std::string, std::map<std::pair<int, std::int64_t>, MetisProfile>> classes;
  int layers() const;
};

/// Reads every `DeviceType.NAME_tpT_bsB.json` of a folder; milliseconds and
/// megabytes (2²⁰) become seconds and bytes. Throws UserError with everything
/// wrong: a folder without profiles, names that are none, negative times,
/// layers or parameters of another model than the rest, times of the layers
/// that add up to more than the whole ten times over (another unit).
MetisProfiles read_metis_profiles(const std::filesystem::path &folder);

/// The rates of a cluster's classes that explain a profile of a workload.
struct ProfiledRates {
  struct ClassFit {
    std::string device_class;
    int entries = 0;  ///< only degree 1: entries of larger degrees hold their sums
    double predicted_s = 0,
           profiled_s = 0;  ///< passes over the whole model, over the entries
    /// Mean of |predicted − profiled| / profiled over the entries, with the
    /// rates below.
    double error = 0;
  };
  std::vector<ClassFit> classes;
  /// Every rate of such a class × predicted / profiled.
  EfficiencyMatrix matrix;
};

/// `graph`: the profiled model. Predictions are the planner's own, of one
/// device, forward and backward. Throws UserError where the profile is another
/// model's (its parameters are not the graph's, of 2 or of 4 bytes each), where
/// none of its classes is the cluster's or has an entry of degree 1, or where
/// prediction and profile are a hundredfold apart.
ProfiledRates metis_rates(const MetisProfiles &profiles, const ModelGraph &graph,
                          const Cluster &cluster, Precision precision);

}  // namespace heteroperf
