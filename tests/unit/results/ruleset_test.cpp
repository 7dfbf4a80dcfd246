#include "results/ruleset.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "results/record.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

Validity judged(const SampleRun& run) {
  const Journal journal = run.journal();
  return judge(journal, summarize(journal));
}

std::set<std::string> rules_of(const Validity& validity) {
  std::set<std::string> rules;
  for (const Reason& reason : validity.reasons) rules.insert(reason.rule);
  return rules;
}

using Change = std::function<void(SampleRun&)>;

/// A change of the sample run that trips a rule, and one close to it that does not.
struct Case {
  const char* rule;
  Severity severity;
  bool rankable;
  Change trips, passes;
};

/// Index of the line that begins `phase`.
std::size_t phase_index(const SampleRun& run, Phase phase) {
  for (std::size_t i = 0;; ++i) {
    const auto* event = std::get_if<PhaseEvent>(&run.lines.at(i).event);
    if (event != nullptr && event->phase == phase) return i;
  }
}

void set_evaluated(SampleRun& run, std::uint64_t samples, double accuracy) {
  run.last<EvalEvent>().samples = samples;
  run.last<EvalEvent>().accuracy = accuracy;
}

void add_evaluation(SampleRun& run, std::uint64_t samples, double accuracy) {
  EvalEvent eval = run.last<EvalEvent>();
  eval.samples = samples;
  eval.accuracy = accuracy;
  run.insert_before_stop(eval);
}

void set_loss_floor(SampleRun& run, double floor) {
  run.last<WorkloadEvent>().quality = QualityMeasure::loss;
  run.last<WorkloadEvent>().quality_target = 0.9;
  run.last<WorkloadEvent>().loss_floor = floor;
}

