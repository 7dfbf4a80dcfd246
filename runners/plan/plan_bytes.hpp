#pragma once

#include <cstdint>
#include <vector>

#include "runners/cluster/link_curve.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/graph_memory.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// Words that an optimizer is counted to move per parameter: AdamW reads parameter, gradient and
/// two moments, and writes parameter and moments.
inline constexpr double optimizer_words = 7;

/// Bytes per element of what the optimizer updates and replicas sum: float32 under bf16.
std::uint64_t bytes_per_master(Precision precision);
/// Statistics (means, softmax sums) take as many bytes as master copies.
inline std::uint64_t statistic_bytes(Precision precision) { return bytes_per_master(precision); }
/// An element of a node's output takes so many bytes: 8 for tokens.
std::uint64_t bytes_per_output(const Node& node, Precision precision);

/// Bytes of a parameter in training: of it, its gradient and master copies of both, and of the
/// optimizer's states, which ZeRO-1 spreads over replicas.
struct ParameterBytes {
  std::uint64_t kept = 0, spread = 0;
};
ParameterBytes bytes_per_parameter(Precision precision, OptimizerKind optimizer);

/// Elements of the tensors that a node owns; those of them that training changes.
double parameter_elements(const Node& node);
double trained_elements(const Node& node);

/// The items of a sample that a node is computed for: 1, and for items the middle between the
/// fewest and the most. Times go by it, and memory by the most that a BatchExtent of samples stands
/// for.
double usual_items(const ModelGraph& graph, const Node& node);

/// The bytes that the outputs of `nodes` for a batch take on a link; formats other than fp32 change
/// float32 tensors alone.
std::uint64_t message_bytes(const ModelGraph& graph, const std::vector<NodeId>& nodes,
                            const BatchExtent& batch, Precision precision, WireFormat format);

}  // namespace heteroperf
