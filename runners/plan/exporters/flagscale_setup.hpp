#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runners/plan/plan.hpp"

namespace heteroperf {

/// Neighbouring stages alike in FlagScale's terms: `data` replicas of `tensor` ranks each, every
/// one of `pipeline` stages.
struct FlagScaleMesh {
  int tensor = 1, context = 1, expert = 1, data = 1, pipeline = 1;
  std::string device;  ///< `hetero_device_types`
  friend bool operator==(const FlagScaleMesh&, const FlagScaleMesh&) = default;
};

/// What a FlagScale train configuration says of a heterogeneous plan.
struct FlagScaleSetup {
  std::vector<FlagScaleMesh> meshes;
  std::vector<int> layer_split;  ///< layers by stage
  std::vector<int> recomputed;   ///< 1: the stage recomputes in full; by stage
  std::int64_t micro_batch = 1;  ///< of a replica of the first mesh
  std::int64_t global_batch = 1;
  bool distributed_optimizer = false;  ///< ZeRO-1
  int stages() const;
  friend bool operator==(const FlagScaleSetup&, const FlagScaleSetup&) = default;
};

/// Throws UserError with everything that FlagScale cannot say: uneven batches within a stage,
/// replicas of different degrees or classes in one stage, several chunks, another schedule than
/// 1f1b, selective recomputation of some stages, compressed wires, blocks cut in two, ranks in
/// another order than tensor, data, stage.
FlagScaleSetup flagscale_setup(const Plan& plan);

/// The part `system` and `model` of a train configuration, in YAML.
std::string flagscale_text(const FlagScaleSetup& setup);

}  // namespace heteroperf
