#pragma once

#include <string>
#include <vector>

#include "runners/engine/training.hpp"
#include "suite/run/chosen_plan.hpp"
#include "suite/run/rank_context.hpp"

namespace heteroperf {

/// Writes this rank's spans as text, on rank 0's clock, and reads them back as the spans of its
/// program in microseconds since `zero_ns`; instructions that did not run are empty.
std::string spans_text(const std::vector<InstructionSpan>& spans, std::int64_t clock_offset_ns);
std::vector<TimeSpan> spans_from_text(const std::string& text, std::size_t instructions,
                                      std::int64_t zero_ns);
/// The first start; the largest number without spans.
std::int64_t earliest_start_ns(const std::string& text);

/// Writes the configuration's `trace` on rank 0: the spans of the last step of all ranks, one
/// thread each. Collective over the run's ranks. A file that cannot be written becomes a warning.
void write_step_trace(RankContext& context, const ChosenPlan& chosen,
                      const std::vector<InstructionSpan>& spans);

}  // namespace heteroperf
