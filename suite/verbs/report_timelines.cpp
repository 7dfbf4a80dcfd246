#include "suite/verbs/report_timelines.hpp"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <optional>

#include "metrics/error.hpp"
#include "metrics/text_file.hpp"
#include "results/run_folder.hpp"
#include "runners/plan/plan_json.hpp"
#include "suite/verbs/plan_simulation.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// One unit of the simulator's time is a second, and a microsecond of a trace.
constexpr double trace_unit_s = 1e6;

StepTimeline predicted_step(const ReportRun& run) {
  StepTimeline none;
  const fs::path plan = RunFiles{run.folder}.plan();
  if (!is_plan_file(plan.string())) {
    none.missing = "There is no plan.json of a fixed model.";
    return none;
  }
  try {
    PlanSimulationRequest request;
    request.path = plan.string();
    request.cluster = configured_cluster(run.journal);
    const Plan own = read_plan_file(plan.string());
    if (!own.workload) {
      none.missing =
          "The plan.json does not say its workload, whose operations a prediction needs.";
      return none;
    }
    if (request.cluster.empty() && own.cluster.empty()) {
      none.missing = "The run names no cluster, whose rates a prediction needs.";
      return none;
    }
    const PlanSimulation simulation = simulate_plan(request);
    return step_timeline(trace_text(simulation.schedule, rank_tracks(simulation)),
                         fmt::format("plan.json simulated on {}", simulation.cluster),
                         trace_unit_s);
  } catch (const Error& error) {
    none.missing = error.what();
    return none;
  }
}

/// Whether a file is as old as the run's last lines: another run may have written it again since.
bool of_this_run(const fs::path& file, const ReportRun& run) {
  constexpr std::chrono::seconds slack(5);
  std::error_code error;
  const auto written = fs::last_write_time(file, error);
  if (error) return false;
  const auto ended = fs::last_write_time(RunFiles{run.folder}.journal(), error);
  const std::chrono::duration<double> before = ended - written;
  return !error && before < std::chrono::duration<double>(run.summary.wall_s) + slack &&
         before > -slack;
}

std::optional<fs::path> trace_file(const ReportRun& run, const std::string& given) {
  if (!given.empty()) return given;
  const fs::path own = run.folder / "trace.json";
  if (fs::is_regular_file(own)) return own;
  const fs::path configured = configured_trace(run.journal);
  if (configured.empty()) return std::nullopt;
  const fs::path moved = run.folder / configured.filename();
  if (fs::is_regular_file(moved)) return moved;
  if (fs::is_regular_file(configured) && of_this_run(configured, run)) return configured;
  return std::nullopt;
}

StepTimeline measured_step(const ReportRun& run, const std::string& trace) {
  const double dilation = run.summary.plan.pacing ? run.summary.plan.pacing->dilation : 1;
  if (const auto file = trace_file(run, trace)) {
    return step_timeline(read_text_file(*file),
                         fmt::format("the trace {}{}", file->filename().string(),
                                     dilation == 1 ? "" : ", in modelled seconds"),
                         1 / dilation);
  }
  StepTimeline none;
  none.missing =
      "A trace of one step comes from `heteroperf run --trace FILE`; give it with "
      "--trace.";
  return none;
}

}  // namespace

void add_timelines(ReportRun& run, const std::string& trace) {
  run.predicted = predicted_step(run);
  run.measured = measured_step(run, trace);
}

}  // namespace heteroperf
