#pragma once

#include <span>
#include <string>
#include <vector>

#include "runners/engine/checkpoint/checkpoint.hpp"
#include "runners/engine/operators/host_copies.hpp"
#include "runners/engine/parameters/optimizer.hpp"
#include "runners/engine/parameters/parameter_store.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// What a checkpoint holds of a training, as this rank's memory has it: "<node>.<parameter>" (the
/// masters), "optimizer.<state>/<node>.<parameter>", and running statistics
/// "<node>.running_mean". Only elements in `ranges` of the arena. The pieces point into the tensors
/// as `here` gives them: after writing into pieces, it puts them back.
std::vector<TensorPiece> stored_parameters(const ModelGraph& graph, const ParameterStore& store,
                                           std::span<const ArenaRange> ranges, HostCopies& here);
std::vector<TensorPiece> stored_states(const ModelGraph& graph, const ParameterStore& store,
                                       const std::vector<Optimizer::State>& states,
                                       std::span<const ArenaRange> ranges, HostCopies& here);

/// A running statistic and what it is called.
struct NamedBuffer {
  std::string name;
  at::Tensor values;
};
std::vector<TensorPiece> stored_buffers(std::span<const NamedBuffer> buffers, HostCopies& here);

}  // namespace heteroperf
