#include "workloads/graph/model_graph.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/hash.hpp"
#include "metrics/base/name_table.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/node_kinds.hpp"
#include "workloads/graph/node_rules.hpp"

namespace heteroperf {
namespace {

/// A tied weight counts as an edge from the embedding to the linear, under this slot.
constexpr std::size_t tie_slot = 1000000;

struct Edge {
  std::size_t source = 0;
  std::size_t slot = 0;  ///< the number of the target's input
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
// The name of a tied node does not enter, but its edge does.
void update(Hash128& hash, const std::string& tied_to) { hash.update(!tied_to.empty()); }

/// Hashes a node without its surroundings: kind, attributes and shape.
Hash128 initial_label(const Node& node) {
  Hash128 hash(kind_name(node.attributes));
  std::visit(
      [&](const auto& kind) {
        using Kind = std::decay_t<decltype(kind)>;
        const Kind defaults{};
        for_each_field<Kind>([&](const auto& field) {
          const auto& value = kind.*field.member;
          if (field.rule == FieldRule::absent_at_default && value == defaults.*field.member) return;
          update(hash, value);
        });
      },
      node.attributes);
  const bool frozen = node.weights == Weights::frozen && !node.parameters.empty();
  if (frozen) hash.update(std::string("frozen"));
  hash.update(node.output.size());
  for (std::int64_t extent : node.output) hash.update(extent);
  return hash;
}

/// Lists the edges into every node, those of tied weights included.
Edges edges_into(const ModelGraph& graph) {
  Edges edges;
  for (const Node& node : graph.nodes()) {
    std::vector<Edge>& into = edges.emplace_back();
    for (NodeId id : node.inputs) into.push_back({id.index(), into.size()});
    const auto* linear = std::get_if<Linear>(&node.attributes);
    if (linear == nullptr || linear->tied_to.empty()) continue;
    into.push_back({graph.find(linear->tied_to).index(), tie_slot});
  }
  return edges;
}

/// Mixes the labels of a node's inputs into its own, from the input to the loss.
void refine_forward(Labels& labels, const Edges& edges) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (const Edge& edge : edges[i]) labels[i].update(edge.slot).update(labels[edge.source]);
  }
}

/// Mixes the labels of a node's consumers into its own, from the loss back. Consumers are sorted,
/// because their order means nothing.
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

/// Throws UserError for an empty name and for one that is taken.
void check_name(const Node& node, const std::vector<Node>& nodes) {
  if (node.name.empty()) {
    throw UserError(fmt::format("a {} node has no name", kind_name(node.attributes)));
  }
  const bool taken = std::any_of(nodes.begin(), nodes.end(),
                                 [&](const Node& earlier) { return earlier.name == node.name; });
  if (taken) throw UserError(fmt::format("two nodes are named '{}'", node.name));
}

/// Returns true where the node or any node before it has a tensor that training changes.
bool needs_gradient(const Node& node, const std::vector<const Node*>& inputs,
                    const ModelGraph& graph) {
  return has_trained_weight(graph, node) || std::ranges::any_of(inputs, &Node::differentiable);
}

}  // namespace

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count *= extent;
  return count;
}

std::uint64_t parameter_count(const Node& node) {
  std::uint64_t count = 0;
  for (const Parameter& parameter : node.parameters) {
    count += static_cast<std::uint64_t>(element_count(parameter.shape));
  }
  return count;
}

std::uint64_t trained_parameter_count(const Node& node) {
  return node.weights == Weights::trained ? parameter_count(node) : 0;
}

bool has_trained_weight(const ModelGraph& graph, const Node& node) {
  if (trained_parameter_count(node) > 0) return true;
  const auto* linear = std::get_if<Linear>(&node.attributes);
  return linear != nullptr && !linear->tied_to.empty() &&
         graph.node(graph.find(linear->tied_to)).weights == Weights::trained;
}

std::string to_string(const Shape& shape) { return fmt::format("{{{}}}", fmt::join(shape, ", ")); }

NodeId ModelGraph::add(std::string node_name, Attributes attributes, std::vector<NodeId> inputs,
                       std::string branch, Weights weights) {
  Node added;
  added.name = std::move(node_name);
  added.attributes = std::move(attributes);
  added.inputs = std::move(inputs);
  added.branch = std::move(branch);
  added.weights = weights;
  check_name(added, nodes_);
  std::vector<const Node*> sources;
  for (NodeId id : added.inputs) sources.push_back(&node(id));
  InferredShapes shapes = infer_shapes(added.name, added.attributes, sources, *this);
  added.output = std::move(shapes.output);
  added.parameters = std::move(shapes.parameters);
  const auto* sample = std::get_if<Input>(&added.attributes);
  added.items =
      sample != nullptr && sample->items > 0 ? std::optional(NodeId(nodes_.size())) : shapes.items;
  added.differentiable = needs_gradient(added, sources, *this);
  nodes_.push_back(std::move(added));
  return NodeId(nodes_.size() - 1);
}

