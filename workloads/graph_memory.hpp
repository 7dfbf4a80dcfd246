#pragma once

#include <cstdint>

#include "metrics/base/quantity.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// The bytes that one rank holds to train a whole graph, before any sharing among ranks.
struct MemoryEstimate {
  Bytes weights, gradients, optimizer, activations;
  Bytes total() const { return weights + gradients + optimizer + activations; }
};

std::uint64_t bytes_per_element(Precision precision);

/// Estimates a rank's memory. The optimizer has 1 state per trained parameter for SGD with
/// momentum, 2 for AdamW, in the weights' precision; under bf16 the states are fp32 and an fp32
/// master copy of the weights comes on top. Activations are the `activation_bytes` of `samples`.
/// Throws UserError when the sum is over 2^64 bytes.
MemoryEstimate estimate_memory(const ModelGraph& graph, const BatchExtent& batch,
                               Precision precision, OptimizerKind optimizer);

/// Counts the bytes that forward leaves for backward: every tensor that some operator keeps, once,
/// however many keep it (kept_tensors has the rule of each kind). Statistics stay fp32, indices
/// have 8 bytes. Throws as estimate_memory().
Bytes activation_bytes(const ModelGraph& graph, const BatchExtent& batch, Precision precision);

}  // namespace heteroperf
