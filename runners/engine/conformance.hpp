#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "workloads/graph/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// A workload whose operators are checked at its own extents.
struct CheckedWorkload {
  std::shared_ptr<const ModelGraph> graph;
  std::int64_t samples = 1;  ///< in a micro-batch
};

/// The operators of the calling thread's device that are to be held against the reference.
struct ConformanceRequest {
  std::vector<CheckedWorkload> workloads;
  Precision precision = Precision::fp32;
  bool quick = false;
  /// False: the operators only run, so that it shows what the device lacks; the workloads' alone.
  bool compare = true;
  bool first_fault = false;  ///< ends behind the first wrong case; later operators have no verdict
  std::uint64_t seed = 1;    ///< all operands are drawn from it
  int threads = 1;
  std::optional<int> gpu = {};
};

/// The number of results whose error is below 0, ½, 1, 2, 4, 16, 256 units in the last place, and
/// above.
using UnitHistogram = std::array<std::uint64_t, 8>;

/// The outcome of a device's operator, in all cases together.
struct OperatorVerdict {
  std::string name;   ///< "linear+gelu"
  double factor = 0;  ///< c: errors may be so many times u_out · |r| + √K · u_acc · Σ |a · b|
  double lean = 0;    ///< the mean signed error may be so many deviations of the errors from 0
  std::uint64_t cases = 0, results = 0;  ///< calls, and numbers compared
  double worst = 0;                      ///< largest error in units of that sum; must be below c
  double largest_absolute = 0, largest_relative = 0;
  double normalised_square = 0;  ///< Σ (x − r)² / Σ r², the largest of drawn operands
  double worst_bias = 0;         ///< largest mean signed error in its standard errors; at most 6
  UnitHistogram units{};
  bool repeatable = true;               ///< the same bits when it ran again
  std::vector<std::string> wrong = {};  ///< the first few cases that failed, and how
  std::uint64_t wrong_cases = 0;
  std::set<std::string> substituted = {};  ///< operators that the device lacks
};

}  // namespace heteroperf
