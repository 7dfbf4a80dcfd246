#include "tests/unit/results/rule_cases.hpp"

#include <algorithm>
#include <limits>

#include "results/record/run_summary.hpp"

namespace heteroperf {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Index of the line that begins `phase`.
std::size_t phase_index(const SampleRun& run, Phase phase) {
  for (std::size_t i = 0;; ++i) {
    const auto* event = std::get_if<PhaseEvent>(&run.lines.at(i).event);
    if (event != nullptr && event->phase == phase) return i;
  }
}

/// Ends the measured phase `seconds` after its begin; steps after that are outside of it.
void set_measured(SampleRun& run, double seconds) {
  const std::int64_t end_ns =
      run.lines[phase_index(run, Phase::measure)].t_ns + static_cast<std::int64_t>(seconds * 1e9);
  const std::size_t end = phase_index(run, Phase::finish);
  const JournalLine phase{end_ns, run.lines[end].event};
  run.lines.erase(run.lines.begin() + static_cast<std::ptrdiff_t>(end));
  auto place = std::find_if(run.lines.begin(), run.lines.end(),
                            [&](const JournalLine& line) { return line.t_ns > end_ns; });
  run.lines.insert(place, phase);
}

SampleRun steps_run(int steps) {
  SampleRunOptions options;
  options.steps = steps;
  options.step_s = 600.0 / steps;
  return fixed_run(options);
}

void add_observation(SampleRun& run, auto&& change) {
  ObservedEvent event = run.last<ObservedEvent>();
  change(event);
  run.last<ObservedEvent>() = event;
}

void make_slow_start(SampleRun& run, int slow_steps) {
  // Each of the slow steps takes longer than any later one; times stay contiguous.
  std::int64_t shift_ns = 0;
  int seen = 0;
  for (JournalLine& line : run.lines) {
    if (auto* step = std::get_if<StepEvent>(&line.event)) {
      step->t_start_ns += shift_ns;
      if (seen++ < slow_steps) shift_ns += 40'000'000'000 - 1'000'000'000LL * seen;
      step->t_end_ns += shift_ns;
    }
    line.t_ns += shift_ns;
  }
}

/// Makes the last step end `seconds` after its begin; all that follows is later by as much.
void stretch_last_step(SampleRun& run, double seconds) {
  auto line = run.lines.rbegin();
  while (!std::holds_alternative<StepEvent>(line->event)) ++line;
  auto& step = std::get<StepEvent>(line->event);
  const std::int64_t shift_ns =
      step.t_start_ns + static_cast<std::int64_t>(seconds * 1e9) - step.t_end_ns;
  step.t_end_ns += shift_ns;
  for (line->t_ns += shift_ns; line != run.lines.rbegin();) (--line)->t_ns += shift_ns;
}

/// Numbers steps from there.
void begin_at_step(SampleRun& run, std::uint64_t first) {
  for (JournalLine& line : run.lines) {
    if (auto* step = std::get_if<StepEvent>(&line.event)) step->n += first;
    if (auto* seen = std::get_if<ObservedEvent>(&line.event)) seen->n += first;
  }
}

/// Of rank 1: 100 s, whose parts add up to `parts_s`.
RankTimeEvent rank_time(double parts_s) {
  RankTimeEvent time;
  time.rank = 1;
  time.steps = 30;
  time.wall_s = 100;
  time.split = {parts_s - 40, 10, 10, 10, 10};
  return time;
}

/// Begins the measured phase before the warm-up steps, and makes the first of them so long that the
/// steady window is that share of the phase.
void set_window_share(SampleRun& run, double share) {
  const RunSummary before = summarize(run.journal());
  const auto begin = run.lines.begin() + static_cast<std::ptrdiff_t>(run.index<StepEvent>());
  const auto phase =
      run.lines.begin() + static_cast<std::ptrdiff_t>(phase_index(run, Phase::measure));
  auto& first = std::get<StepEvent>(begin->event);
  const double warm_s = static_cast<double>(phase->t_ns - first.t_start_ns) * 1e-9;
  const double longer_s = before.window->seconds() * (1 / share - 1) - warm_s;
  phase->t_ns = first.t_start_ns;
  std::rotate(begin, phase, phase + 1);
  const auto shift_ns = static_cast<std::int64_t>(longer_s * 1e9);
  for (auto line = begin + 1; line != run.lines.end(); ++line) {
    line->t_ns += shift_ns;
    auto* step = std::get_if<StepEvent>(&line->event);
    if (step == nullptr) continue;
    if (line != begin + 1) step->t_start_ns += shift_ns;
    step->t_end_ns += shift_ns;
  }
}

}  // namespace