/// Ends the measured phase `seconds` after its begin; steps after that are outside of it.
void set_measured(SampleRun& run, double seconds) {
  const std::int64_t end_ns =
      run.lines[phase_index(run, Phase::measure)].t_ns + static_cast<std::int64_t>(seconds * 1e9);
  const std::size_t end = phase_index(run, Phase::evaluate);
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

RankPlanEvent rank_plan(std::int32_t rank, std::uint64_t limit_bytes) {
  RankPlanEvent plan;
  plan.rank = rank;
  plan.limit_bytes = limit_bytes;
  return plan;
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

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"run_failed", Severity::invalid, false,
       [](SampleRun& r) {
         r.last<StopEvent>() = {RunStatus::failed, "rank 1 died", 6};
       },
       [](SampleRun& r) {
         r.last<StopEvent>() = {RunStatus::complete, "rank 1 died", 0};
       }},
      {"run_partial", Severity::open, false,
       [](SampleRun& r) {
         r.last<StopEvent>() = {RunStatus::partial, "interrupted", 130};
       },
       [](SampleRun& r) {
         r.last<StopEvent>() = {RunStatus::complete, "the search ended early", 0};
       }},
      {"run_partial", Severity::open, false, [](SampleRun& r) { r.erase_all<StopEvent>(); },
       [](SampleRun&) {}},
      {"clock", Severity::invalid, false,
       [](SampleRun& r) { r.lines[5].t_ns = r.lines[6].t_ns + 1; },
       [](SampleRun& r) { r.lines[5].t_ns = r.lines[6].t_ns; }},
      {"clock", Severity::invalid, false, [](SampleRun& r) { r.last<StepEvent>().t_start_ns -= 1; },
       [](SampleRun& r) { r.last<StepEvent>().t_start_ns += 1; }},
      {"clock", Severity::invalid, false,
       [](SampleRun& r) { r.last<StepEvent>().t_start_ns = r.last<StepEvent>().t_end_ns; },
       [](SampleRun& r) { r.last<StepEvent>().t_start_ns = r.last<StepEvent>().t_end_ns - 1; }},
      {"clock_jump", Severity::review, true, [](SampleRun& r) { stretch_last_step(r, 245.0); },
       [](SampleRun& r) { stretch_last_step(r, 244.6); }},  // 20 medians of 12.24 s
      {"clock_jump", Severity::review, true,
       [](SampleRun& r) {
         r = steps_run(3000);
         stretch_last_step(r, 10.01);
       },
       [](SampleRun& r) {
         r = steps_run(3000);
         stretch_last_step(r, 9.99);
       }},
      {"peak_precision", Severity::open, false,
       [](SampleRun& r) { r.last<PeakEvent>().precision = "bf16"; },
       [](SampleRun& r) {
         r.last<PeakEvent>().precision = "bf16";
         r.last<WorkloadEvent>().precision = "bf16";
       }},
      {"seeds", Severity::open, false, [](SampleRun& r) { r.last<WorkloadEvent>().seeds.clear(); },
       [](SampleRun& r) {
         r.last<WorkloadEvent>().seeds = {{"run", 0}};
       }},
      {"precision", Severity::open, false,
       [](SampleRun& r) {
         r.last<WorkloadEvent>().precision = r.last<PeakEvent>().precision = "fp8";
       },
       [](SampleRun& r) {
         r.last<WorkloadEvent>().precision = r.last<PeakEvent>().precision = "bf16";
       }},
      {"step_order", Severity::invalid, false, [](SampleRun& r) { ++r.last<StepEvent>().n; },
       [](SampleRun& r) {  // a resumed run begins later
         begin_at_step(r, 100);
         r.last<StartEvent>().parent_step = 100;
       }},
      {"step_order", Severity::invalid, false, [](SampleRun& r) { begin_at_step(r, 100); },
       [](SampleRun& r) { r.last<StartEvent>().parent_step = 0; }},
      {"finite_loss", Severity::invalid, false,
       [](SampleRun& r) { r.last<StepEvent>().loss = not_a_number; },
       [](SampleRun& r) { r.last<StepEvent>().loss = 1e300; }},
      {"finite_loss", Severity::invalid, false,
       [](SampleRun& r) { r.last<EvalEvent>().loss = -std::numeric_limits<double>::infinity(); },
       [](SampleRun& r) { r.last<StepEvent>().gradient_norm = not_a_number; }},
      {"steps_none", Severity::invalid, false, [](SampleRun& r) { r.erase_all<StepEvent>(); },
       [](SampleRun& r) { r = steps_run(1); }},
      {"steps_few", Severity::open, false, [](SampleRun& r) { r = steps_run(19); },
       [](SampleRun& r) { r = steps_run(20); }},
      {"executed_operations", Severity::invalid, false,
       [](SampleRun& r) { add_observation(r, [](auto& e) { e.executed += Ops(1); }); },
       [](SampleRun& r) {
         add_observation(r, [](auto& e) { e.executed += Ops(1), e.recompute += Ops(1); });
       }},
      {"observed_strict", Severity::invalid, false,
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
      {"not_observed", Severity::open, false,
       [](SampleRun& r) { r.last<ObservedEvent>().rank = 0; },
       [](SampleRun& r) { r.last<ScaleEvent>().ranks = 1; }},
      {"unknown_operators", Severity::invalid, false,
       [](SampleRun& r) { r.last<ObservedEvent>().unknown = {"aten::einsum"}; },
       [](SampleRun& r) { r.last<ObservedEvent>().unknown = {}; }},
      {"checksums", Severity::invalid, false,
       [](SampleRun& r) { r.last<ChecksumEvent>().fingerprint = "other"; },
       [](SampleRun& r) {  // another group trains another model
         r.last<ChecksumEvent>().fingerprint = "other";
         r.last<ChecksumEvent>().group = 1;
       }},
      {"above_peak", Severity::invalid, false,
       [](SampleRun& r) {
         const double ops = summarize(r.journal()).ops_per_second->value;
         r.last<PeakEvent>().ops_per_second = ops / 1.051;
       },
       [](SampleRun& r) {
         const double ops = summarize(r.journal()).ops_per_second->value;
         r.last<PeakEvent>().ops_per_second = ops / 1.049;
       }},
      {"peak_not_measured", Severity::open, false, [](SampleRun& r) { r.erase_all<PeakEvent>(); },
       [](SampleRun& r) { r.last<PeakEvent>().ops_per_second = 1e15; }},
      {"peak_not_measured", Severity::open, false,
       [](SampleRun& r) { r.last<PeakEvent>().ops_per_second = 0; },
       [](SampleRun& r) { r.last<PeakEvent>().ops_per_second = 1e-300; }},
      {"time_split", Severity::invalid, false,
       [](SampleRun& r) { r.insert_before_stop(rank_time(98.99)); },
       [](SampleRun& r) { r.insert_before_stop(rank_time(99.01)); }},
      {"time_split", Severity::invalid, false,
       [](SampleRun& r) { r.insert_before_stop(rank_time(101.01)); },
       [](SampleRun& r) { r.insert_before_stop(rank_time(100.99)); }},
      {"late", Severity::invalid, false,
       [](SampleRun& r) {
         r.insert_before_stop(PacingEvent{0, 1, 1000, 5, 0.1});
         r.insert_before_stop(PacingEvent{1, 1, 1000, 16, 0.1});
       },
       [](SampleRun& r) {
         r.insert_before_stop(PacingEvent{0, 1, 1000, 5, 0.1});
         r.insert_before_stop(PacingEvent{1, 1, 1000, 15, 0.1});
       }},
      {"above_memory", Severity::invalid, false,
       [](SampleRun& r) { r.insert_before_stop(rank_plan(1, 1000)); },
       [](SampleRun& r) { r.insert_before_stop(rank_plan(1, 1001)); }},
      {"checksums", Severity::invalid, false,
       [](SampleRun& r) {
         r = planned_run();
         r.last<ChecksumEvent>().share = "stages 0";
       },
       [](SampleRun& r) { r = planned_run(); }},
      {"duration", Severity::open, false,
       [](SampleRun& r) {
         r = steps_run(20);
         set_measured(r, 299.99);
       },
       [](SampleRun& r) {
         r = steps_run(20);
         set_measured(r, 300);
       }},
      {"steady", Severity::open, true, [](SampleRun& r) { make_slow_start(r, 28); },
       [](SampleRun& r) { make_slow_start(r, 3); }},
      {"steady", Severity::open, true, [](SampleRun& r) { set_window_share(r, 0.499); },
       [](SampleRun& r) { set_window_share(r, 0.501); }},
      {"overhead", Severity::open, true,
       [](SampleRun& r) {
         r.last<OverheadEvent>().measurement_s = 0.0100001 * summarize(r.journal()).wall_s;
       },
       [](SampleRun& r) {
         r.last<OverheadEvent>().measurement_s = 0.0099999 * summarize(r.journal()).wall_s;
       }},
      {"quality_target", Severity::open, true,
       [](SampleRun& r) { r.last<EvalEvent>().accuracy = 0.4999; },
       [](SampleRun& r) { r.last<EvalEvent>().accuracy = 0.5; }},
      {"quality_target", Severity::open, true, [](SampleRun& r) { r.erase_all<EvalEvent>(); },
       [](SampleRun& r) {
         r.erase_all<EvalEvent>();
         r.last<WorkloadEvent>().quality_target.reset();
       }},
      {"quality_target", Severity::open, true,
       [](SampleRun& r) {  // lower is better
         r.last<WorkloadEvent>().quality = QualityMeasure::loss;
         r.last<WorkloadEvent>().quality_target = 0.89;
       },
       [](SampleRun& r) {
         r.last<WorkloadEvent>().quality = QualityMeasure::loss;
         r.last<WorkloadEvent>().quality_target = 0.9;
       }},
      {"below_floor", Severity::review, true, [](SampleRun& r) { set_evaluated(r, 10000, 0.9588); },
       [](SampleRun& r) { set_evaluated(r, 10000, 0.9586); }},  // 0.05 − 4 · √(0.05 · 0.95 / 10⁴)
      {"below_floor", Severity::review, true, [](SampleRun& r) { set_evaluated(r, 10000, 0.9588); },
       [](SampleRun& r) { set_evaluated(r, 256, 0.9588); }},
      {"below_floor", Severity::review, true,
       [](SampleRun& r) {  // a tiny evaluation beside it excuses nothing
         set_evaluated(r, 10000, 0.9588);
         add_evaluation(r, 4, 0.75);
       },
       [](SampleRun& r) {
         set_evaluated(r, 10000, 0.9586);
         add_evaluation(r, 4, 0.75);
       }},
      {"quality_target", Severity::open, true, [](SampleRun& r) { set_evaluated(r, 31, 0.9); },
       [](SampleRun& r) { set_evaluated(r, 32, 0.9); }},
      {"quality_target", Severity::open, true,
       [](SampleRun& r) {
         set_evaluated(r, 100, 0.75);
         add_evaluation(r, 4, 1.0);
       },
       [](SampleRun& r) {
         set_evaluated(r, 100, 0.75);
         add_evaluation(r, 4, 0.75);
       }},
      {"below_floor", Severity::review, true, [](SampleRun& r) { set_loss_floor(r, 0.9185); },
       [](SampleRun& r) { set_loss_floor(r, 0.9183); }},  // the loss is 0.9
      {"other_load", Severity::review, true,
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0.41, {}, {}, {}});
       },
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0.40, {}, {}, {}});
       }},
      {"other_load", Severity::review, true,  // of any host
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, {}, {}, {}, "a", 0});
         r.insert_before_stop(HostLoadEvent{400, 2, 0.21, {}, {}, {}, "b", 4});
       },
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0.40, {}, {}, {}, "a", 0});
         r.insert_before_stop(HostLoadEvent{400, 2, 0.20, {}, {}, {}, "b", 4});
       }},
      {"throttled", Severity::review, true,  // of any host
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 2, 0, {}, {}, 8.1, "b", 4});
         r.insert_before_stop(HostLoadEvent{400, 4, 0, {}, {}, 0, "a", 0});
       },
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 2, 0, {}, {}, 7.9, "b", 4});
         r.insert_before_stop(HostLoadEvent{400, 4, 0, {}, {}, 15.9, "a", 0});
       }},
      {"throttled", Severity::review, true,
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, 9, 16.1, {}});
       },
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, 9, 15.9, {}});
       }},
      {"throttled", Severity::review, true,
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, {}, {}, 16.1});
       },
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, 0, {}, 15.9});
       }},
      {"throttled", Severity::review, true,  // times are not counted: once is too much
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, 1, {}, 0});
       },
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, 0, {}, 0});
       }},
      {"throttled", Severity::review, true,  // of any GPU
       [](SampleRun& r) {
         r.insert_before_stop(GpuSlowdownEvent{"a", "0000:1b:00.0", 0, 400, 0, 390});
         r.insert_before_stop(GpuSlowdownEvent{"b", "0000:1b:00.0", 1, 400, 4.1, {}});
       },
       [](SampleRun& r) {
         r.insert_before_stop(GpuSlowdownEvent{"a", "0000:1b:00.0", 0, 400, 0, 390});
         r.insert_before_stop(GpuSlowdownEvent{"b", "0000:1b:00.0", 1, 400, 3.9, {}});
       }},
      {"quick", Severity::open, false,
       [](SampleRun& r) { std::get<StartEvent>(r.lines[0].event).quick = true; },
       [](SampleRun&) {}},
      {"precision", Severity::open, false,
       [](SampleRun& r) { r.last<WorkloadEvent>().precision = "fp64"; },
       [](SampleRun& r) { r.last<WorkloadEvent>().precision = "bf16"; }},
      {"emulated", Severity::open, false,
       [](SampleRun& r) {
         r.last<ScaleEvent>().devices.push_back({"gpu", 1, 1, true});
       },
       [](SampleRun& r) {
         r.last<ScaleEvent>().devices.push_back({"gpu", 1, 1, false});
       }},
  };
  return all;
}

