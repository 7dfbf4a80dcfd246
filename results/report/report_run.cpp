// Reads a run for its report. Everything is made again from the journal, whatever record.json says,
// since a run that was killed has no record and an edited record must not colour the report. The
// stored record is only compared: the report says when it differs or is absent. The first
// contradiction inside the journal is kept as well, because a report of a damaged run is still
// better than none.

#include "results/report/report_run.hpp"

#include "metrics/base/error.hpp"
#include "results/record/record.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/verify.hpp"

namespace heteroperf {

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

}  // namespace heteroperf
