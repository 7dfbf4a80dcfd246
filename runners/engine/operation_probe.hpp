#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runners/plan/measured_operations.hpp"
#include "workloads/data/data_source.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// Operations of a model that are to be measured.
struct OperationProbe {
  const ModelGraph& graph;
  const ModelOperations& model;  ///< of that graph
  std::shared_ptr<const DataSource> data;
  OptimizerRecipe recipe = {};
  Precision precision = Precision::fp32;
  std::int64_t samples = 1;        ///< of the micro-batch
  std::int64_t micro_batches = 1;  ///< of a step: the first overwrites gradients, the others add
  int threads = 1;
  std::optional<int> gpu = {};  ///< none: the host's cores
  double seconds_each = 0.05;   ///< for one operation, about: all are repeated for as long as that
                                ///< makes together
  double deadline_s = 60;       ///< from now; fewer repetitions, or none, when it comes
  std::function<bool()> stop = {};  ///< asked now and then; true ends it as the deadline does
};

/// What came of it.
struct OperationProbeResult {
  std::vector<OperationSeconds> operations;  ///< medians, one for each of OperationProbe::model
  double optimizer_s = 0;                    ///< of an update; 0: not measured
  std::int64_t optimizer_elements = 0;
};

}  // namespace heteroperf
