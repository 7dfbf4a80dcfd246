// The way from a node to its operator. The layout of a parameter is decided here as well, because
// buffers of weights and gradients are made before any operator is.
#include "runners/engine/operators/operator.hpp"

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {

at::ScalarType scalar_type(Precision precision) {
  if (precision == Precision::bf16) return at::kBFloat16;
  return precision == Precision::fp64 ? at::kDouble : at::kFloat;
}

// Grouped convolutions are LibTorch's, which wants its own layout.
at::MemoryFormat parameter_format(const Node& node, std::size_t index) {
  const auto* conv = std::get_if<Conv2d>(&node.attributes);
  return conv != nullptr && conv->groups == 1 && index == 0 ? at::MemoryFormat::ChannelsLast
                                                            : at::MemoryFormat::Contiguous;
}

OperatorPtr make(const Input&, const OperatorPlace& place) {
  throw UserError(fmt::format("node '{}' is the sample", place.node.name),
                  "no operator computes it");
}

// Nodes that run as part of a chain, and those that work on a part of the vocabulary, get their
// operators in operator_group.cpp.
OperatorPtr make_operator(const ModelGraph& graph, NodeId node, at::ScalarType type) {
  element_of(type);  // refuses what no kernel is built for
  const OperatorPlace place{graph, graph.node(node), type};
  return std::visit([&](const auto& kind) { return make(kind, place); }, place.node.attributes);
}

}  // namespace heteroperf
