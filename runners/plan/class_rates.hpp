#pragma once

#include <array>
#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// What one pass of an operator asks of a device.
struct PassWork {
  double operations = 0, bytes = 0;
  /// Of a matrix product: rows, columns, summed; 0: it is none.
  std::array<double, 3> extents{};
  bool any() const { return operations > 0 || bytes > 0; }
};

/// What a cluster's device classes achieve, as its efficiency entries say. Beside rates of
/// operations: `memory` (bytes per second), `launch` (operators started per second), `gemm_tile`
/// (shape rows x columns x summed: products are done in whole tiles, at that rate).
class ClassRates {
 public:
  /// The cluster outlives it.
  ClassRates(const Cluster& cluster, Precision precision)
      : cluster_(cluster), precision_(to_string(precision)) {}

  /// Null where the class has none for the precision.
  const OpsPerSecond* rate(const std::string& name) const;
  /// Requires a class with a rate, as the others below. A class that says nothing of its memory
  /// moves a byte while it does 4 operations: more than any chip known, so that nothing is free.
  double memory_bytes_per_s(const std::string& name) const;

  /// Roofline (Williams, Waterman & Patterson 2009) and the time to start it:
  /// max(operations / rate, bytes / memory bandwidth) + 1 / launches per second. 0 for no work.
  double pass_s(const std::string& name, const char* operation, const PassWork& work) const;

 private:
  struct Entry {
    double size = 0, rate = 0;
  };
  /// A class as pass_s() asks for it.
  struct Sheet {
    std::string name;
    double rate = 0, bytes_per_s = 0, launch_s = 0;
    std::array<double, 3> tile{};  ///< 0: none
    double tile_rate = 0;
    std::vector<std::pair<std::string, std::vector<Entry>>> operations;
  };
  const Sheet& sheet(const std::string& name) const;
  Sheet make_sheet(const std::string& name) const;
  static double compute_s(const Sheet& sheet, const char* operation, const PassWork& work);

  const Cluster& cluster_;
  std::string precision_;
  mutable std::vector<Sheet> sheets_;
};

}  // namespace heteroperf
