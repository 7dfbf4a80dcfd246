#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/plan/plan.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// Neighbouring stages alike in FlagScale's terms: `data` replicas of `tensor` ranks each, every
/// one of `pipeline` stages.
struct FlagScaleMesh {
  int tensor = 1, context = 1, expert = 1, data = 1, pipeline = 1;
  std::string device;  ///< `hetero_device_types`
  friend bool operator==(const FlagScaleMesh&, const FlagScaleMesh&) = default;
};

/// A heterogeneous plan in the terms of a FlagScale train configuration.
struct FlagScaleSetup {
  std::vector<FlagScaleMesh> meshes;
  std::vector<int> layer_split;  ///< layers by stage
  std::vector<int> recomputed;   ///< 1: the stage recomputes in full; by stage
  std::int64_t micro_batch = 1;  ///< samples of a replica of the first mesh
  std::int64_t global_batch = 1;
  bool distributed_optimizer = false;  ///< ZeRO-1
  int stages() const;
  friend bool operator==(const FlagScaleSetup&, const FlagScaleSetup&) = default;
};

/// Throws UserError with everything that FlagScale cannot say: uneven batches within a stage,
/// replicas of different degrees or classes in one stage, several chunks, another schedule than
/// 1f1b, selective recomputation of some stages, compressed wires, blocks cut in two, ranks in
/// another order than tensor, context, data, stage.
FlagScaleSetup flagscale_setup(const Plan& plan);

/// The parts `system` and `model` of a train configuration, in YAML.
std::string flagscale_text(const FlagScaleSetup& setup);

/// Reads the heterogeneous part of a FlagScale train configuration (keys under `system` and
/// `model`, or under `train.system` and `train.model`). Without a layer split, layers are split
/// evenly, as FlagScale does. Throws UserError beginning with `origin`, with everything wrong: YAML
/// that is none, missing keys, meshes that are not five positive whole numbers each, device types
/// of another number, stages, layers or batches that contradict each other.
FlagScaleSetup parse_flagscale(const std::string& text, const std::string& origin);
FlagScaleSetup read_flagscale_file(const std::string& path);

/// The same plan for a model of ours. Throws UserError with everything that a plan cannot say or
/// the model does not fit: expert parallelism, batches that do not divide, another
/// number of layers.
Plan plan_of(const FlagScaleSetup& setup, const ModelGraph& graph);

/// A plan as Megatron Core's command line says it, one argument a line: parallel degrees, batch
/// sizes, recomputation, and the stages as the string of `--pipeline-model-parallel-layout`
/// ("Et*3|t*4,L": E embedding, t transformer layer, L loss, | between stages). Device classes are
/// not said: ranks are to be started in the plan's order. Throws UserError with everything that it
/// cannot say: replicas or stages of different degrees, counts or batches, other schedules than
/// 1f1b and interleaved-1f1b, stages that recompute differently, compressed wires, blocks cut in
/// two, ranks in another order.
std::string megatron_arguments(const Plan& plan);

/// The number of a transformer block's node ("block12.attn.qkv": 12); −1 for other nodes.
int block_of_node(const std::string& node);

}  // namespace heteroperf
