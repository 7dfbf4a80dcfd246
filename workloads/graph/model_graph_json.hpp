#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// Writes a graph as `{"_format":"heteroperf-graph","_version":1,"name":…,"nodes":[…]}`. Every node
/// is `{"name","kind","inputs":[names],…its fields…,"output":[extents]}` (format:
/// workloads/README.md).
nlohmann::ordered_json graph_to_json(const ModelGraph& graph);

/// Builds the graph again. Shapes are inferred and compared with the "output" that a node states,
/// which may be absent, as may any field with a default. Throws UserError with every problem;
/// `origin` (a path) begins each message.
ModelGraph graph_from_json(const nlohmann::ordered_json& json, const std::string& origin);

/// Writes the text of a file, one node per line; reading and writing it again gives the same bytes.
std::string graph_to_text(const ModelGraph& graph);
/// Reads such a text. Throws UserError for text that is no JSON, for repeated keys, and as
/// graph_from_json does.
ModelGraph graph_from_text(std::string_view text, const std::string& origin);
/// Reads a file. Throws UserError when it cannot be read, and as graph_from_text does.
ModelGraph read_graph_file(const std::filesystem::path& path);

}  // namespace heteroperf
