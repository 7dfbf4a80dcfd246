#pragma once

#include <string>

#include "metrics/base/strict_json.hpp"
#include "runners/schedule/ir/pipeline_graph.hpp"

namespace heteroperf::detail {

/// Whether segments that bear one name are a problem.
enum class SegmentNames { unique, any };

/// Reads the keys of a graph from `reader`'s object (more keys may follow), notes what is wrong,
/// and normalises a graph without problems.
PipelineGraph read_graph(ObjectReader& reader, SegmentNames names);

/// The graph's object as text, a segment and an edge per line.
std::string graph_to_text(const PipelineGraph& graph);

}  // namespace heteroperf::detail
