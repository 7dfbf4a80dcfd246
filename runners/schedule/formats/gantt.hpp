#pragma once

#include <string>

#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

struct GanttStyle {
  int width = 80;        ///< columns; no line is wider
  bool colour = false;   ///< xterm's 256 colours: branches and chunks by hue
  bool unicode = false;  ///< lines of the frame, and of what an operation fills
  int most_rows = 40;    ///< where there are more ranks, those in the middle are left out
};

/// Draws one row per rank, time from left to right, an axis and a legend; lines end in '\n'. A
/// column shows the operation that takes most of its time. Where an operation is wide enough its
/// micro-batch follows. The pair of a fused F and BW is drawn as two, one after the other.
std::string gantt_text(const Schedule& schedule, const Timeline& timeline,
                       const GanttStyle& style = {});

struct SvgStyle {
  bool memory = false;  ///< a curve of the activations held below every rank
};

/// Draws a self-contained SVG document: a row per rank, a rectangle per instruction that takes time
/// (its <title> says which, from when to when), a legend, an axis. Fused pairs lie over each other.
/// Throws UserError beyond `most_drawn` instructions, which no viewer shows.
std::string gantt_svg(const Schedule& schedule, const Timeline& timeline,
                      const SvgStyle& style = {});
constexpr std::size_t most_drawn = 1'000'000;

}  // namespace heteroperf