TEST(Ruleset, AFullRunIsClosed) {
  const Validity validity = judged(fixed_run());
  EXPECT_EQ(validity.severity, Severity::closed);
  EXPECT_TRUE(validity.rankable);
  EXPECT_TRUE(validity.reasons.empty()) << validity.reasons.front().rule;
}

TEST(Ruleset, ASearchWithADivergedTrialIsClosed) {
  const Validity validity = judged(search_run());
  EXPECT_EQ(validity.severity, Severity::closed)
      << validity.reasons.front().rule << ": " << validity.reasons.front().actual;
}

TEST(Ruleset, ANaNOfATrialThatIsNotAnOutcomeIsInvalid) {
  SampleRun run = search_run();
  for (JournalLine& line : run.lines) {
    auto* trial = std::get_if<TrialEvent>(&line.event);
    if (trial != nullptr && trial->state == TrialStatus::diverged) {
      trial->state = TrialStatus::completed;
    }
  }
  EXPECT_TRUE(rules_of(judged(run)).contains("finite_loss"));
}

TEST(Ruleset, EachRuleTripsWhereItShouldAndNotNextToIt) {
  for (const Case& one : cases()) {
    SampleRun tripped = fixed_run(), passed = fixed_run();
    one.trips(tripped);
    one.passes(passed);
    const Validity bad = judged(tripped);
    EXPECT_TRUE(rules_of(bad).contains(one.rule)) << one.rule;
    EXPECT_FALSE(rules_of(judged(passed)).contains(one.rule)) << one.rule;
    EXPECT_GE(bad.severity, one.severity) << one.rule;
    if (bad.reasons.size() == 1) {
      EXPECT_EQ(bad.rankable, one.rankable) << one.rule;
      EXPECT_EQ(bad.severity, one.severity) << one.rule;
    }
    for (const Reason& reason : bad.reasons) {
      EXPECT_NE(reason.expected, "") << reason.rule;
      EXPECT_NE(reason.actual, "") << reason.rule;
      EXPECT_NE(reason.hint, "") << reason.rule;
      EXPECT_TRUE(reason.rule != one.rule || reason.severity == one.severity) << one.rule;
    }
  }
}

