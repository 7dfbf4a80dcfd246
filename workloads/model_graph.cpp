#include "workloads/model_graph.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "workloads/graph_hash.hpp"
#include "workloads/shape_inference.hpp"

namespace heteroperf {
namespace {

std::vector<std::string> names_of(const std::vector<Node>& nodes) {
  std::vector<std::string> names;
  names.reserve(nodes.size());
  for (const Node& node : nodes) names.push_back(node.name);
  return names;
}

void check_name(const Node& node, const std::vector<Node>& nodes) {
  if (node.name.empty()) {
    throw UserError(fmt::format("a {} node has no name", kind_name(node.attributes)));
  }
  const bool taken = std::any_of(nodes.begin(), nodes.end(),
                                 [&](const Node& other) { return other.name == node.name; });
  if (taken) throw UserError(fmt::format("two nodes are named '{}'", node.name));
}

void check_single_input(const Node& node, const std::vector<Node>& nodes) {
  if (!std::holds_alternative<Input>(node.attributes)) return;
  for (const Node& other : nodes) {
    if (!std::holds_alternative<Input>(other.attributes)) continue;
    throw UserError(fmt::format("nodes '{}' and '{}' are both inputs", other.name, node.name),
                    "a graph reads one sample");
  }
}

bool needs_gradient(const Node& node, const std::vector<const Node*>& inputs) {
  const auto* linear = std::get_if<Linear>(&node.attributes);
  return !node.parameters.empty() || (linear != nullptr && !linear->tied_to.empty()) ||
         std::any_of(inputs.begin(), inputs.end(),
                     [](const Node* input) { return input->differentiable; });
}

}  // namespace

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count *= extent;
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("{{{}}}", fmt::join(shape, ", ")); }

NodeId ModelGraph::add(std::string node_name, Attributes attributes, std::vector<NodeId> inputs,
                       std::string branch) {
  Node added;
  added.name = std::move(node_name);
  added.attributes = std::move(attributes);
  added.inputs = std::move(inputs);
  added.branch = std::move(branch);
  check_name(added, nodes_);
  check_single_input(added, nodes_);
  std::vector<const Node*> sources;
  for (NodeId id : added.inputs) sources.push_back(&node(id));
  InferredShapes shapes = infer_shapes(added.name, added.attributes, sources, *this);
  added.output = std::move(shapes.output);
  added.parameters = std::move(shapes.parameters);
  added.differentiable = needs_gradient(added, sources);
  nodes_.push_back(std::move(added));
  return NodeId(static_cast<std::int32_t>(nodes_.size()) - 1);
}

const Node& ModelGraph::node(NodeId id) const {
  if (id.value() < 0 || static_cast<std::size_t>(id.value()) >= nodes_.size()) {
    throw UserError(fmt::format("there is no node number {}", id.value()),
                    fmt::format("graph '{}' has {} nodes", name, nodes_.size()));
  }
  return nodes_[static_cast<std::size_t>(id.value())];
}

NodeId ModelGraph::find(std::string_view node_name) const {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].name == node_name) return NodeId(static_cast<std::int32_t>(i));
  }
  const std::string near = nearest_name(std::string(node_name), names_of(nodes_));
  throw UserError(fmt::format("graph '{}' has no node '{}'", name, node_name), {},
                  near.empty() ? "" : fmt::format("Did you mean '{}'?", near));
}

std::vector<NodeId> ModelGraph::consumers(NodeId id) const {
  node(id);
  std::vector<NodeId> found;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const auto& inputs = nodes_[i].inputs;
    if (std::find(inputs.begin(), inputs.end(), id) != inputs.end()) {
      found.emplace_back(static_cast<std::int32_t>(i));
    }
  }
  return found;
}

NodeId ModelGraph::loss() const {
  if (nodes_.empty() || !std::holds_alternative<CrossEntropy>(nodes_.back().attributes)) {
    throw UserError(fmt::format("graph '{}' has no loss", name),
                    "its last node must be a cross_entropy");
  }
  return NodeId(static_cast<std::int32_t>(nodes_.size()) - 1);
}

NodeId ModelGraph::input() const {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (std::holds_alternative<Input>(nodes_[i].attributes)) {
      return NodeId(static_cast<std::int32_t>(i));
    }
  }
  throw UserError(fmt::format("graph '{}' has no input node", name));
}

std::uint64_t ModelGraph::parameter_count() const {
  std::uint64_t count = 0;
  for (const Node& node : nodes_) {
    for (const Parameter& parameter : node.parameters) {
      count += static_cast<std::uint64_t>(element_count(parameter.shape));
    }
  }
  return count;
}

std::string ModelGraph::hash() const { return graph_hash(*this).hex(); }

}  // namespace heteroperf
