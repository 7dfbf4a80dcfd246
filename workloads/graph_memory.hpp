#pragma once

#include <cstdint>

#include "metrics/base/quantity.hpp"
#include "workloads/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// What one rank holds to train a whole graph, before any sharing among ranks.
struct MemoryEstimate {
  Bytes weights, gradients, optimizer, activations;
  Bytes total() const { return weights + gradients + optimizer + activations; }
};

std::uint64_t bytes_per_element(Precision precision);

/// Optimizer: 1 state per parameter for SGD with momentum, 2 for AdamW, in the weights' precision;
/// under bf16 the states are fp32 and an fp32 master copy of the weights comes on top.
/// Activations: `activation_bytes` of `samples`. Throws UserError when the sum is over 2^64 bytes.
MemoryEstimate estimate_memory(const ModelGraph& graph, std::uint64_t samples, Precision precision,
                               OptimizerKind optimizer);

/// What forward leaves for backward: every tensor that some operator keeps, once, whoever keeps it
/// (the rule per kind is a table in workloads/README.md). Statistics stay fp32, indices 8 bytes.
Bytes activation_bytes(const ModelGraph& graph, std::uint64_t samples, Precision precision);

}  // namespace heteroperf
