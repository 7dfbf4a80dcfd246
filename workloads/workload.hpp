#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "workloads/data/data_source.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// The quality that a run of this workload must reach before its score counts as closed.
struct QualityTarget {
  std::string name;  ///< "accuracy" (higher is better) or "loss" (lower is better)
  double value = 0;
};

/// Everything that a training needs, whoever runs it: the model, its data, the optimizer, the goal.
struct Workload {
  std::string name;       ///< "llm", "image", "two-tower", "vlm", "co-attention" or "automl-image"
  std::string size;       ///< name of a ladder's size or of a model
  ModelGraph graph = {};  ///< a search starts from this model
  std::shared_ptr<const DataSource> data = {};
  OptimizerRecipe recipe;
  Precision precision = Precision::fp32;
  std::int64_t micro_batch = 1;    ///< samples per rank and micro-batch
  std::int64_t micro_batches = 1;  ///< micro-batches per rank and optimizer step
  std::optional<QualityTarget> target = {};
  std::string unit = {};  ///< the unit of throughput, unit_of()
  std::int64_t units_per_sample = 1;
  std::string freeze = {};  ///< components whose weights stay as they are, with commas between
};

/// A caller's wishes for a workload; an empty or absent value keeps the workload's own.
struct WorkloadRequest {
  std::string size;    ///< name of a ladder's size, or "auto": then the scaling rule chooses
  std::string model;   ///< for `image` only
  std::string freeze;  ///< components whose weights stay as they are, with commas between
  std::string data = "generated";
  Precision precision = Precision::fp32;
  std::optional<std::int64_t> micro_batch, micro_batches;
  std::optional<std::int64_t> sequence_length;
  std::optional<std::int64_t> images;  ///< most per sample, which may have none; `vlm` only
  OptimizerRequest optimizer;
  std::uint64_t total_steps = 0;  ///< known length of the run; 0 for a run by time
  std::uint64_t seed = 1;
};

/// The machine as the scaling rule sees it, in plain numbers of one rank.
struct ScalingInput {
  std::uint64_t memory_bytes = 0;  ///< bytes available to one rank
  double ops_per_second = 0;       ///< strict operations that a rank can be expected to do
};

/// A size with the numbers that made the rule choose or refuse it.
struct ScalingChoice {
  std::string size;
  std::uint64_t memory_bytes =
      0;              ///< bytes of weights, gradients, optimizer and activations of one rank
  double step_s = 0;  ///< expected time of one optimizer step
  std::string reason;
};

}  // namespace heteroperf
