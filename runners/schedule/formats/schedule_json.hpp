#pragma once

#include <string>
#include <string_view>

#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

class ObjectReader;

/// An instruction with all of its fields on one line, as schedule files hold it: the text of
/// to_text(), then, where they are set, "eN" (edge), "pN" (peer, where to_text() does not say it),
/// "gN" (group), "bN" (buffer), "sN" (sequence), and "+" where it is fused with the next:
/// "F 3.7 +", "SEND_ACT 3.7>1 e3 g0 b2 s5".
void append_instruction(std::string& text, const Instruction& instruction);
/// The result is false where `text` is no instruction. The caller has to check that its numbers are
/// in range.
bool parse_instruction(std::string_view text, Instruction& instruction);

/// The native form: `_format` "heteroperf-schedule", graph, programs as instruction texts, hash.
/// Reading gives an equal Schedule (if its graph is normalised and its costs are finite). Throws
/// UserError naming key and value of everything wrong; unknown keys name the nearest valid one.
/// `hash` may be absent; one that does not match is an error.
std::string schedule_to_text(const Schedule& schedule);
Schedule schedule_from_text(const std::string& text);
Schedule read_schedule_file(const std::string& path);

/// Reads the file of `--graph`: {"ranks","micro_batches","latency","segments":[{"name","branch",
/// "rank","forward","backward","weight","activation","weights"}],"edges":[{"from","to","bytes",
/// "gradient"}],"interactions":[{"name","members","every","cost"}]}. Edges name segments by name or
/// number. README.md lists every key.
PipelineGraph read_pipeline_graph_file(const std::string& path);
/// Reads the file of `--costs-file`: {"forward":[per rank],"backward":[…],"weight":[…],"comm":x}.
StageCosts read_costs_file(const std::string& path);
/// Reads the file of `--network`: the fields of Network, by name.
Network read_network_file(const std::string& path);

/// A foreign text for a message: in quotes, on one line, with \xNN for bytes that do not print, and
/// cut after some forty characters.
std::string in_quotes(std::string_view text);

namespace detail {

/// Segments with one name are a problem in a file that people write, not in one of this program.
enum class SegmentNames { unique, any };

/// Reads the keys of a graph from `reader`'s object (more keys may follow), notes everything wrong,
/// and normalises a graph without problems.
PipelineGraph read_graph(ObjectReader& reader, SegmentNames names);

/// Writes the graph's object, a segment and an edge per line.
std::string graph_to_text(const PipelineGraph& graph);

}  // namespace detail
}  // namespace heteroperf
