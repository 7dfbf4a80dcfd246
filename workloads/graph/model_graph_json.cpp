#include "workloads/graph/model_graph_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "workloads/graph/node_kinds.hpp"

// A node's fields are read and written by the rows of node_kinds.hpp, so this file knows no kind by
// name. Reading goes in two passes: all nodes are parsed first, so that a misspelt input can be
// told from one that comes later; then they are added to the graph one by one, which infers and
// checks their shapes.

namespace heteroperf {
namespace {

constexpr const char* format_name = "heteroperf-graph";
constexpr int format_version = 1;
const std::string default_branch = "main";

// --- writing ---

template <class Value>
Json value_to_json(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return to_string(value);
  } else {
    return value;
  }
}

/// Writes the fields of a kind, without those that are superfluous at their default.
template <class Kind>
void write_fields(const Kind& attributes, Json& json) {
  const Kind defaults{};
  for_each_field<Kind>([&](const auto& field) {
    const auto& value = attributes.*field.member;
    const bool may_be_left_out =
        field.rule == FieldRule::unused_at_default || field.rule == FieldRule::absent_at_default;
    if (may_be_left_out && value == defaults.*field.member) return;
    json[field.key] = value_to_json(value);
  });
}

Json node_to_json(const ModelGraph& graph, const Node& node) {
  Json json;
  json["name"] = node.name;
  json["kind"] = kind_name(node.attributes);
  json["inputs"] = Json::array();
  for (NodeId id : node.inputs) json["inputs"].push_back(graph.node(id).name);
  if (node.branch != default_branch) json["branch"] = node.branch;
  if (node.weights == Weights::frozen) json["frozen"] = true;
  std::visit([&](const auto& kind) { write_fields(kind, json); }, node.attributes);
  json["output"] = node.output;
  return json;
}

// --- reading ---

/// Reads the attributes of one kind from a node's JSON.
template <class Kind>
Attributes read_attributes(ObjectReader& reader) {
  Kind attributes{};
  for_each_field<Kind>(
      [&](const auto& field) { reader.read(field.key, attributes.*field.member); });
  reader.finish();
  return attributes;
}

/// A node as its text states it, before shapes are inferred.
struct ParsedNode {
  std::string path, name;
  std::optional<Attributes> attributes;
  std::vector<std::string> inputs;
  std::string branch = default_branch;
  bool frozen = false;
  std::optional<Shape> output;
};

/// Reads the kind's name and then the fields of that kind; the variant lists all kinds.
template <class... Kinds>
std::optional<Attributes> read_kind(ObjectReader& reader,
                                    std::type_identity<std::variant<Kinds...>>) {
  static const std::vector<std::string> names{kind_row<Kinds>.name...};
  constexpr Attributes (*readers[])(ObjectReader&) = {read_attributes<Kinds>...};
  const Json* kind = reader.value("kind");
  if (kind == nullptr) return std::nullopt;
  const int choice = read_choice(*kind, reader.path_of("kind"), names, reader.problems());
  if (choice < 0) return std::nullopt;
  return readers[choice](reader);
}

ParsedNode parse_node(const Json& json, const std::string& path, DocumentProblems& problems) {
  ParsedNode node;
  node.path = path;
  ObjectReader reader(json, path, problems);
  reader.require({"name", "kind", "inputs"});
  reader.read("name", node.name);
  reader.read("inputs", node.inputs);
  reader.read("branch", node.branch);
  reader.read("frozen", node.frozen);
  if (reader.has("output")) reader.read("output", node.output.emplace());
  node.attributes = read_kind(reader, std::type_identity<Attributes>());
  return node;
}

/// Adds parsed nodes to a graph. A node that fails takes the nodes after it along in silence,
/// because its shape is unknown.
class GraphAssembler {
 public:
  GraphAssembler(DocumentProblems& problems, const std::vector<ParsedNode>& nodes)
      : problems_(problems), declared_(names_of(nodes)) {}

  void add(ParsedNode& node) {
    if (problems_.full()) return;
    std::vector<NodeId> inputs;
    bool complete = node.attributes.has_value();
    for (const std::string& input : node.inputs) {
      const auto source = ids_.find(input);
      if (source == ids_.end()) {
        note_missing(node, input);
      } else if (!source->second) {
        complete = false;
      } else {
        inputs.push_back(*source->second);
      }
      complete = complete && source != ids_.end();
    }
    std::optional<NodeId> id;
    if (complete) id = try_add(node, std::move(inputs));
    ids_.emplace(node.name, id);
  }

