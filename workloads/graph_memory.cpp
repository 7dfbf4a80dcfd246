#include "workloads/graph_memory.hpp"

#include <fmt/core.h>

#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/ops.hpp"
#include "workloads/graph/node_rules.hpp"

// A training step keeps tensors of its forward pass until backward has used them. Every operator
// says which ones (node_rules.hpp); a tensor that several operators keep counts once, and an output
// that is only a view of an input is the input's memory.

namespace heteroperf {
namespace {

/// A sum of bytes in 128 bits, which no product of sizes and batches overflows.
using WideBytes = Ops;

constexpr std::uint64_t index_bytes = 8;
constexpr std::uint64_t statistic_bytes = 4;

/// Returns for each node the node whose memory its output is: its own, or that of the input of
/// which it is a view.
std::vector<std::size_t> storages(const ModelGraph& graph) {
  std::vector<std::size_t> owner;
  for (const Node& node : graph.nodes()) {
    const bool view = std::holds_alternative<Flatten>(node.attributes) ||
                      std::holds_alternative<ToSequence>(node.attributes);
    owner.push_back(view ? owner[node.inputs[0].index()] : owner.size());
  }
  return owner;
}

std::uint64_t u64(std::int64_t count) { return static_cast<std::uint64_t>(count); }

/// Describes a sample for a message.
std::string sample_text(const ModelGraph& graph) {
  std::string text;
  for (const NodeId id : graph.inputs()) {
    const auto& input = std::get<Input>(graph.node(id).attributes);
    text += text.empty() ? "of " : " and ";
    if (input.items > 0) text += fmt::format("up to {} times ", input.items);
    text += input.kind == InputKind::tokens
                ? fmt::format("{} tokens", input.length)
                : fmt::format("{}x{} pixels", input.height, input.width);
  }
  return text;
}

/// Returns the sum in bytes. Throws UserError where it went over 2^64.
Bytes require(const WideBytes& sum, const ModelGraph& graph, const BatchExtent& batch) {
  if (sum.high() == 0) return Bytes(sum.low());
  throw UserError(fmt::format("the memory for a batch of {} samples {} cannot be counted",
                              batch.samples, sample_text(graph)),
                  "it is over 2^64 bytes", "Take a smaller batch or smaller samples.");
}

/// Returns the bytes of an element of a node's output: token indices have 8.
std::uint64_t element_bytes_of(const Node& node, std::uint64_t element_bytes) {
  const auto* input = std::get_if<Input>(&node.attributes);
  const bool indices = input != nullptr && input->kind == InputKind::tokens;
  return indices ? index_bytes : element_bytes;
}

/// Adds up the tensors that operators keep. A tensor that several operators keep counts once.
class ActivationSum {
 public:
  ActivationSum(const ModelGraph& graph, const BatchExtent& batch)
      : graph_(graph), batch_(batch), owner_(storages(graph)), kept_(graph.nodes().size(), false) {}

  void add(std::size_t index) {
    const Node& node = graph_.nodes()[index];
    if (!node.differentiable) return;
    const KeptTensors kept = kept_tensors(graph_, node);
    const WideBytes times(batch_.count(graph_, node));
    if (kept.output) keep(index);
    for (NodeId id : node.inputs) {
      if (kept.inputs) keep(id.index());
    }
    sum_ += times * (u64(kept.statistics_per_sample) * statistic_bytes);
    sum_ += times * (u64(kept.indices_per_sample) * index_bytes);
    sum_ += WideBytes(u64(kept.statistics_per_batch)) * statistic_bytes;
  }

  WideBytes total(std::uint64_t element_bytes) const {
    WideBytes sum = sum_;
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (!kept_[i]) continue;
      sum += WideBytes(batch_.count(graph_, node)) * u64(element_count(node.output)) *
             element_bytes_of(node, element_bytes);
    }
    return sum;
  }

 private:
  void keep(std::size_t index) { kept_[owner_[index]] = true; }

  const ModelGraph& graph_;
  const BatchExtent& batch_;
  std::vector<std::size_t> owner_;
  std::vector<bool> kept_;
  WideBytes sum_;
};

/// Counts the optimizer's states and, under bf16, the fp32 master copy.
std::uint64_t optimizer_bytes_per_parameter(Precision precision, OptimizerKind optimizer) {
  const std::uint64_t states = optimizer == OptimizerKind::adamw ? 2 : 1;
  if (precision != Precision::bf16) return states * bytes_per_element(precision);
  const std::uint64_t full = bytes_per_element(Precision::fp32);
  return states * full + full;
}

}  // namespace

std::uint64_t bytes_per_element(Precision precision) {
  if (precision == Precision::bf16) return 2;
  return precision == Precision::fp64 ? 8 : 4;
}

Bytes activation_bytes(const ModelGraph& graph, const BatchExtent& batch, Precision precision) {
  ActivationSum sum(graph, batch);
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) sum.add(i);
  return require(sum.total(bytes_per_element(precision)), graph, batch);
}

MemoryEstimate estimate_memory(const ModelGraph& graph, const BatchExtent& batch,
                               Precision precision, OptimizerKind optimizer) {
  const std::uint64_t trained = graph.trained_parameter_count();
  MemoryEstimate memory;
  memory.weights = Bytes(graph.parameter_count() * bytes_per_element(precision));
  memory.gradients = Bytes(trained * bytes_per_element(precision));
  memory.optimizer = Bytes(trained * optimizer_bytes_per_parameter(precision, optimizer));
  memory.activations = activation_bytes(graph, batch, precision);
  WideBytes total;
  for (Bytes part : {memory.weights, memory.gradients, memory.optimizer, memory.activations}) {
    total += WideBytes(part.value());
  }
  require(total, graph, batch);
  return memory;
}

}  // namespace heteroperf
