// The verb `report`: writes one HTML page of a run or of several. The page is made by the results;
// this file adds what only the program can: the timeline of one step as the simulator predicts it
// from the run's plan.json, and the one that a trace measured. A timeline that is not there is
// replaced by the reason, which the page shows in its place.
//
// A trace counts only if it says that it is of this run (TraceOrigin holds the run_id), because a
// page that mixes two runs would look right. With several runs the newest four get a part of their
// own.
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/record/run_folder.hpp"
#include "results/report/report_run.hpp"
#include "results/report/runs_part.hpp"
#include "results/text/canonical_json.hpp"
#include "runners/plan/plan_json.hpp"
#include "runners/schedule/formats/trace_json.hpp"
#include "suite/planning/plan_simulation.hpp"
#include "suite/program/verb.hpp"
#include "suite/training/step_trace.hpp"
#include "suite/verbs/output_file.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

// Every reason is a sentence, because the page prints it as text.
StepTimeline missing_step(const std::string& why) { return {{}, {}, why}; }

/// Simulates the run's plan. Every way to fail becomes the reason that the page shows.
StepTimeline predicted_step(const ReportRun& run) {
  const fs::path plan = RunFiles{run.folder}.plan();
  if (!is_plan_file(plan.string())) return missing_step("There is no plan.json of a fixed model.");
  try {
    PlanSimulationRequest request;
    request.path = plan.string();
    // The cluster that the run itself was given comes before the plan's.
    request.cluster = configured_cluster(run.journal);
    const Plan stored = read_plan_file(plan.string());
    // A prediction would need flags that a report does not have.
    if (!stored.workload) {
      return missing_step(
          "The plan.json does not say its workload, whose operations a prediction needs.");
    }
    if (request.cluster.empty() && stored.cluster.empty()) {
      return missing_step("The run names no cluster, whose rates a prediction needs.");
    }
    const ReadyPlan simulation = simulate_plan(stored, request, simulated_cluster(stored, request));
    return step_timeline(plan_trace_text(simulation, {}),
                         fmt::format("plan.json simulated on {}", simulation.cluster->name), 1);
    // A page with a reason is better than no page.
  } catch (const Error& error) {
    return missing_step(error.what());
  }
}

std::string run_id_of(const ReportRun& run) { return run.journal.first<StartEvent>()->run_id; }

/// "a measured trace of run x".
std::string trace_noun(const TraceOrigin& origin) {
  const char* const kind = to_string(origin.kind);
  return origin.run_id.empty() ? fmt::format("a {} trace of no run", kind)
                               : fmt::format("a {} trace of run {}", kind, origin.run_id);
}

/// A trace with what it says of its own origin.
struct TraceFile {
  fs::path path;
  std::string text;
  TraceOrigin origin;
};

/// Reads a trace of the run. Throws UserError where the file is no trace, or one of another run.
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
  // A measured trace of emulated devices is in real seconds; the page shows modelled ones.
  const double dilation = run.summary.plan.pacing ? run.summary.plan.pacing->dilation : 1;
  const std::string host =
      trace.origin.host.empty() ? "" : fmt::format(", written on {}", trace.origin.host);
  return step_timeline(
      trace.text,
      fmt::format("the trace {}{}{}", name, host, dilation == 1 ? "" : ", in modelled seconds"),
      1 / dilation);
}

/// Lists the files that may hold the trace of a run: in its folder, or where its configuration
/// says.
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

