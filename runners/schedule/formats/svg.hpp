#pragma once

#include <string>

#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

struct SvgStyle {
  bool memory = false;  ///< a curve of the activations held below every rank
};

/// One self-contained SVG document: a row per rank, a rectangle per instruction that takes time
/// (its <title> says which, from when to when), a legend, an axis. Fused pairs lie over each other.
/// Throws UserError beyond `most_drawn` instructions, which no viewer shows.
std::string gantt_svg(const Schedule& schedule, const Timeline& timeline,
                      const SvgStyle& style = {});
constexpr std::size_t most_drawn = 1'000'000;

}  // namespace heteroperf
