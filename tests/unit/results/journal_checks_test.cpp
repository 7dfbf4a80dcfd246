#include "results/journal_checks/journal_checks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "metrics/precision_goal.hpp"
#include "results/record/run_summary.hpp"
#include "tests/unit/results/agreeing_run.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/model_graph_json.hpp"
#include "workloads/workload_factories.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t generated_classes = 10;

/// Names of the checks that find a line wrong.
std::string found_as_it_is(const SampleRun& run) {
  std::string names;
  for (const VerifyCheck& check : check_journal_lines(run.journal())) {
    if (!check.ok) names += check.name + " ";
  }
  return names;
}

/// The same where no line is missing.
std::string found(SampleRun run) {
  add_due_lines(run);
  return found_as_it_is(run);
}

bool finds(const SampleRun& run, const std::string& check) {
  return (" " + found(run)).find(" " + check + " ") != std::string::npos;
}

std::size_t index_of(const SampleRun& run, Phase phase) {
  for (std::size_t i = 0;; ++i) {
    const auto* event = std::get_if<PhaseEvent>(&run.lines.at(i).event);
    if (event != nullptr && event->phase == phase) return i;
  }
}

void erase_phase(SampleRun& run, Phase phase) {
  std::erase_if(run.lines, [&](const JournalLine& line) {
    const auto* event = std::get_if<PhaseEvent>(&line.event);
    return event != nullptr && event->phase == phase;
  });
}

