#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/simulator.hpp"

// The parts that the text chart (gantt.cpp) and the SVG (svg.cpp) draw: spans with a kind and a
// colour, ticks of the axis.

namespace heteroperf {

/// The kinds of instructions that a drawing tells apart.
enum class DrawnKind { forward, input_gradient, weight_gradient, backward, recompute, group, wait };
constexpr int drawn_kind_count = 7;
struct DrawnKindText {
  const char* letters;  ///< before the micro-batch's number
  char symbol;          ///< where only one character fits
  const char* legend;
};
const DrawnKindText& kind_text(DrawnKind kind);

/// An instruction that takes time. Each of a fused pair takes its share of the pair's time.
struct DrawnSpan {
  TimeSpan span;
  DrawnKind kind = DrawnKind::forward;
  int lane = 0;   ///< −1 where it belongs to no segment
  int index = 0;  ///< place of the instruction in its program
  int half = -1;  ///< 0 or 1 in a fused pair
};

/// The *lane* of a segment is its branch and its chunk (its place among the segments of the branch
/// on its rank). Colours tell lanes apart.
struct Lanes {
  IdVector<SegmentId, int> of_segment;
  std::vector<std::string> names;  ///< "", "chunk 1", "text", "text, chunk 1"
};
Lanes lanes(const PipelineGraph& graph);

/// The spans of a rank in program order. The timeline must be the schedule's.
std::vector<DrawnSpan> drawn_spans(const Schedule& schedule, const Timeline& timeline,
                                   const Lanes& lanes, int rank);

/// The last end of all instructions.
double drawn_end(const Timeline& timeline);

/// A colour of the xterm palette, and the same as red, green, blue.
int palette_index(DrawnKind kind, int lane);
std::array<int, 3> palette_rgb(int index);

/// The label of an instruction: "3", "3/1" (micro-batch, part) or nothing.
std::string number_text(const PipelineGraph& graph, const Instruction& instruction);

/// A foreign text for a drawing: valid UTF-8 with '?' instead of each control character.
std::string drawable(std::string_view text);

struct TimeTick {
  double time = 0;
  std::string label;
};
/// Round times from 0 to `end`, at most `most` of them (at least 2).
std::vector<TimeTick> time_ticks(double end, int most);

}  // namespace heteroperf
