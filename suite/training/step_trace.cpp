// A trace shows where the time of three steps went, on all ranks. Each rank writes its spans as
// lists of four integers (lane, number, start, end, in nanoseconds of rank 0's clock); rank 0
// gathers the texts and writes one file for a viewer. The zero of the trace is the earliest start
// of any rank, so its times are small and positive.
//
// Tracing is limited to the first measured steps, so that a long run pays nothing for it; a run
// that may end before it measures keeps its last steps instead. A trace that cannot be written does
// not fail the run.
#include "suite/training/step_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/cluster/machine.hpp"
#include "runners/comm/communicator.hpp"
#include "suite/program/version.hpp"

namespace heteroperf {
namespace {

constexpr double microsecond_ns = 1e3;

/// Lane, number, start and end of a step (the lane is step_line, the number its own), or of a piece
/// of the step before it (the number is the instruction).
using TraceLine = std::array<std::int64_t, 4>;
constexpr std::int64_t step_line = -1;

std::vector<TraceLine> lines_of(const std::string& text) {
  return Json::parse(text).get<std::vector<TraceLine>>();
}

std::string trace_of(const ChosenPlan& chosen, const std::vector<std::string>& texts,
                     const std::string& run_id) {
  std::int64_t zero_ns = std::numeric_limits<std::int64_t>::max();
  for (const std::string& text : texts) zero_ns = std::min(zero_ns, earliest_start_ns(text));
  std::vector<TracedRank> ranks;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const RankRole& role = chosen.roles[rank];
    const std::string share = held_share(chosen.plan, role);
    ranks.push_back(
        {fmt::format("rank {}, {}{}{}", rank, chosen.device_class(static_cast<int>(rank)),
                     share.empty() ? "" : ", ", share),
         role.position.value(), steps_from_text(texts[rank], zero_ns)});
  }
  const auto lanes = value_names(TimeLane::compute);
  return lanes_trace_text(chosen.schedule, ranks, lanes, trace_origin(TraceKind::measured, run_id));
}

}  // namespace

TraceOrigin trace_origin(TraceKind kind, const std::string& run_id) {
  return {kind, run_id, host_name(), version_text()};
}

std::vector<LaneSpan>* StepTracer::before_step(bool measuring, std::uint64_t steps_done) {
  // The same answer on every rank, since all count the same steps.
  const bool among_last = all_steps_ > 0 && steps_done + most_steps >= all_steps_;
  tracing_ = (measuring || among_last) && steps_.size() < most_steps;
  return tracing_ ? &lanes_ : nullptr;
}

void StepTracer::after_step(const StepReport& report) {
  if (!tracing_) return;
  steps_.push_back({report.step, report.t_start_ns, report.t_end_ns, std::exchange(lanes_, {})});
}

std::string steps_text(const std::vector<MeasuredStep>& steps, std::int64_t clock_offset_ns) {
  Json lines = Json::array();
  for (const MeasuredStep& step : steps) {
    lines.push_back(
        {step_line, step.number, step.start_ns + clock_offset_ns, step.end_ns + clock_offset_ns});
    for (const LaneSpan& span : step.lanes) {
      lines.push_back({static_cast<int>(span.lane), span.instruction,
                       span.start_ns + clock_offset_ns, span.end_ns + clock_offset_ns});
    }
  }
  return lines.dump();
}

std::vector<TracedStep> steps_from_text(const std::string& text, std::int64_t zero_ns) {
  std::vector<TracedStep> steps;
  for (const auto& [lane, number, start_ns, end_ns] : lines_of(text)) {
    const TimeSpan span{static_cast<double>(start_ns - zero_ns) / microsecond_ns,
                        static_cast<double>(end_ns - zero_ns) / microsecond_ns};
    if (lane == step_line) {
      steps.push_back({static_cast<std::uint64_t>(number), span, {}});
      continue;
    }
    HETEROPERF_EXPECT(!steps.empty());
    steps.back().slices.push_back(
        {static_cast<std::size_t>(lane), static_cast<std::int32_t>(number), span});
  }
  return steps;
}

std::int64_t earliest_start_ns(const std::string& text) {
  std::int64_t first_ns = std::numeric_limits<std::int64_t>::max();
  for (const TraceLine& line : lines_of(text)) first_ns = std::min(first_ns, line[2]);
  return first_ns;
}

void write_step_trace(RankContext& context, const ChosenPlan& chosen,
                      const std::vector<MeasuredStep>& steps) {
  const auto texts = gather_texts(context.all_ranks(), steps_text(steps, context.clock_offset_ns));
  if (!context.is_first()) return;
  if (steps.empty()) {
    context.post(WarningEvent{"no trace: the run ended before the steps that it is made of", ""});
    return;
  }
  try {
    write_file_atomically(context.config.trace, trace_of(chosen, texts, context.first.run_id));
  } catch (const SystemError& error) {
    context.post(WarningEvent{fmt::format("no trace: {}", error.what()), ""});
  }
}

}  // namespace heteroperf