std::vector<RuleCase> step_rule_cases() {
  return {
      {"clock", Severity::invalid, [](SampleRun& r) { r.lines[5].t_ns = r.lines[6].t_ns + 1; },
       [](SampleRun& r) { r.lines[5].t_ns = r.lines[6].t_ns; }},
      {"clock", Severity::invalid, [](SampleRun& r) { r.last<StepEvent>().t_start_ns -= 1; },
       [](SampleRun& r) { r.last<StepEvent>().t_start_ns += 1; }},
      {"clock", Severity::invalid,
       [](SampleRun& r) { r.last<StepEvent>().t_start_ns = r.last<StepEvent>().t_end_ns; },
       [](SampleRun& r) { r.last<StepEvent>().t_start_ns = r.last<StepEvent>().t_end_ns - 1; }},
      {"clock_jump", Severity::review, [](SampleRun& r) { stretch_last_step(r, 245.0); },
       [](SampleRun& r) { stretch_last_step(r, 244.6); }},  // 20 medians of 12.24 s
      {"clock_jump", Severity::review,
       [](SampleRun& r) {
         r = steps_run(3000);
         stretch_last_step(r, 10.01);
       },
       [](SampleRun& r) {
         r = steps_run(3000);
         stretch_last_step(r, 9.99);
       }},
      {"step_order", Severity::invalid, [](SampleRun& r) { ++r.last<StepEvent>().n; },
       [](SampleRun& r) {  // a resumed run begins later
         begin_at_step(r, 100);
         r.last<StartEvent>().parent_step = 100;
       }},
      {"step_order", Severity::invalid, [](SampleRun& r) { begin_at_step(r, 100); },
       [](SampleRun& r) { r.last<StartEvent>().parent_step = 0; }},
      {"finite_loss", Severity::invalid,
       [](SampleRun& r) { r.last<StepEvent>().loss = not_a_number; },
       [](SampleRun& r) { r.last<StepEvent>().loss = 1e300; }},
      {"finite_loss", Severity::invalid,
       [](SampleRun& r) { r.last<EvalEvent>().loss = -std::numeric_limits<double>::infinity(); },
       [](SampleRun& r) { r.last<StepEvent>().gradient_norm = not_a_number; }},
      {"steps_none", Severity::invalid, [](SampleRun& r) { r.erase_all<StepEvent>(); },
       [](SampleRun& r) { r = steps_run(1); }},
      {"steps_few", Severity::open, [](SampleRun& r) { r = steps_run(19); },
       [](SampleRun& r) { r = steps_run(20); }},
      {"executed_operations", Severity::invalid,
       [](SampleRun& r) { add_observation(r, [](auto& e) { e.executed += Ops(1); }); },
       [](SampleRun& r) {
         add_observation(r, [](auto& e) { e.executed += Ops(1), e.recompute += Ops(1); });
       }},
      {"observed_strict", Severity::invalid,
       [](SampleRun& r) {
         add_observation(r, [](auto& e) { e.executed += Ops(1), e.strict += Ops(1); });
       },
       [](SampleRun& r) {  // another share of the same step on each rank
         bool more = true;
         for (JournalLine& line : r.lines) {
           auto* seen = std::get_if<ObservedEvent>(&line.event);
           if (seen == nullptr) continue;
           seen->executed = more ? seen->executed + Ops(1) : seen->executed - Ops(1);
           seen->strict = more ? seen->strict + Ops(1) : seen->strict - Ops(1);
           more = !more;
         }
       }},
      {"not_observed", Severity::open, [](SampleRun& r) { r.last<ObservedEvent>().rank = 0; },
       [](SampleRun& r) { r.last<ScaleEvent>().ranks = 1; }},
      {"unknown_operators", Severity::invalid,
       [](SampleRun& r) { r.last<ObservedEvent>().unknown = {"aten::einsum"}; },
       [](SampleRun& r) { r.last<ObservedEvent>().unknown = {}; }},
      {"checksums", Severity::invalid,
       [](SampleRun& r) { r.last<ChecksumEvent>().fingerprint = "other"; },
       [](SampleRun& r) {  // another group trains another model
         r.last<ChecksumEvent>().fingerprint = "other";
         r.last<ChecksumEvent>().group = 1;
       }},
      {"time_split", Severity::invalid,
       [](SampleRun& r) { r.insert_before_stop(rank_time(98.99)); },
       [](SampleRun& r) { r.insert_before_stop(rank_time(99.01)); }},
      {"time_split", Severity::invalid,
       [](SampleRun& r) { r.insert_before_stop(rank_time(101.01)); },
       [](SampleRun& r) { r.insert_before_stop(rank_time(100.99)); }},
      {"checksums", Severity::invalid,
       [](SampleRun& r) {
         r = planned_run();
         r.last<ChecksumEvent>().share = "stages 0";
       },
       [](SampleRun& r) { r = planned_run(); }},
      {"duration", Severity::open,
       [](SampleRun& r) {
         r = steps_run(20);
         set_measured(r, 299.99);
       },
       [](SampleRun& r) {
         r = steps_run(20);
         set_measured(r, 300);
       }},
      {"steady", Severity::open, [](SampleRun& r) { make_slow_start(r, 28); },
       [](SampleRun& r) { make_slow_start(r, 3); }},
      {"steady", Severity::open, [](SampleRun& r) { set_window_share(r, 0.499); },
       [](SampleRun& r) { set_window_share(r, 0.501); }},
  };
}

}  // namespace heteroperf
