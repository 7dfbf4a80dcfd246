#include "automl/hyper_graph.hpp"

#include <algorithm>
#include <optional>

#include "automl/graph_rebuild.hpp"
#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

bool is_added_by_deeper_morph(const Node& node) {
  const std::string_view name = node.name;
  return name.starts_with("deeper") && name.size() > 6 && name[6] >= '0' && name[6] <= '9';
}

Attributes with_settings(const Node& node, double dropout, std::int64_t kernel) {
  Attributes attributes = node.attributes;
  if (auto* drop = std::get_if<Dropout>(&attributes)) drop->p = dropout;
  if (auto* conv = std::get_if<Conv2d>(&attributes); conv && is_added_by_deeper_morph(node)) {
    const std::int64_t side = std::min(node.output[1], node.output[2]);
    const std::int64_t k = std::min(kernel, 2 * side - 1);
    conv->kernel = {k, k};
    conv->padding = {k / 2, k / 2};
  }
  return attributes;
}

/// The last linear layer, when the graph has no dropout of its own.
std::optional<NodeId> place_for_dropout(const ModelGraph& graph) {
  std::optional<NodeId> last;
  for (NodeId id : node_ids(graph)) {
    if (std::holds_alternative<Dropout>(graph.node(id).attributes)) return std::nullopt;
    if (std::holds_alternative<Linear>(graph.node(id).attributes)) last = id;
  }
  return last;
}

}  // namespace

ModelGraph graph_with(const ModelGraph& graph, double dropout, std::int64_t kernel) {
  HETEROPERF_EXPECT(dropout >= 0.0 && dropout < 1.0 && kernel >= 1 && kernel % 2 == 1);
  const std::optional<NodeId> classifier = place_for_dropout(graph);
  GraphRebuild next(graph);
  for (NodeId id : node_ids(graph)) {
    const Node& node = graph.node(id);
    if (classifier == id) {
      const NodeId input = node.inputs[0];
      next.replace(input, next.add("dropout", Dropout{dropout}, {next.now(input)}));
    }
    next.copy(id, with_settings(node, dropout, kernel));
  }
  return std::move(next).finish();
}

ModelGraph architecture_of(const ModelGraph& graph) { return graph_with(graph, 0.0, 3); }

}  // namespace heteroperf