/// Puts one step as the simulator times the run's plan.json, and one as the run's own trace has it,
/// into the run; where there is none, why. A trace is the run's own when it says so (TraceOrigin):
/// measured, and of this run_id. It is trace.json in the run's folder, or the file that its
/// configuration names.
///
/// `trace` stands in for that file, or, if it is simulated, for the simulator's step. Throws
/// UserError where it is no trace of this run.
void add_timelines(ReportRun& run, const std::string& trace) {
  run.predicted = predicted_step(run);
  if (trace.empty()) {
    run.measured = own_measured_step(run);
    return;
  }
  const TraceFile given = read_trace_of(run, trace);
  StepTimeline timeline = timeline_of(run, given);
  // A trace that the user named must be usable, or the page would not show what was asked for.
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

/// Runs that get a part of their own at most: the newest.
constexpr std::size_t most_run_parts = 4;

class ReportVerb : public Verb {
 public:
  ReportVerb()
      : Verb({"report",
              "one HTML file of a run, or of several: charts, tables, why a score counts or not",
              {"report results/latest", "report results/a results/b -o scaling.html"}}) {}

  void declare(CLI::App& command) override {
    add_argument(command, "runs", paths_,
                 "run folders, finished or not, or folders of them; several give scaling, "
                 "mixed against homogeneous, and trend");
    add_typed_option(command, "-o,--out,--output", output_, "FILE",
                     "the file to write (default: report.html in the run's folder, of several runs "
                     "in the folder that holds them)");
    add_typed_option(command, "--trace", trace_, "FILE",
                     "trace that `run --trace` wrote with the only run, or `simulate --trace` from "
                     "its plan.json; any other file is refused");
  }

  ExitCode run(const GlobalOptions& options) override {
    const ReportSources sources = report_sources({paths_.begin(), paths_.end()});
    if (!trace_.empty() && sources.folders.size() != 1) {
      throw UserError(fmt::format("--trace is given for {} runs", sources.folders.size()),
                      "a trace is of one run", "Report that run alone.");
    }
    // The user may name a pipe or a device, which nothing may take the place of.
    const OutputFile file(output_.empty() ? default_output(sources).string() : output_, "--output");
    const std::string html = report_html(page_of(sources));
    file.save(html);
    if (options.json) {
      fmt::print("{{\"report\":{},\"bytes\":{},\"runs\":{}}}\n", json_quoted(file.path()),
                 html.size(), sources.folders.size());
    } else {
      fmt::print("{}\n", file.path());
    }
    return ExitCode::ok;
  }

 private:
  /// The newest run comes first, since it is the one that is read most.
  ReportPage page_of(const ReportSources& sources) const {
    const bool alone = sources.folders.size() == 1 && sources.records.runs.size() <= 1;
    ReportPage page;
    page.title = "HeteroPerf report";
    // Several runs are first compared with each other.
    if (!alone) page.parts.push_back(runs_part(sources));
    const std::size_t total = sources.folders.size();
    for (std::size_t i = total; i-- > (total > most_run_parts ? total - most_run_parts : 0);) {
      try {
        add_run(sources.folders[i], page);
      } catch (const Error& error) {
        // One broken run does not cost the page of many; alone it is the answer.
        if (alone || !trace_.empty()) throw;
        page.parts.front().sections.front().notices.push_back(
            {NoticeLevel::bad, fmt::format("No part for a run: {}", error.what())});
      }
    }
    if (total > most_run_parts) {
      page.parts.front().sections.front().paragraphs.push_back(fmt::format(
          "The newest {} of {} runs have a part of their own below.", most_run_parts, total));
    }
    return page;
  }

  void add_run(const fs::path& folder, ReportPage& page) const {
    ReportRun run = read_report_run(folder);
    add_timelines(run, trace_);
    page.parts.push_back(run_part(run, fmt::format("r{}-", page.parts.size())));
  }

  /// The page lies with what it shows: beside one run, or in the folder that holds several.
  fs::path default_output(const ReportSources& sources) const {
    constexpr const char* name = "report.html";
    if (sources.folders.size() == 1) return sources.folders.front() / name;
    if (paths_.size() == 1 && fs::is_directory(paths_.front()))
      return fs::path(paths_.front()) / name;
    return name;
  }

  std::vector<std::string> paths_;
  std::string output_, trace_;
};

}  // namespace

std::unique_ptr<Verb> make_report_verb() { return std::make_unique<ReportVerb>(); }

}  // namespace heteroperf
