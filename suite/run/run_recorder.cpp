// Writes the lines that open a journal: start, configuration, system, plan, scale, workload. They
// are what the record and `verify` judge a run by, so they are complete before the first step; a
// copy of them stays here and is judged at once by the ruleset (`foresee`), which tells the user
// that a run cannot be ranked before time is spent on it.
//
// While the run goes on, the journal's thread calls watch_rules() now and then, which warns of each
// further rule as soon as it is broken. `closing_` keeps that thread from adding a line after the
// stop line, which must be the last.
#include "suite/run/run_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "metrics/base/name_table.hpp"
#include "metrics/precision_goal.hpp"
#include "results/journal_checks/checked_journal.hpp"
#include "results/text/sha256.hpp"
#include "runners/cluster/shared_module.hpp"
#include "runners/plan/plan_json.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/config/run_documents_json.hpp"
#include "suite/planning/border_bytes.hpp"
#include "suite/program/version.hpp"
#include "workloads/data/data_source.hpp"
#include "workloads/graph/model_graph_json.hpp"

namespace heteroperf {
namespace {

/// Describes what is trained; `resume`, `align` and `verify` read their identity from this line.
WorkloadEvent workload_event(const PreparedRun& run) {
  const Workload& workload = run.workload;
  WorkloadEvent event;
  event.name = workload.name;
  event.size = workload.size;
  event.family = family_of(workload.data->spec().kind);
  event.unit = workload.unit;
  event.precision = to_string(workload.precision);
  event.units_per_sample = static_cast<std::uint64_t>(workload.units_per_sample);
  event.graph_hash = workload.graph.hash();
  if (run.plan) {
    event.samples_per_step = run.plan->plan.samples_per_step();
    event.parameters = workload.graph.parameter_count();
    event.graph.text = graph_to_text(workload.graph);
  }
  event.data = workload.data->description();
  event.data_fingerprint = workload.data->fingerprint();
  // Generated data depend on the seed; the kind of data does not, and only the kind must match the
  // rules.
  if (is_generated(run.config.data.source)) {
    const DataRequest request{run.config.data.source, workload.data->spec(), 0};
    event.data_kind = open_data(request)->fingerprint();
  }
  event.loss_floor = workload.data->loss_floor();
  event.error_floor = workload.data->error_floor();
  event.quality =
      event.family == WorkloadFamily::classifier ? QualityMeasure::accuracy : QualityMeasure::loss;
  if (workload.target) event.quality_target = workload.target->value;
  event.config.text =
      workload_config_text(workload, run.plan ? ProgramKind::training : ProgramKind::search);
  event.seeds = {{"run", run.config.seed}};
  return event;
}

/// One entry per class, in the order of its first rank.
std::vector<DeviceCount> devices_of(const PreparedRun& run) {
  const auto threads = static_cast<std::uint32_t>(run.placement.threads_per_rank);
  std::vector<DeviceCount> devices;
  for (int rank = 0; rank < run.placement.ranks; ++rank) {
    const std::string name =
        run.plan ? run.plan->device_class(rank) : run.placement.bindings[rank].device;
    // Classes are few, so a linear search is enough.
    const auto known = std::find_if(devices.begin(), devices.end(),
                                    [&](const DeviceCount& d) { return d.device_class == name; });
    if (known == devices.end()) {
      devices.push_back({name, 1, threads, run.plan && run.plan->emulated});
    } else {
      ++known->count;
    }
  }
  return devices;
}

}  // namespace

RunRecorder::RunRecorder(const RunConfig& config, const RunIdentity& identity,
                         const std::string& workload, const std::filesystem::path& folder,
                         TurnTaker* turns)
    : name_(make_run_name(workload)),
      files_(create_run_folder(folder.empty() ? std::filesystem::path("results") / name_.run_id
                                              : folder)) {
  JournalOptions options;
  if (turns != nullptr) options.clock = [turns] { return turns->clock().now_ns(); };
  // The observers run on the journal's thread and see each line in its final order.
  options.on_line = [this](std::int64_t t_ns, const Event& event) { watch_.see(t_ns, event); };
  options.on_interval = [this] { watch_rules(); };
  {
    const std::lock_guard lock(closing_);  // its thread uses it from then on
    journal_ = std::make_unique<JournalWriter>(files_.journal().string(), std::move(options));
  }
  StartEvent start;
  start.run_id = name_.run_id;
  start.created_utc = name_.created_utc;
  start.argv = identity.argv;
  start.reproduce = identity.reproduce;
  start.quick = config.quick;
  if (turns != nullptr) start.lockstep = true;
  start.program_version = version_text();
  start.git_commit = git_commit();
  start.build_type = build_text();
  start.binary_sha256 = sha256_file_hex(program_path().string());
  if (config.parent) {
    start.parent = config.parent->run_id;
    start.parent_step = config.parent->step;
  }
  if (identity.suite) {
    start.suite = identity.suite;
    start.suite_workload = workload;
  }
  start.sweep = identity.sweep;
  if (config.adapt.every_steps > 0) start.adapt_every = config.adapt.every_steps;
  open(start);
  if (turns != nullptr) turns->set_folder(std::filesystem::absolute(files_.folder).string());
}

void RunRecorder::open(const Event& event) {
  journal_->append(event);
  opening_.lines.push_back({0, event});
}

Validity RunRecorder::describe(const PreparedRun& run, const std::string& libtorch_version) {
  open(ConfigEvent{{to_json_text(run.config)}});
  open(SystemEvent{{system_text(run.placement, libtorch_version)}});
  if (run.plan) {
    open(PlanEvent{{plan_text(run.plan->plan)},
                   summary_text(run.plan->plan),
                   planned_borders(run.workload.graph, *run.plan, run.workload.precision)});
  } else {
    // A search has no plan of one model; its line says which ranks train together.
    open(PlanEvent{{search_plan_text(run.placement.ranks, run.groups)}, "", {}});
  }
  open(ScaleEvent{run.placement.ranks, std::max(1, run.groups),
                  to_string(run.config.scale.transport), devices_of(run), run.allocated_devices});
  open(workload_event(run));
  if (const auto goal = precision_goal(run.config.measure)) {
    open(UntilEvent{goal->fraction, goal->fewest_steps, goal->fewest_s, goal->blocks, goal->misses,
                    goal->fewest_blocks});
  }
  // A search has a graph for each trial instead.
  if (run.plan) {
    for (const Event& event : plan_events(*run.plan)) journal_->append(event);
  }
  RunExpectation expected;
  if (run.config.measure.steps == 0) expected.measured_s = run.config.measure.duration_s;
  expected.measures_peak = run.config.measure.peak_s > 0;
  Validity foreseen = foresee(std::move(opening_), expected);
  const std::lock_guard lock(closing_);
  standing_ = std::max(standing_, foreseen.severity);
  return foreseen;
}

/// Tells of a rule that the run breaks while it can still be stopped.
void RunRecorder::watch_rules() {
  const std::lock_guard lock(closing_);
  if (closed_) return;
  try {
    for (const RuleNews& news : watch_.judge()) {
      const Reason& reason = news.reason;
      std::string when = "before the first step";
      if (!news.of_setup) {
        // A milder reason than those that are known does not mend the class.
        const bool milder = reason.severity < standing_;
        if (!milder) standing_ = reason.severity;
        when = fmt::format("as it stands this run is {}", to_string(standing_));
        if (milder) when += fmt::format(", with another reason for {}", to_string(reason.severity));
      }
      const std::string text = fmt::format("{}: {} ({}; expected {}). {}", when, reason.rule,
                                           reason.actual, reason.expected, reason.hint);
      fmt::print(stderr, "heteroperf: warning: {}\n", text);
      journal_->append(WarningEvent{text, reason.rule});
    }
  } catch (const std::exception&) {
    // A disk that refuses shows at the next line of the run.
  }
}

FinishedRun RunRecorder::finish(RunStatus status, const std::string& reason,
                                std::int32_t exit_code) {
  {
    const std::lock_guard lock(closing_);
    HETEROPERF_EXPECT(!closed_);
    closed_ = true;
  }
  journal_->append(StopEvent{status, reason, exit_code});
  journal_.reset();
  return finish_run(files_);
}

}  // namespace heteroperf
