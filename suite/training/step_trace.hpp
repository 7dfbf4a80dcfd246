#pragma once

#include <string>
#include <vector>

#include "runners/engine/training.hpp"
#include "runners/schedule/formats/trace_json.hpp"
#include "suite/planning/chosen_plan.hpp"
#include "suite/ranks/rank_context.hpp"

namespace heteroperf {

/// The word on itself of a trace that this program writes on this host. `run_id`: empty for what
/// belongs to no run.
TraceOrigin trace_origin(TraceKind kind, const std::string& run_id);

/// Where the time of a step of this rank went, on its own clock.
struct MeasuredStep {
  std::uint64_t number = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  std::vector<LaneSpan> lanes;
};

/// Takes down the first steps of the measured phase, of a run that ends sooner its last ones. The
/// same steps on every rank.
class StepTracer {
 public:
  static constexpr std::uint64_t most_steps = 3;

  /// `all_steps`: after which the run ends; 0: it ends by time.
  explicit StepTracer(std::uint64_t all_steps) : all_steps_(all_steps) {}

  /// Where the next step says where its time goes (TrainingSession::trace_to()), which stays valid
  /// until after_step(); null: it is not traced.
  std::vector<LaneSpan>* before_step(bool measuring, std::uint64_t steps_done);
  void after_step(const StepReport& report);
  const std::vector<MeasuredStep>& steps() const { return steps_; }

 private:
  std::uint64_t all_steps_;
  std::vector<MeasuredStep> steps_;
  std::vector<LaneSpan> lanes_;
  bool tracing_ = false;
};

/// Writes this rank's steps as text, on rank 0's clock, and reads them back in microseconds since
/// `zero_ns`.
std::string steps_text(const std::vector<MeasuredStep>& steps, std::int64_t clock_offset_ns);
std::vector<TracedStep> steps_from_text(const std::string& text, std::int64_t zero_ns);
/// The first start; the largest number without steps.
std::int64_t earliest_start_ns(const std::string& text);

/// Writes the configuration's `trace` on rank 0: the steps of all ranks. Collective over the run's
/// ranks. A file that cannot be written, or no step to write, becomes a warning.
void write_step_trace(RankContext& context, const ChosenPlan& chosen,
                      const std::vector<MeasuredStep>& steps);

}  // namespace heteroperf
