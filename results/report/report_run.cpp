// Reads a run for its report and puts its part together. Everything is made again from the journal,
// whatever record.json says, since a run that was killed has no record and an edited record must
// not colour the report. The stored record is only compared: the report says when it differs or is
// absent. The first contradiction inside the journal is kept as well, because a report of a damaged
// run is still better than none.
//
// The part has all sections in the order of the page, from the result down to the tables of
// everything. The section of trials is here as well, since it is a table only: a search starts
// models, trains each for a while, and stops or promotes it, and the journal has a line for every
// such change, of which the last one per trial is shown.

#include "results/report/report_run.hpp"

#include <fmt/format.h>

#include <map>

#include "metrics/base/error.hpp"
#include "results/record/record.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/verify.hpp"
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

}  // namespace

ReportRun read_report_run(const std::filesystem::path& folder) {
  const RunFiles files{folder};
  if (!std::filesystem::exists(files.journal())) {
    throw UserError("no report of " + folder.string(),
                    "there is no journal.jsonl, which holds every step",
                    "Give the run's whole folder.");
  }
  ReportRun run;
  run.folder = folder;
  run.journal = read_journal(files.journal().string());
  run.summary = summarize(run.journal);
  run.validity = judge(run.journal, run.summary);
  run.record = build_record(run.journal, run.summary, run.validity);
  run.contradiction = first_wrong_content(run.journal, folder);
  if (!std::filesystem::exists(files.record())) {
    run.stored = RecordState::absent;
  } else if (read_run_file(files.record()) != run.record) {
    run.stored = RecordState::differs;
  }
  return run;
}

ReportSection trials_section(const ReportRun& run) {
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
    table.add({id, trial->parent ? fmt::format("{}", *trial->parent) : "", trial->morph,
               to_string(trial->state), trial->rung, trial->steps, number_cell(trial->quality),
               number_cell(trial->loss), trial->hyper_parameters.text, trial->reason});
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
      headline_section(run),       progress_section(run, id), step_time_section(run, id),
      time_split_section(run, id), pipeline_section(run, id), straggler_section(run, id),
      roofline_section(run, id),   mix_section(run, id),      memory_section(run, id)};
  if (!run.summary.components.empty()) part.sections.push_back(component_section(run, id));
  if (run.summary.search) part.sections.push_back(trials_section(run));
  part.sections.push_back(environment_section(run));
  return part;
}

}  // namespace heteroperf
