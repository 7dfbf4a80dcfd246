#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "workloads/model_graph.hpp"

namespace heteroperf {

/// A graph as `{"_format":"heteroperf-graph","_version":1,"name":…,"nodes":[…]}`; every node is
/// `{"name","kind","inputs":[names],…its fields…,"output":[extents]}` (format:
/// workloads/README.md).
nlohmann::ordered_json graph_to_json(const ModelGraph& graph);

/// Builds the graph again: shapes are inferred and compared with the "output" a node states (which
/// may be absent, as may any field with a default). Throws UserError with every problem found;
/// `origin` (a path) begins each message.
ModelGraph graph_from_json(const nlohmann::ordered_json& json, const std::string& origin);

/// The file's text, one node per line; reading it and writing it again gives the same bytes.
std::string graph_to_text(const ModelGraph& graph);
/// Throws UserError on text that is not JSON, on repeated keys, and as graph_from_json does.
ModelGraph graph_from_text(std::string_view text, const std::string& origin);
/// Throws UserError when the file cannot be read, and as graph_from_text does.
ModelGraph read_graph_file(const std::filesystem::path& path);

}  // namespace heteroperf