const Node& ModelGraph::node(NodeId id) const {
  if (id.value() < 0 || id.index() >= nodes_.size()) {
    throw UserError(fmt::format("there is no node number {}", id.value()),
                    fmt::format("graph '{}' has {} nodes", name, nodes_.size()));
  }
  return nodes_[id.index()];
}

NodeId ModelGraph::find(std::string_view node_name) const {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].name == node_name) return NodeId(i);
  }
  throw UserError(fmt::format("graph '{}' has no node '{}'", name, node_name), {},
                  suggest_name(std::string(node_name), names_of(nodes_)));
}

std::vector<NodeId> ModelGraph::consumers(NodeId id) const {
  node(id);
  std::vector<NodeId> consumers;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const auto& inputs = nodes_[i].inputs;
    if (std::find(inputs.begin(), inputs.end(), id) != inputs.end()) {
      consumers.emplace_back(static_cast<std::int32_t>(i));
    }
  }
  return consumers;
}

NodeId ModelGraph::loss() const {
  if (nodes_.empty() || !is_loss(nodes_.back().attributes)) {
    throw UserError(fmt::format("graph '{}' has no loss", name), "its last node must be one");
  }
  return NodeId(nodes_.size() - 1);
}

std::vector<NodeId> ModelGraph::inputs() const {
  std::vector<NodeId> inputs;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (std::holds_alternative<Input>(nodes_[i].attributes)) inputs.emplace_back(i);
  }
  return inputs;
}

NodeId ModelGraph::input() const {
  const std::vector<NodeId> all = inputs();
  if (all.size() == 1) return all.front();
  throw UserError(fmt::format("graph '{}' has {} input nodes", name, all.size()),
                  "one is expected here");
}

std::uint64_t ModelGraph::parameter_count() const {
  std::uint64_t count = 0;
  for (const Node& node : nodes_) count += heteroperf::parameter_count(node);
  return count;
}

std::uint64_t ModelGraph::trained_parameter_count() const {
  std::uint64_t count = 0;
  for (const Node& node : nodes_) count += heteroperf::trained_parameter_count(node);
  return count;
}

// Identifies a graph up to names, branches and the order of independent nodes.
//
// Every node's label starts from its kind, attributes and shape. It is refined along the edges:
// forward (labels of its inputs, in order), backward (labels and slots of its consumers), and
// forward again. The graph's hash is that of the sorted labels, so nodes that look alike from the
// input but are used differently still tell graphs apart.
std::string ModelGraph::hash() const {
  Labels labels;
  for (const Node& node : nodes_) labels.push_back(initial_label(node));
  const Edges edges = edges_into(*this);
  refine_forward(labels, edges);
  refine_backward(labels, edges);
  refine_forward(labels, edges);
  std::sort(labels.begin(), labels.end());
  Hash128 hash("heteroperf-graph");
  hash.update(labels.size());
  for (const Hash128& label : labels) hash.update(label);
  return hash.hex();
}

ModelGraph with_frozen(const ModelGraph& graph, const std::string& components) {
  const std::vector<std::string> known = components_of(graph);
  std::set<std::string> frozen;
  ProblemList problems;
  std::istringstream words(components);
  for (std::string word; std::getline(words, word, ',');) {
    frozen.insert(word);
    if (std::ranges::find(known, word) != known.end()) continue;
    problems.add(fmt::format("the model '{}' has no component '{}' to freeze", graph.name, word),
                 fmt::format("its components are {}", fmt::join(known, ", ")),
                 suggest_name(word, known));
  }
  problems.throw_if_any();
  ModelGraph result;
  result.name = graph.name;
  for (const Node& node : graph.nodes()) {
    const bool stays = frozen.contains(node.branch);
    result.add(node.name, node.attributes, node.inputs, node.branch,
               stays ? Weights::frozen : node.weights);
  }
  if (result.trained_parameter_count() > 0) return result;
  throw UserError(fmt::format("all of the model '{}' is frozen", graph.name),
                  "nothing is left to train", "Leave a component unfrozen.");
}

}  // namespace heteroperf
