// Bytes of tensors in memory and on the wire.
//
// bf16 trains with float32 master copies and sums, so some tensors have other sizes than the
// precision's. Wire formats change float32 tensors alone: bf16 halves them, int8 takes a byte per
// value and a float32 scale per block of values. Tokens travel as 64-bit integers whatever the
// format.
#include "runners/plan/plan_bytes.hpp"

#include <variant>

namespace heteroperf {
namespace {

constexpr std::uint64_t int8_block = 256;  // values that share a float32 scale

}  // namespace

std::uint64_t bytes_per_master(Precision precision) { return precision == Precision::fp64 ? 8 : 4; }

std::uint64_t bytes_per_output(const Node& node, Precision precision) {
  const auto* input = std::get_if<Input>(&node.attributes);
  const bool tokens = input != nullptr && input->kind == InputKind::tokens;
  return tokens ? 8 : bytes_per_element(precision);
}

ParameterBytes bytes_per_parameter(Precision precision, OptimizerKind optimizer) {
  const std::uint64_t small = bytes_per_element(precision), master = bytes_per_master(precision);
  const std::uint64_t states = optimizer == OptimizerKind::adamw ? 2 : 1;
  const std::uint64_t copies = small != master ? master : 0;
  return {2 * (small + copies), states * master};
}

double parameter_elements(const Node& node) {
  double sum = 0;
  for (const Parameter& parameter : node.parameters) {
    sum += static_cast<double>(element_count(parameter.shape));
  }
  return sum;
}

double trained_elements(const Node& node) {
  return node.weights == Weights::frozen ? 0 : parameter_elements(node);
}

double usual_items(const ModelGraph& graph, const Node& node) {
  if (!node.items) return 1;
  const auto& input = std::get<Input>(graph.node(*node.items).attributes);
  return static_cast<double>(input.fewest_items + input.items) / 2;
}

std::uint64_t message_bytes(const ModelGraph& graph, const std::vector<NodeId>& nodes,
                            const BatchExtent& batch, Precision precision, WireFormat format) {
  std::uint64_t sum = 0;
  for (const NodeId id : nodes) {
    const Node& node = graph.node(id);
    const std::uint64_t count =
        batch.count(graph, node) * static_cast<std::uint64_t>(element_count(node.output));
    const std::uint64_t bytes = bytes_per_output(node, precision);
    if (bytes != 4 || format == WireFormat::fp32) {
      sum += count * bytes;
    } else if (format == WireFormat::bf16) {
      sum += count * 2;
    } else {
      sum += count + 4 * ((count + int8_block - 1) / int8_block);
    }
  }
  return sum;
}

}  // namespace heteroperf