TEST(Ruleset, LoadAndThrottlingNameTheHosts) {
  SampleRun run = fixed_run();
  for (int host = 0; host < 8; ++host) {
    run.insert_before_stop(HostLoadEvent{400,
                                         4,
                                         host == 0 ? 0.1 : 0.5,
                                         {},
                                         {},
                                         host == 6 ? 100.0 : 0,
                                         fmt::format("node-{}", host),
                                         4 * host});
  }
  const Validity validity = judged(run);
  ASSERT_EQ(validity.reasons.size(), 2u);
  EXPECT_EQ(validity.reasons[0].rule, "other_load");
  EXPECT_EQ(validity.reasons[0].actual,
            "node-1: 12.5 % of 4 CPUs; node-2: 12.5 % of 4 CPUs; node-3: 12.5 % of 4 CPUs; "
            "node-4: 12.5 % of 4 CPUs; node-5: 12.5 % of 4 CPUs; and 2 more");
  EXPECT_EQ(validity.reasons[1].rule, "throttled");
  EXPECT_EQ(validity.reasons[1].actual,
            "node-6: of 1600 s 0 s by heat, 0 times, 100 s by the control group's limit");
}

TEST(Ruleset, ThrottlingNamesTheGpu) {
  SampleRun run = fixed_run();
  run.insert_before_stop(GpuSlowdownEvent{"node-1", "0000:1b:00.0", 3, 400, 40, 0});
  const Validity validity = judged(run);
  ASSERT_EQ(validity.reasons.size(), 1u);
  EXPECT_EQ(validity.reasons[0].actual, "node-1: GPU 0000:1b:00.0 40 of 400 s by heat");
}

