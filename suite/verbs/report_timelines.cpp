#include "suite/verbs/report_timelines.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/run_folder.hpp"
#include "runners/plan/plan_json.hpp"
#include "runners/schedule/formats/trace_json.hpp"
#include "suite/run/step_trace.hpp"
#include "suite/verbs/plan_simulation.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

StepTimeline missing_step(const std::string& why) {
  StepTimeline none;
  none.missing = why;
  return none;
}

StepTimeline predicted_step(const ReportRun& run) {
  const fs::path plan = RunFiles{run.folder}.plan();
  if (!is_plan_file(plan.string())) return missing_step("There is no plan.json of a fixed model.");
  try {
    PlanSimulationRequest request;
    request.path = plan.string();
    request.cluster = configured_cluster(run.journal);
    const Plan own = read_plan_file(plan.string());
    if (!own.workload) {
      return missing_step(
          "The plan.json does not say its workload, whose operations a prediction needs.");
    }
    if (request.cluster.empty() && own.cluster.empty()) {
      return missing_step("The run names no cluster, whose rates a prediction needs.");
    }
    const PlanSimulation simulation = simulate_plan(request);
    return step_timeline(plan_trace_text(simulation, {}),
                         fmt::format("plan.json simulated on {}", simulation.cluster->name), 1);
  } catch (const Error& error) {
    return missing_step(error.what());
  }
}

std::string run_id_of(const ReportRun& run) { return run.journal.first<StartEvent>()->run_id; }

/// "a measured trace of run x".
std::string trace_noun(const TraceOrigin& origin) {
  const char* const kind = value_names(origin.kind)[static_cast<std::size_t>(origin.kind)];
  return origin.run_id.empty() ? fmt::format("a {} trace of no run", kind)
                               : fmt::format("a {} trace of run {}", kind, origin.run_id);
}

struct TraceFile {
  fs::path path;
  std::string text;
  TraceOrigin origin;
};

/// Throws UserError where the file is no trace, or none of the run.
TraceFile read_trace_of(const ReportRun& run, const fs::path& file) {
  TraceFile trace{file, read_text_file(file.string(), "trace"), {}};
  trace.origin = read_trace_origin(trace.text, file.string());
  if (trace.origin.run_id != run_id_of(run)) {
    throw UserError(fmt::format("{} is {}", file.string(), trace_noun(trace.origin)),
                    fmt::format("the report is of {}", run_id_of(run)),
                    "Give the trace that `heteroperf run --trace FILE` wrote with the run.");
  }
  return trace;
}

StepTimeline timeline_of(const ReportRun& run, const TraceFile& trace) {
  const std::string name = trace.path.filename().string();
  if (trace.origin.kind == TraceKind::simulated) {
    return step_timeline(trace.text, fmt::format("the simulated trace {}", name), 1);
  }
  const double dilation = run.summary.plan.pacing ? run.summary.plan.pacing->dilation : 1;
  const std::string host =
      trace.origin.host.empty() ? "" : fmt::format(", written on {}", trace.origin.host);
  return step_timeline(
      trace.text,
      fmt::format("the trace {}{}{}", name, host, dilation == 1 ? "" : ", in modelled seconds"),
      1 / dilation);
}

/// Where the trace of a run may be: in its folder, or where its configuration says.
std::vector<fs::path> trace_files(const ReportRun& run) {
  std::vector<fs::path> files{run.folder / "trace.json"};
  const fs::path configured = configured_trace(run.journal);
  if (!configured.empty()) {
    files.push_back(run.folder / configured.filename());
    files.push_back(configured);
  }
  std::erase_if(files, [](const fs::path& file) { return !fs::is_regular_file(file); });
  return files;
}

/// The first file that is the run's own measured trace; else why the first one there is not.
StepTimeline own_measured_step(const ReportRun& run) {
  std::string why;
  for (const fs::path& file : trace_files(run)) {
    try {
      const TraceFile trace = read_trace_of(run, file);
      if (trace.origin.kind == TraceKind::measured) return timeline_of(run, trace);
      if (why.empty()) why = fmt::format("{} is a simulated trace.", file.string());
    } catch (const Error& error) {
      if (why.empty()) why = error.what();
    }
  }
  return missing_step(why.empty() ? "A trace of some steps comes from `heteroperf run --trace "
                                    "FILE`; give it with --trace."
                                  : why);
}

}  // namespace

void add_timelines(ReportRun& run, const std::string& trace) {
  run.predicted = predicted_step(run);
  if (trace.empty()) {
    run.measured = own_measured_step(run);
    return;
  }
  const TraceFile given = read_trace_of(run, trace);
  StepTimeline timeline = timeline_of(run, given);
  if (!timeline.missing.empty()) {
    throw UserError(timeline.missing, "", "`heteroperf run --trace FILE` writes one with them.");
  }
  if (given.origin.kind == TraceKind::measured) {
    run.measured = std::move(timeline);
  } else {
    run.predicted = std::move(timeline);
    run.measured = own_measured_step(run);
  }
}

}  // namespace heteroperf
