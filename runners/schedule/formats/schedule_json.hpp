#pragma once

#include <string>

#include "runners/schedule/ir/pipeline_graph.hpp"
#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/network.hpp"

namespace heteroperf {

/// The native form: `_format` "heteroperf-schedule", graph, programs as instruction texts, hash.
/// Reading gives an equal Schedule (of a normalised graph with finite costs). Throws UserError
/// naming key and value of everything wrong; unknown keys name the nearest valid one. `hash` may be
/// absent; one that does not match is an error.
std::string schedule_to_text(const Schedule& schedule);
Schedule schedule_from_text(const std::string& text);
Schedule read_schedule_file(const std::string& path);

/// `--graph`: {"ranks","micro_batches","latency","segments":[{"name","branch","rank","forward",
/// "backward","weight","activation","weights"}],"edges":[{"from","to","bytes","gradient"}],
/// "interactions":[{"name","members","every","cost"}]}; segments are named in edges by name or
/// number. Every key: README.md.
PipelineGraph read_pipeline_graph_file(const std::string& path);
/// `--costs-file`: {"forward":[per rank],"backward":[…],"weight":[…],"comm":x}.
StageCosts read_costs_file(const std::string& path);
/// `--network`: the fields of Network, by name.
Network read_network_file(const std::string& path);

}  // namespace heteroperf