/// Takes the final evaluation out.
void erase_last_evaluation(SampleRun& run) {
  for (std::size_t i = run.lines.size(); i-- > 0;) {
    if (!std::holds_alternative<EvalEvent>(run.lines[i].event)) continue;
    run.lines.erase(run.lines.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

/// Ends in the step before this line: the training closes, and nothing is evaluated.
SampleRun interrupted_before(SampleRun run, std::size_t line) {
  const auto finish = static_cast<std::ptrdiff_t>(index_of(run, Phase::finish));
  const auto evaluate = static_cast<std::ptrdiff_t>(index_of(run, Phase::evaluate));
  const std::vector<JournalLine> closing(run.lines.begin() + finish, run.lines.begin() + evaluate);
  std::uint64_t steps = 0;
  run.lines.resize(line);
  for (const JournalLine& kept : run.lines) steps += std::holds_alternative<StepEvent>(kept.event);
  for (JournalLine end : closing) {
    if (auto* checksum = std::get_if<ChecksumEvent>(&end.event)) checksum->n = steps;
    run.lines.push_back(end);
  }
  run.lines.push_back({run.lines.back().t_ns, StopEvent{RunStatus::partial, "SIGTERM", 130}});
  return run;
}

/// Runs as the programs have written them, and one that ended early.
std::vector<SampleRun> genuine_runs() {
  const SampleRun fixed = fixed_run();
  std::vector<SampleRun> runs{fixed, planned_run(), search_run()};
  runs.push_back(interrupted_before(fixed, index_of(fixed, Phase::measure) - 1));
  runs.push_back(interrupted_before(fixed, index_of(fixed, Phase::measure) + 5));
  SampleRun older = fixed;
  erase_phase(older, Phase::finish);
  runs.push_back(older);
  older = search_run();
  erase_phase(older, Phase::finish);
  erase_phase(older, Phase::evaluate);
  erase_last_evaluation(older);
  runs.push_back(older);
  return runs;
}

TEST(JournalChecks, AGenuineRunPassesWhereverItIsCut) {
  for (const SampleRun& run : genuine_runs()) {
    for (std::size_t lines = 1; lines <= run.lines.size(); ++lines) {
      SampleRun cut = run;
      cut.lines.resize(lines);
      ASSERT_EQ(found(cut), "") << lines << " of " << run.lines.size();
    }
  }
}

TEST(JournalChecks, EveryPhaseIsFoundChangedToEveryOther) {
  for (const SampleRun& run : genuine_runs()) {
    for (std::size_t i = 0; i < run.lines.size(); ++i) {
      const auto* genuine = std::get_if<PhaseEvent>(&run.lines[i].event);
      if (genuine == nullptr) continue;
      for (const Phase phase :
           {Phase::setup, Phase::warmup, Phase::measure, Phase::evaluate, Phase::finish}) {
        if (phase == genuine->phase) continue;
        SampleRun forged = run;
        std::get<PhaseEvent>(forged.lines[i].event).phase = phase;
        EXPECT_TRUE(finds(forged, "phases"))
            << to_string(genuine->phase) << " as " << to_string(phase) << " in line " << i + 1;
      }
      for (const std::optional<std::int32_t> group : {std::optional<std::int32_t>{}, {0}, {1}}) {
        if (group == genuine->group) continue;
        SampleRun forged = run;
        std::get<PhaseEvent>(forged.lines[i].event).group = group;
        EXPECT_TRUE(finds(forged, "phases")) << to_string(genuine->phase) << " in line " << i + 1;
      }
    }
  }
}

/// planned_run() as one that adapts: its first look finds the plan kept, its second finds another
/// one, which has the same stages on the other ranks.
SampleRun adapting_run() {
  constexpr std::uint64_t every = 10;
  SampleRun run = planned_run();
  std::get<StartEvent>(run.lines[0].event).adapt_every = every;
  auto& config = run.last<ConfigEvent>().config.text;
  config.insert(config.rfind('}'), R"(,"adapt":{"every_steps":10,"replan_threshold":0.05})");
  AdaptEvent look;
  look.threshold = 0.05;
  look.planned_step_s = 6;
  // A step of 12.24 s by a clock that is stretched to twice its time.
  look.measured_step_s = 6.12;
  look.classes = {{"fast", 1, 4.5, 4.5}, {"slow", 1, 3, 3}};
  look.ranks = {{0, 4.5, 4.5}, {1, 3, 3}};
  AdaptEvent change = look;
  change.decision = AdaptDecision::new_plan;
  change.classes[0].measured_s = change.ranks[0].measured_s = 9;
  change.deviation = 1;
  change.search_s = 0.001;
  change.candidates = 7;
  change.kept_step_s = 9;
  change.new_step_s = 6;
  change.gain = 0.5;
  change.plan = run.last<PlanEvent>().plan;
  change.summary = run.last<PlanEvent>().summary;
  change.move_s = 0.002;
  change.moved_bytes = 800;
  std::uint64_t measured = 0;
  bool measuring = false;
  for (std::size_t i = 0; i < run.lines.size(); ++i) {
    const auto* phase = std::get_if<PhaseEvent>(&run.lines[i].event);
    measuring = phase != nullptr ? phase->phase == Phase::measure : measuring;
    const auto* step = std::get_if<StepEvent>(&run.lines[i].event);
    if (step == nullptr || !measuring || ++measured % every != 0 || measured > 2 * every) continue;
    AdaptEvent& next = measured == every ? look : change;
    next.n = step->n + 1;
    const std::int64_t t_ns = std::max(run.lines[i].t_ns, step->t_end_ns + 4'000'000);
    run.lines.insert(run.lines.begin() + static_cast<std::ptrdiff_t>(i) + 1, {t_ns, next});
  }
  // The first step by the new plan is observed.
  std::vector<JournalLine> observed;
  for (const JournalLine& line : run.lines) {
    const auto* event = std::get_if<ObservedEvent>(&line.event);
    if (event != nullptr && event->n != change.n) observed.push_back(line);
  }
  for (JournalLine line : observed) {
    std::get<ObservedEvent>(line.event).n = change.n;
    run.insert_before_stop(line.event);
  }
  return run;
}

TEST(JournalChecks, LooksAtAPlanFollowFromTheirLines) {
  const SampleRun run = adapting_run();
  ASSERT_EQ(found(run), "");
  using Change = void (*)(AdaptEvent&);
  const std::pair<const char*, Change> changes[] = {
      {"n", [](AdaptEvent& look) { ++look.n; }},
      {"threshold", [](AdaptEvent& look) { look.threshold = 0.01; }},
      {"measured_step_s", [](AdaptEvent& look) { look.measured_step_s *= 1.01; }},
      {"a rank's time", [](AdaptEvent& look) { look.ranks[1].measured_s *= 2; }},
      {"a class's time", [](AdaptEvent& look) { look.classes[0].planned_s *= 2; }},
      {"deviation", [](AdaptEvent& look) { look.deviation = 0.4; }},
      {"gain", [](AdaptEvent& look) { look.gain = 0.6; }},
      {"decision", [](AdaptEvent& look) { look.decision = AdaptDecision::no_gain; }},
      {"no plan", [](AdaptEvent& look) { look.plan.text.clear(); }},
      {"another plan", [](AdaptEvent& look) { look.plan.text = "{}"; }},
      {"summary", [](AdaptEvent& look) { look.summary = "pp 1"; }},
      {"long searches", [](AdaptEvent& look) { look.search_s = 100; }},
      {"moved_bytes", [](AdaptEvent& look) { look.moved_bytes.reset(); }},
      {"reason", [](AdaptEvent& look) { look.reason = "none"; }},
      {"no rank", [](AdaptEvent& look) { look.ranks.clear(); }}};
  for (const auto& [name, change] : changes) {
    SampleRun forged = run;
    change(forged.last<AdaptEvent>());
    EXPECT_TRUE(finds(forged, "adaptations")) << name << ": " << found(forged);
  }
  SampleRun left_out = run;
  left_out.lines.erase(left_out.lines.begin() +
                       static_cast<std::ptrdiff_t>(left_out.index<AdaptEvent>()));
  EXPECT_TRUE(finds(left_out, "adaptations"));
  SampleRun never = run;
  std::get<StartEvent>(never.lines[0].event).adapt_every.reset();
  EXPECT_TRUE(finds(never, "request"));
  SampleRun unobserved = run;
  std::size_t last = 0;
  for (std::size_t i = 0; i < run.lines.size(); ++i) {
    if (std::holds_alternative<ObservedEvent>(run.lines[i].event)) last = i;
  }
  std::get<ObservedEvent>(unobserved.lines[last].event).n += 1;
  EXPECT_TRUE(finds(unobserved, "observations"));
}

/// fixed_run() as if this model had been trained, on generated data where asked.
SampleRun trained_on(ModelGraph graph, bool generated) {
  SampleRun run = fixed_run();
  graph.name = "resnet18";
  for (JournalLine& line : run.lines) {
    if (auto* config = std::get_if<ConfigEvent>(&line.event); config != nullptr && generated) {
      const std::string source = R"("source":"idx:data")";
      config->config.text.replace(config->config.text.find(source), source.size(),
                                  R"("source":"generated")");
    } else if (auto* workload = std::get_if<WorkloadEvent>(&line.event)) {
      workload->graph = {graph_to_text(graph)};
      workload->graph_hash = graph.hash();
      workload->parameters = graph.parameter_count();
      if (!generated) continue;
      SampleSpec sample = sample_of(graph);
      sample.classes = generated_classes;
      const auto data = describe_generated(sample, 42);
      workload->data = data->description();
      workload->data_fingerprint = data->fingerprint();
      workload->data_kind = describe_generated(data->spec(), 0)->fingerprint();
      workload->loss_floor = data->loss_floor();
      workload->error_floor = data->error_floor();
      workload->quality_target = target_on(*data)->value;
    } else if (auto* step = std::get_if<StepEvent>(&line.event)) {
      step->ops_strict = strict_train_ops(graph, step->samples);
    } else if (auto* eval = std::get_if<EvalEvent>(&line.event)) {
      eval->ops_strict = strict_forward_ops(graph, eval->samples);
    }
  }
  return run;
}

/// The ranks of the sample are bound to plain CPUs.
TEST(JournalChecks, ADeviceThatNoRankIsBoundToIsFound) {
  for (const DeviceEvent& event : {DeviceEvent{0, "cpu:avx2", "avx2"},
                                   DeviceEvent{0, "emulated:x", "fastest", true, "bf16"}}) {
    SampleRun run = planned_run();
    ASSERT_FALSE(finds(run, "devices")) << found(run);
    run.insert_before_stop(event);
    EXPECT_TRUE(finds(run, "devices")) << event.device;
  }
}

TEST(JournalChecks, NobodyClaimsMoreOperationsByAnotherGraph) {
  const SampleSpec stored{.channels = 1, .height = 8, .width = 8, .classes = 3};
  EXPECT_EQ(found(trained_on(model_for("resnet18", stored), false)), "");
  EXPECT_EQ(found(trained_on(model_for("resnet34", stored), false)), "model ");
  const SampleSpec spec = generated_sample("resnet18");
  ASSERT_EQ(spec.classes, generated_classes);
  EXPECT_FALSE(finds(trained_on(model_for("resnet18", spec), true), "data"));
  SampleSpec larger = spec;
  larger.height *= 2;
  EXPECT_TRUE(finds(trained_on(model_for("resnet18", larger), true), "data"));
}

TEST(JournalChecks, PhasesHoldTheirSteps) {
  SampleRun run = fixed_run();
  std::swap(run.lines[index_of(run, Phase::measure)], run.lines[index_of(run, Phase::measure) + 1]);
  EXPECT_TRUE(finds(run, "phases"));  // a step of warm-up more than was asked for
  run = fixed_run();
  std::swap(run.lines[index_of(run, Phase::finish)], run.lines[index_of(run, Phase::finish) - 1]);
  EXPECT_TRUE(finds(run, "phases"));  // a step after the training
}

TEST(JournalChecks, AStepBelongsToTheGroupOfItsTrial) {
  const SampleRun run = search_run();
  for (std::size_t i = 0; i < run.lines.size(); ++i) {
    if (!std::holds_alternative<StepEvent>(run.lines[i].event)) continue;
    SampleRun forged = run;
    auto& step = std::get<StepEvent>(forged.lines[i].event);
    step.group = 1 - step.group;
    EXPECT_TRUE(finds(forged, "step_samples")) << "line " << i + 1;
  }
}

TEST(JournalChecks, AStepsGradientNormIsNotNegative) {
  SampleRun run = fixed_run();
  run.last<StepEvent>().gradient_norm = -1;
  EXPECT_TRUE(finds(run, "step_samples"));
}

/// Another evaluation, and other claims, for trial 0.
void judge(SampleRun& run, double accuracy, double loss) {
  for (JournalLine& line : run.lines) {
    if (auto* eval = std::get_if<EvalEvent>(&line.event); eval != nullptr && eval->trial == 0u) {
      eval->accuracy = accuracy;
      eval->loss = loss;
    }
    auto* trial = std::get_if<TrialEvent>(&line.event);
    if (trial == nullptr || trial->id != 0 || !trial->quality) continue;
    trial->quality = accuracy;
    trial->loss = loss;
  }
}

TEST(JournalChecks, TheFinalEvaluationIsOfTheBestTrial) {
  SampleRun run = search_run();
  ASSERT_EQ(run.last<EvalEvent>().trial, 2u);
  run.last<EvalEvent>().trial = 0;
  EXPECT_TRUE(finds(run, "best_trial"));
  run.last<EvalEvent>().trial = 1;  // which diverged
  EXPECT_TRUE(finds(run, "best_trial"));

  const double tied = 0.8;  // as trial 2
  run = search_run();
  judge(run, tied, 0.9);  // the same loss: the first of the group
  EXPECT_TRUE(finds(run, "best_trial"));
  judge(run, tied, 1.0);
  EXPECT_EQ(found(run), "");
  judge(run, 0.9, 1.0);
  EXPECT_TRUE(finds(run, "best_trial"));
}

TEST(JournalChecks, ACompleteSearchEvaluatesItsBestTrial) {
  SampleRun run = search_run();
  erase_last_evaluation(run);
  EXPECT_EQ(found(run), "best_trial ");
  run.last<StopEvent>() = {RunStatus::partial, "SIGTERM", 130};
  EXPECT_EQ(found(run), "");
}

/// What each rank, or the run, has to say: taken out of a complete run each of them is missed, and
/// of one that was interrupted none.
template <class E>
void expect_missed(const SampleRun& whole, const std::string& check) {
  for (std::size_t i = 0; i < whole.lines.size(); ++i) {
    if (!std::holds_alternative<E>(whole.lines[i].event)) continue;
    SampleRun run = whole;
    run.lines.erase(run.lines.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_TRUE((" " + found_as_it_is(run)).find(" " + check + " ") != std::string::npos)
        << kind_name(E{}) << " in line " << i + 1;
    run.last<StopEvent>() = {RunStatus::partial, "SIGTERM", 130};
    EXPECT_TRUE((" " + found_as_it_is(run)).find(" " + check + " ") == std::string::npos);
  }
}

TEST(JournalChecks, ACompleteRunLacksNoLineThatIsDue) {
  for (SampleRun run : {fixed_run(), planned_run(), search_run()}) {
    add_due_lines(run);
    ASSERT_EQ(found_as_it_is(run), "");
    expect_missed<RankPlanEvent>(run, "rank_plans");
    expect_missed<ObservedEvent>(run, "observations");
    expect_missed<ChecksumEvent>(run, "rank_ends");
    expect_missed<MemoryEvent>(run, "rank_ends");
    expect_missed<RankTimeEvent>(run, "rank_times");
    expect_missed<RankStepsEvent>(run, "rank_times");
    expect_missed<OverheadEvent>(run, "ending");
    expect_missed<SearchEvent>(run, "ending");
  }
  SampleRun run = fixed_run();
  erase_last_evaluation(run);
  EXPECT_TRUE(finds(run, "ending"));
}

/// With a look after each of these steps, counted from 1 on.
SampleRun looked_after(const std::vector<std::uint64_t>& steps) {
  SampleRun run = fixed_run();
  const auto place = static_cast<std::ptrdiff_t>(run.index<WorkloadEvent>());
  run.lines.insert(run.lines.begin() + place + 1, {run.lines[run.index<WorkloadEvent>()].t_ns,
                                                   UntilEvent{1e-9, 40, 20, 5, 0.05, 3}});
  for (std::size_t i = 0; i < run.lines.size(); ++i) {
    const auto* step = std::get_if<StepEvent>(&run.lines[i].event);
    if (step == nullptr) continue;
    const auto looks = std::count(steps.begin(), steps.end(), step->n + 1);
    const JournalLine look{step->t_end_ns, LookEvent{run.lines[index_of(run, Phase::measure)].t_ns,
                                                     step->t_end_ns, true}};
    run.lines.insert(run.lines.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                     static_cast<std::size_t>(looks), look);
  }
  make_agree(run);
  return run;
}

TEST(JournalChecks, OneLookWhereNoneIsDueIsTheLast) {
  EXPECT_EQ(found(looked_after({32})), "");
  EXPECT_TRUE(finds(looked_after({20}), "looks"));
  EXPECT_TRUE(finds(looked_after({20, 32}), "looks"));
  EXPECT_TRUE(finds(looked_after({32, 32}), "looks"));
  EXPECT_TRUE(finds(looked_after({}), "looks"));
}

TEST(JournalChecks, ASummaryLooksNoOftenerThanTheStepsAllow) {
  const RunSummary summary =
      summarize(looked_after(std::vector<std::uint64_t>(1000, 32)).journal());
  ASSERT_TRUE(summary.until.has_value());
  EXPECT_LE(summary.until->looks.size(), most_looks(32));
}

TEST(JournalChecks, RanksTimesAreThoseOfTheSteps) {
  SampleRun run = planned_run();
  run.last<StepEvent>().split.bubble_s /= 2;
  EXPECT_TRUE(finds(run, "rank_times"));
  run = planned_run();
  run.last<RankTimeEvent>().split.compute_s /= 2;
  EXPECT_TRUE(finds(run, "rank_times"));
  run = planned_run();
  run.last<RankTimeEvent>().wall_s /= 2;
  EXPECT_TRUE(finds(run, "rank_times"));
}

TEST(JournalChecks, OtherRanksMayBeginWhileTheFirstOneWritesToItsDisk) {
  const double longer_s = 60;  // than that of the first rank, whose steps take 12 s
  SampleRun run = planned_run();
  run.last<RankTimeEvent>().wall_s += longer_s;
  EXPECT_TRUE(finds(run, "rank_times"));
  for (std::size_t i = 0; i < index_of(run, Phase::measure); ++i) {
    run.lines[i].t_ns -= static_cast<std::int64_t>(longer_s * 1e9);
    auto* step = std::get_if<StepEvent>(&run.lines[i].event);
    if (step == nullptr) continue;
    step->t_start_ns -= static_cast<std::int64_t>(longer_s * 1e9);
    step->t_end_ns -= static_cast<std::int64_t>(longer_s * 1e9);
  }
  EXPECT_FALSE(finds(run, "rank_times"));
}

TEST(JournalChecks, TrialsAreOfTheSearch) {
  const auto changed = [](auto change) {
    SampleRun run = search_run();
    for (JournalLine& line : run.lines) {
      if (auto* trial = std::get_if<TrialEvent>(&line.event)) change(*trial);
    }
    return found(run);
  };
  EXPECT_EQ(changed([](TrialEvent&) {}), "");
  EXPECT_EQ(changed([](TrialEvent& trial) {
              trial.hyper_parameters.text = R"({"batch":64,"learning_rate":-1})";
            }),
            "trial_lines ");
  EXPECT_EQ(changed([](TrialEvent& trial) {
              trial.hyper_parameters.text = R"({"batch":64,"dropout":0.9})";
            }),
            "trial_lines ");
  EXPECT_EQ(changed([](TrialEvent& trial) {
              if (trial.id > 0) trial.parent = 77;
            }),
            "trial_lines ");
  EXPECT_NE(changed([](TrialEvent& trial) {
              trial.hyper_parameters.text = R"({"batch":1024,"learning_rate":0.1})";
            }).find("trial_lines "),
            std::string::npos);
}

TEST(JournalChecks, DataOfFilesHaveNoFloorsAndATargetByTheirClasses) {
  for (const auto& forge : std::vector<void (*)(WorkloadEvent&)>{
           [](WorkloadEvent& workload) { workload.quality_target = 0.05; },
           [](WorkloadEvent& workload) { workload.quality_target.reset(); },
           [](WorkloadEvent& workload) { workload.error_floor = 0.5; }}) {
    SampleRun run = fixed_run();
    forge(run.last<WorkloadEvent>());
    EXPECT_EQ(found(run), "data ");
  }
}

TEST(JournalChecks, WhatReproducesARunIsOneCommand) {
  for (const auto& [rest, finds_it] :
       {std::pair<std::string, bool>{" --set data.source='text:/a b;c.txt'", false},
        {"; rm -rf /", true},
        {" $(x)", true},
        {R"( --out 'it'\''s; here')", false},
        {R"( \'; rm -rf x \')", true},
        {R"( \x)", true},
        {" 'open", true}}) {
    SampleRun run = fixed_run();
    run.last<StartEvent>().reproduce += rest;
    EXPECT_EQ(found(run), finds_it ? "request " : "") << rest;
  }
}

TEST(JournalChecks, APeakOfMemoryHoldsWhatIsTrained) {
  SampleRun run = planned_run();
  run.last<MemoryEvent>().peak_bytes = 800;
  EXPECT_EQ(found(run), "");
  run.last<MemoryEvent>().peak_bytes = (std::uint64_t{1} << 53) + 1;
  EXPECT_EQ(found(run), "rank_ends ");
  run.last<MemoryEvent>().peak_bytes = 799;
  EXPECT_EQ(found(run), "rank_ends ");
}

TEST(JournalChecks, WordsFitWhatTheySpeakOf) {
  SampleRun run = fixed_run();
  run.last<StopEvent>().reason = "SIGTERM";
  EXPECT_EQ(found(run), "ending ");
  run = fixed_run();
  run.insert_before_stop(WarningEvent{"as it stands: other_load (80 % of 2 CPUs)", "other_load"});
  EXPECT_EQ(found(run), "");
  run.last<WarningEvent>().rule = "throttled";
  EXPECT_EQ(found(run), "ending ");
  run = search_run();
  run.last<TrialEvent>().reason = "not among the best";
  EXPECT_EQ(found(run), "trial_lines ");
  run = fixed_run();
  run.last<ObservedEvent>().calls = 0;
  EXPECT_EQ(found(run), "observations ");
  run = fixed_run();
  run.last<PeakEvent>().products = {"aten::mm 64x64x64", "aten::mm 64x64x64"};
  EXPECT_EQ(found(run), "rank_ends ");
}

}  // namespace
}  // namespace heteroperf
