#pragma once

#include <span>
#include <string>
#include <vector>

#include "runners/engine/checkpoint/checkpoint.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"
#include "runners/engine/parameters/optimizer.hpp"
#include "runners/engine/parameters/parameter_store.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// The tensors of a checkpoint as pieces of this rank's memory: "<node>.<parameter>" (the masters),
/// "optimizer.<state>/<node>.<parameter>", and running statistics "<node>.running_mean". Only
/// elements in `ranges` of the arena are given. The pieces point into the copies that `host` holds;
/// after something was written into pieces, `host` must put them back.
std::vector<TensorPiece> stored_arenas(const ModelGraph& graph, const ParameterStore& store,
                                       std::vector<Optimizer::State> states,
                                       std::span<const ArenaRange> ranges, HostCopies& host);

/// A running statistic and its name.
struct NamedBuffer {
  std::string name;
  at::Tensor values;
};
/// Appends the buffers' pieces to `pieces`.
void store_buffers(std::span<const NamedBuffer> buffers, HostCopies& host,
                   std::vector<TensorPiece>& pieces);

}  // namespace heteroperf
