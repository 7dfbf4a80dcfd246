#include "workloads/graph_hash.hpp"

#include <algorithm>
#include <vector>

#include "workloads/node_kinds.hpp"

namespace heteroperf {
namespace {

/// The slot under which a tied weight counts as an edge from the embedding to the linear.
constexpr std::size_t tie_slot = 1000000;

struct Edge {
  std::size_t source = 0;
  std::size_t slot = 0;  ///< which input of the target
};

using Labels = std::vector<Hash128>;
using Edges = std::vector<std::vector<Edge>>;

template <class Value>
void update(Hash128& hash, const Value& value) {
  hash.update(value);
}
void update(Hash128& hash, const std::array<std::int64_t, 2>& pair) {
  hash.update(pair[0]).update(pair[1]);
}
// The name of a tied node does not enter; its edge does.
void update(Hash128& hash, const std::string& tied_to) { hash.update(!tied_to.empty()); }

Hash128 own_label(const Node& node) {
  Hash128 hash(kind_name(node.attributes));
  std::visit(
      [&](const auto& kind) {
        using Kind = std::decay_t<decltype(kind)>;
        for_each_field<Kind>([&](const auto& field) { update(hash, kind.*field.member); });
      },
      node.attributes);
  hash.update(node.output.size());
  for (std::int64_t extent : node.output) hash.update(extent);
  return hash;
}

Edges edges_into(const ModelGraph& graph) {
  Edges edges;
  for (const Node& node : graph.nodes()) {
    std::vector<Edge>& into = edges.emplace_back();
    for (NodeId id : node.inputs)
      into.push_back({static_cast<std::size_t>(id.value()), into.size()});
    const auto* linear = std::get_if<Linear>(&node.attributes);
    if (linear == nullptr || linear->tied_to.empty()) continue;
    into.push_back({static_cast<std::size_t>(graph.find(linear->tied_to).value()), tie_slot});
  }
  return edges;
}

void refine_forward(Labels& labels, const Edges& edges) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (const Edge& edge : edges[i]) labels[i].update(edge.slot).update(labels[edge.source]);
  }
}

void refine_backward(Labels& labels, const Edges& edges) {
  std::vector<Labels> uses(labels.size());
  for (std::size_t i = labels.size(); i-- > 0;) {
    std::sort(uses[i].begin(), uses[i].end());
    for (const Hash128& use : uses[i]) labels[i].update(use);
    for (const Edge& edge : edges[i]) {
      uses[edge.source].push_back(Hash128("use").update(edge.slot).update(labels[i]));
    }
  }
}

}  // namespace

Hash128 graph_hash(const ModelGraph& graph) {
  Labels labels;
  for (const Node& node : graph.nodes()) labels.push_back(own_label(node));
  const Edges edges = edges_into(graph);
  refine_forward(labels, edges);
  refine_backward(labels, edges);
  refine_forward(labels, edges);
  std::sort(labels.begin(), labels.end());
  Hash128 hash("heteroperf-graph");
  hash.update(labels.size());
  for (const Hash128& label : labels) hash.update(label);
  return hash;
}

}  // namespace heteroperf
