#pragma once

#include <string>

#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

struct GanttStyle {
  int width = 80;        ///< columns; no line is wider
  bool colour = false;   ///< xterm's 256 colours: branches and chunks by hue
  bool unicode = false;  ///< lines of the frame, and of what an operation fills
  int most_rows = 40;    ///< of more ranks those in the middle are left out
};

/// One row per rank, time from left to right, an axis and a legend; lines end in '\n'. A column
/// shows what takes most of its time. Where an operation is wide enough its micro-batch follows.
/// The pair of a fused F and BW is drawn as two, one after the other.
std::string gantt_text(const Schedule& schedule, const Timeline& timeline,
                       const GanttStyle& style = {});

}  // namespace heteroperf
