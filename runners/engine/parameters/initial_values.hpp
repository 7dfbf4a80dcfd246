#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runners/plan/tensor/tensor_parallel.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

enum class InitialKind { constant, normal };

/// The distribution that one parameter is drawn from: `value` is the constant, or the deviation of
/// a normal distribution around 0.
struct InitialRule {
  InitialKind kind = InitialKind::constant;
  double value = 0.0;
};

/// The rule of parameter `index` of `node`:
/// - biases 0, norm weights 1;
/// - conv2d: sqrt(2 / (out_channels · kh · kw)) (He et al. 2015, fan out); in a graph with
/// attention
///   (a patch embedding): sqrt(1 / fan in);
/// - in a graph with attention, linear and tables: 0.02, and a linear whose output is added to
///   the residual stream 0.02 / sqrt(2 · attention nodes) (GPT-2);
/// - otherwise linear: sqrt(2 / fan in) before a ReLU, else sqrt(1 / (3 · fan in)).
InitialRule initial_rule(const ModelGraph& graph, NodeId node, std::size_t index);

/// Fills `values` (contiguous, float or double) by the rule. Element i of the full parameter is a
/// pure function of (seed, node name, parameter index, i): the same whatever the rank, the shard of
/// it that `values` holds, or the thread count.
void fill_initial_values(const ModelGraph& graph, NodeId node, std::size_t index,
                         std::uint64_t seed, const at::Tensor& values,
                         const ParameterShard& shard = {});

}  // namespace heteroperf
