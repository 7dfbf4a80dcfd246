// Puts the part of one run together: all its sections in the order of the page, from the result
// down to the tables of everything. The section of trials is here as well, since it is a table
// only: a search starts models, trains each for a while, and stops or promotes it, and the journal
// has a line for every such change, of which the last one per trial is shown.

#include <fmt/format.h>

#include <map>

#include "results/report/report_run.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t most_trials = 200;

/// "llm nano fp32, 2 ranks over threads": the workload and the scale, as far as the journal came.
std::string workload_text(const ReportRun& run) {
  const auto* workload = run.journal.first<WorkloadEvent>();
  const auto* scale = run.journal.last<ScaleEvent>();
  std::string text;
  if (workload != nullptr) {
    text = fmt::format("{} {} {}", workload->name, workload->size, workload->precision);
  }
  if (scale != nullptr) {
    text += fmt::format("{}{} over {}", text.empty() ? "" : ", ", plural(scale->ranks, "rank"),
                        scale->transport);
  }
  return text;
}

/// The cells of a trial in the order of the table's columns.
std::vector<Datum> trial_row(const TrialEvent& trial) {
  return {trial.id,
          trial.parent ? fmt::format("{}", *trial.parent) : "",
          trial.morph,
          to_string(trial.state),
          trial.rung,
          trial.steps,
          number_cell(trial.quality),
          number_cell(trial.loss),
          trial.hyper_parameters.text,
          trial.reason};
}

}  // namespace

ReportSection trials_section(const ReportRun& run, const std::string&) {
  ReportSection section{"Trials"};
  std::map<std::uint64_t, const TrialEvent*> last;
  // Later lines of a trial replace earlier ones; the map sorts trials by their number.
  for (const TrialEvent* trial : run.journal.all<TrialEvent>()) last[trial->id] = trial;
  Table table = report_table("Trials, each as it was last heard of",
                             {"trial", "parent", "change", "state", "rung", "steps", "quality",
                              "loss", "hyper-parameters", "reason"});
  for (const auto& [id, trial] : last) {
    if (table.rows.size() == most_trials) {
      section.paragraphs.push_back(
          fmt::format("The first {} of {} trials; samples.h5 has all.", most_trials, last.size()));
      break;
    }
    table.add(trial_row(*trial));
  }
  section.tables.push_back(std::move(table));
  return section;
}

ReportPart run_part(const ReportRun& run, const std::string& id) {
  ReportPart part;
  const auto* start = run.journal.first<StartEvent>();
  part.title = start->run_id;
  part.subtitle = fmt::format("{}{}{}", workload_text(run), start->created_utc.empty() ? "" : ", ",
                              start->created_utc);
  part.sections = {
      headline_section(run, id),   progress_section(run, id), step_time_section(run, id),
      time_split_section(run, id), pipeline_section(run, id), straggler_section(run, id),
      roofline_section(run, id),   mix_section(run, id),      memory_section(run, id)};
  if (run.summary.search) part.sections.push_back(trials_section(run, id));
  part.sections.push_back(environment_section(run, id));
  return part;
}

}  // namespace heteroperf