TEST(Ruleset, ForeseesWhatARunCannotBe) {
  SampleRun run = fixed_run();
  run.lines.resize(run.index<PhaseEvent>());
  EXPECT_TRUE(foresee(run.journal(), {300.0, true}).reasons.empty());
  EXPECT_TRUE(foresee(run.journal(), {std::nullopt, true}).reasons.empty()) << "steps are counted";
  std::get<StartEvent>(run.lines[0].event).quick = true;
  run.last<WorkloadEvent>().precision = "fp64";
  run.last<ScaleEvent>().devices.push_back({"gpu", 1, 1, true});
  const Validity foreseen = foresee(run.journal(), {299.0, false});
  EXPECT_EQ(rules_of(foreseen), (std::set<std::string>{"peak_not_measured", "duration", "quick",
                                                       "precision", "emulated"}));
  EXPECT_EQ(foreseen.severity, Severity::open);
  EXPECT_FALSE(foreseen.rankable);
}

TEST(Ruleset, EveryRuleHasACase) {
  std::set<std::string> covered, known;
  for (const Case& one : cases()) covered.insert(one.rule);
  for (const Rule& rule : all_rules()) known.insert(rule.id);
  EXPECT_EQ(covered, known);
  EXPECT_EQ(known.size(), all_rules().size()) << "two rules share a name";
}

TEST(Ruleset, NoScoreIsPrintedForAnInvalidRun) {
  for (const Case& one : cases()) {
    SampleRun run = fixed_run();
    one.trips(run);
    const std::string record = build_record(run.journal());
    const bool invalid = judged(run).severity == Severity::invalid;
    for (const char* score :
         {"ops_per_second\": {", "throughput", "regulated_score", "utilization"}) {
      const bool printed = record.find('"' + std::string(score)) != std::string::npos;
      EXPECT_FALSE(invalid && printed) << one.rule << " " << score;
    }
  }
}

}  // namespace
}  // namespace heteroperf
