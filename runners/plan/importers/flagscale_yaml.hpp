#pragma once

#include <string>

#include "runners/plan/exporters/flagscale_setup.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// The heterogeneous part of a FlagScale train configuration (keys under `system` and `model`, or
/// under `train.system` and `train.model`). Without a layer split, layers are split evenly, as
/// FlagScale does. Throws UserError beginning with `origin`, with everything wrong: YAML that is
/// none, missing keys, meshes that are not five positive whole numbers each, device types of
/// another number, stages, layers or batches that contradict each other.
FlagScaleSetup parse_flagscale(const std::string& text, const std::string& origin);
FlagScaleSetup read_flagscale_file(const std::string& path);

/// The same plan for a model of ours. Throws UserError with everything that a plan cannot say or
/// the model does not fit: context or expert parallelism, batches that do not divide, another
/// number of layers.
Plan plan_of(const FlagScaleSetup& setup, const ModelGraph& graph);

}  // namespace heteroperf