  ModelGraph finish(std::string name) {
    problems_.throw_if_any();
    check_uses();
    problems_.throw_if_any();
    graph_.name = std::move(name);
    return std::move(graph_);
  }

 private:
  /// Notes an input that is no earlier node.
  void note_missing(const ParsedNode& node, const std::string& input) {
    const bool later = std::find(declared_.begin(), declared_.end(), input) != declared_.end();
    if (later) {
      problems_.add(fmt::format("{}: its input {} comes later", node.path, shown(input)),
                    "nodes stand in the order of computation");
    } else {
      problems_.add(fmt::format("{}: its input {} is no node", node.path, shown(input)), {},
                    did_you_mean(input, declared_));
    }
  }

  /// Adds a node, and turns what the graph says against it into problems.
  std::optional<NodeId> try_add(ParsedNode& node, std::vector<NodeId> inputs) {
    try {
      const NodeId id = graph_.add(node.name, std::move(*node.attributes), std::move(inputs),
                                   node.branch, node.frozen ? Weights::frozen : Weights::trained);
      check_output(node, graph_.node(id).output);
      return id;
    } catch (const UserError& error) {
      problems_.add_all(error);
      return std::nullopt;
    }
  }

  /// Compares the stated output with the inferred one.
  void check_output(const ParsedNode& node, const Shape& inferred) {
    if (!node.output || *node.output == inferred) return;
    problems_.add(fmt::format("{}: its output is stated as {}", node.path, to_string(*node.output)),
                  fmt::format("its inputs and attributes give {}", to_string(inferred)));
  }

  /// Notes a missing loss, one that nothing can lower, and nodes that nothing uses.
  void check_uses() {
    const std::size_t count = graph_.nodes().size();
    if (count == 0 || !is_loss(graph_.nodes().back().attributes)) {
      problems_.add("the last node is not a loss",
                    "a model ends in a cross_entropy, squared_error or contrastive");
      return;
    }
    if (!graph_.nodes().back().differentiable) {
      problems_.add("the loss depends on no weight that is trained", {},
                    "Leave a component unfrozen.");
    }
    std::vector<bool> used(count, false);
    for (const Node& node : graph_.nodes()) {
      for (const NodeId input : node.inputs) used[input.index()] = true;
    }
    for (std::size_t i = 0; i + 1 < count; ++i) {
      if (used[i]) continue;
      problems_.add(fmt::format("nothing uses node {}", shown(graph_.nodes()[i].name)),
                    "it would be computed in vain", "Remove it or connect it.");
    }
  }

  DocumentProblems& problems_;
  ModelGraph graph_;
  std::vector<std::string> declared_;
  std::map<std::string, std::optional<NodeId>> ids_;
};

/// Turns "nodes[1]" into `nodes[1 "conv"]`.
std::string named_path(std::string path, const Json& json) {
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) return path;
  return path.insert(path.size() - 1, " " + shown(*name));
}

}  // namespace

Json graph_to_json(const ModelGraph& graph) {
  Json json;
  json["_format"] = format_name;
  json["_version"] = format_version;
  json["name"] = graph.name;
  json["nodes"] = Json::array();
  for (const Node& node : graph.nodes()) json["nodes"].push_back(node_to_json(graph, node));
  return json;
}

ModelGraph graph_from_json(const Json& json, const std::string& origin) {
  DocumentProblems problems(origin);
  ObjectReader reader(json, "", problems);
  reader.expect_format(format_name, format_version);
  reader.require({"name", "nodes"});
  std::string name;
  reader.read("name", name);
  std::vector<ParsedNode> nodes;
  reader.for_each("nodes", [&](const Json& node, std::string path) {
    nodes.push_back(parse_node(node, named_path(std::move(path), node), problems));
  });
  reader.finish();
  GraphAssembler assembler(problems, nodes);
  for (ParsedNode& node : nodes) assembler.add(node);
  return assembler.finish(std::move(name));
}

std::string graph_to_text(const ModelGraph& graph) {
  Json head = graph_to_json(graph);
  const Json nodes = std::exchange(head["nodes"], Json::array());
  std::string text = head.dump();
  text.resize(text.size() - 2);  // the list stays open
  for (const Json& node : nodes) text += (&node == &nodes.front() ? "\n" : ",\n") + node.dump();
  return text + "\n]}\n";
}

ModelGraph graph_from_text(std::string_view text, const std::string& origin) {
  return graph_from_json(parse_strict_json(text, origin, format_name), origin);
}

ModelGraph read_graph_file(const std::filesystem::path& path) {
  return graph_from_text(read_text_file(path, "graph"), path.string());
}

}  // namespace heteroperf
