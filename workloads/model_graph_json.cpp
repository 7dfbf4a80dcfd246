#include "workloads/model_graph_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <type_traits>

#include "metrics/error.hpp"
#include "workloads/node_kinds.hpp"
#include "workloads/strict_json.hpp"

namespace heteroperf {
namespace {

constexpr const char* format_name = "heteroperf-graph";
constexpr int format_version = 1;
const std::string default_branch = "main";

// --- writing ---

template <class Value>
Json value_to_json(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return value_names(value)[static_cast<std::size_t>(value)];
  } else {
    return value;
  }
}

template <class Kind>
void write_fields(const Kind& attributes, Json& json) {
  const Kind defaults{};
  for_each_field<Kind>([&](const auto& field) {
    const auto& value = attributes.*field.member;
    if (field.rule == FieldRule::unused_at_default && value == defaults.*field.member) return;
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
  std::visit([&](const auto& kind) { write_fields(kind, json); }, node.attributes);
  json["output"] = node.output;
  return json;
}

// --- reading ---

/// Makes the attributes of one kind from a node's JSON.
template <class Kind>
Attributes read_attributes(ObjectReader& reader) {
  std::vector<std::string> keys{"name", "kind", "inputs", "branch", "output"};
  Kind attributes{};
  for_each_field<Kind>([&](const auto& field) {
    keys.emplace_back(field.key);
    if (const Json* value = reader.optional(field.key)) {
      reader.read(field.key, *value, attributes.*field.member);
    }
  });
  reader.check_keys(keys);
  return attributes;
}

struct KindReader {
  const char* name;
  Attributes (*read)(ObjectReader&);
};

template <class... Kinds>
std::vector<KindReader> make_kind_readers(std::type_identity<std::variant<Kinds...>>) {
  return {{kind_row<Kinds>.name, read_attributes<Kinds>}...};
}

const std::vector<KindReader>& kind_readers() {
  static const std::vector<KindReader> table = make_kind_readers(std::type_identity<Attributes>());
  return table;
}

struct ParsedNode {
  std::string subject, name;
  std::optional<Attributes> attributes;
  std::vector<std::string> inputs;
  std::string branch = default_branch;
  std::optional<Shape> output;
};

std::optional<Attributes> read_kind(ObjectReader& reader) {
  const Json* value = reader.required("kind");
  if (value == nullptr) return std::nullopt;
  std::string kind;
  reader.read("kind", *value, kind);
  if (kind.empty()) return std::nullopt;
  std::vector<std::string> names;
  for (const KindReader& row : kind_readers()) {
    if (kind == row.name) return row.read(reader);
    names.emplace_back(row.name);
  }
  reader.fail(fmt::format("there is no kind '{}'", kind), "kinds: " + listed(names),
              did_you_mean(kind, names));
  return std::nullopt;
}

ParsedNode parse_node(const Json& json, const std::string& subject, ProblemList& problems) {
  ParsedNode node;
  node.subject = subject;
  ObjectReader reader(json, subject, problems);
  if (!json.is_object()) {
    reader.fail("is not an object", R"(expected {"name": …, "kind": …, "inputs": […]})");
    return node;
  }
  if (const Json* value = reader.required("name")) reader.read("name", *value, node.name);
  if (const Json* value = reader.required("inputs")) reader.read("inputs", *value, node.inputs);
  if (const Json* value = reader.optional("branch")) reader.read("branch", *value, node.branch);
  if (const Json* value = reader.optional("output")) {
    reader.read("output", *value, node.output.emplace());
  }
  node.attributes = read_kind(reader);
  return node;
}

/// Adds parsed nodes to a graph. A node that fails takes those after it along in silence: its shape
/// is unknown.
class GraphAssembler {
 public:
  GraphAssembler(const std::string& origin, ProblemList& problems)
      : origin_(origin), problems_(problems) {}

  void declare(const ParsedNode& node) { declared_.push_back(node.name); }

  void add(ParsedNode node) {
    std::vector<NodeId> inputs;
    bool complete = node.attributes.has_value();
    for (const std::string& input : node.inputs) {
      const auto found = ids_.find(input);
      if (found == ids_.end()) {
        note_missing(node, input);
      } else if (!found->second) {
        complete = false;
      } else {
        inputs.push_back(*found->second);
      }
      complete = complete && found != ids_.end();
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
  void note_missing(const ParsedNode& node, const std::string& input) {
    const bool later = std::find(declared_.begin(), declared_.end(), input) != declared_.end();
    if (later) {
      problems_.add(fmt::format("{}: its input '{}' comes later", node.subject, input),
                    "nodes stand in the order of computation");
    } else {
      problems_.add(fmt::format("{}: its input '{}' is no node", node.subject, input), {},
                    did_you_mean(input, declared_));
    }
  }

  std::optional<NodeId> try_add(ParsedNode& node, std::vector<NodeId> inputs) {
    try {
      const NodeId id =
          graph_.add(node.name, std::move(*node.attributes), std::move(inputs), node.branch);
      check_output(node, graph_.node(id).output);
      return id;
    } catch (const UserError& error) {
      for (const Problem& p : error.problems()) {
        problems_.add(origin_ + ": " + p.problem, p.why, p.suggestion);
      }
      return std::nullopt;
    }
  }

  void check_output(const ParsedNode& node, const Shape& inferred) {
    if (!node.output || *node.output == inferred) return;
    problems_.add(
        fmt::format("{}: its output is stated as {}", node.subject, to_string(*node.output)),
        fmt::format("its inputs and attributes give {}", to_string(inferred)));
  }

  void check_uses() {
    const std::size_t count = graph_.nodes().size();
    if (count == 0 || !std::holds_alternative<CrossEntropy>(graph_.nodes().back().attributes)) {
      problems_.add(origin_ + ": the last node is not a loss", "a model ends in a cross_entropy");
      return;
    }
    std::vector<bool> used(count, false);
    used.back() = true;
    for (const Node& node : graph_.nodes()) {
      for (NodeId id : node.inputs) used[static_cast<std::size_t>(id.value())] = true;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (used[i]) continue;
      problems_.add(fmt::format("{}: nothing uses node '{}'", origin_, graph_.nodes()[i].name),
                    "it would be computed in vain", "Remove it or connect it.");
    }
  }

  const std::string& origin_;
  ProblemList& problems_;
  ModelGraph graph_;
  std::vector<std::string> declared_;
  std::map<std::string, std::optional<NodeId>> ids_;
};

void check_header(ObjectReader& reader) {
  std::string format = format_name;
  std::int64_t version = format_version;
  if (const Json* value = reader.required("_format")) reader.read("_format", *value, format);
  if (const Json* value = reader.required("_version")) reader.read("_version", *value, version);
  if (format != format_name) {
    reader.fail(fmt::format("_format is '{}'", format), fmt::format("expected '{}'", format_name));
  }
  if (version != format_version) {
    reader.fail(fmt::format("_version is {}", version),
                fmt::format("this program reads version {}", format_version));
  }
}

std::string node_subject(const std::string& origin, std::size_t index, const Json& json) {
  std::string subject = fmt::format("{}: nodes[{}]", origin, index);
  if (!json.is_object()) return subject;
  const auto name = json.find("name");
  if (name != json.end() && name->is_string()) {
    subject += fmt::format(" '{}'", name->get<std::string>());
  }
  return subject;
}

std::vector<ParsedNode> parse_nodes(const Json& json, const std::string& origin,
                                    ProblemList& problems) {
  std::vector<ParsedNode> nodes;
  if (!json.is_array()) {
    problems.add(origin + ": nodes is not a list");
    return nodes;
  }
  for (const Json& node : json) {
    nodes.push_back(parse_node(node, node_subject(origin, nodes.size(), node), problems));
  }
  return nodes;
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
  ProblemList problems;
  ObjectReader reader(json, origin, problems);
  if (!json.is_object()) {
    reader.fail("is not a graph", "expected a JSON object");
    problems.throw_if_any();
  }
  reader.check_keys({"_format", "_version", "name", "nodes"});
  check_header(reader);
  std::string name;
  if (const Json* value = reader.required("name")) reader.read("name", *value, name);
  GraphAssembler assembler(origin, problems);
  if (const Json* list = reader.required("nodes")) {
    std::vector<ParsedNode> nodes = parse_nodes(*list, origin, problems);
    for (const ParsedNode& node : nodes) assembler.declare(node);
    for (ParsedNode& node : nodes) assembler.add(std::move(node));
  }
  return assembler.finish(std::move(name));
}

std::string graph_to_text(const ModelGraph& graph) {
  Json head = graph_to_json(graph);
  const Json nodes = std::move(head["nodes"]);
  head.erase("nodes");
  std::string text = head.dump();
  text.pop_back();
  text += ",\"nodes\":[\n";
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    text += nodes[i].dump() + (i + 1 < nodes.size() ? ",\n" : "\n");
  }
  return text + "]}\n";
}

ModelGraph graph_from_text(std::string_view text, const std::string& origin) {
  return graph_from_json(parse_strict_json(text, origin), origin);
}

ModelGraph read_graph_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw UserError(fmt::format("cannot read the graph {}", path.string()),
                    error ? error.message() : "it is not a file");
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) {
    throw UserError(fmt::format("cannot read the graph {}", path.string()),
                    "the system refused to open it");
  }
  return graph_from_text(text, path.string());
}

}  // namespace heteroperf
