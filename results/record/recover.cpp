// Makes the files of a run again from its journal, which is the only one that cannot be made again.
// A run that was killed has a journal and no record; `recover` writes the record that the journal
// gives, and `verify` then finds nothing wrong. Of a damaged journal the lines before the damage
// become the journal, while the whole file stays beside it, so nothing is lost. A suite is
// recovered workload by workload; nothing is made of runs that belong to another suite.
#include "results/record/run_folder.hpp"

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/record/suite_record.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Keeps a copy of the whole journal under a name that no verb reads and cuts the journal to its
/// good lines. Returns the warning. The copy is written first, so that a kill in between loses
/// nothing.
std::string set_damage_aside(const RunFiles& files, const JournalError& damage) {
  const std::string text = read_text_file(files.journal());
  std::size_t good_bytes = 0;
  for (std::size_t line = 0; line < damage.good_lines(); ++line) {
    good_bytes = text.find('\n', good_bytes) + 1;
  }
  fs::path aside;
  for (int i = 1; aside.empty() || fs::exists(aside); ++i) {
    aside = files.folder / fmt::format("damaged-{}.jsonl", i);
  }
  write_file_atomically(aside, text);
  write_file_atomically(files.journal(), text.substr(0, good_bytes));
  return fmt::format(
      "line {} of its journal is damaged ({}): its first {} lines are kept, and {} "
      "has all of what was there",
      damage.line(), damage.problems().front().why, damage.good_lines(), aside.string());
}

/// A journal of which not even the first line is good is left as it is.
FinishedRun recover_run(const RunFiles& files) {
  if (!fs::exists(files.journal())) {
    throw UserError("cannot recover " + files.folder.string(), "there is no journal.jsonl");
  }
  try {
    return finish_run(files);
  } catch (const JournalError& damage) {
    if (damage.good_lines() == 0) throw;
    const std::string warning = set_damage_aside(files, damage);
    FinishedRun finished = finish_run(files);
    finished.warnings.insert(finished.warnings.begin(), warning);
    return finished;
  }
}

/// Throws where a folder of the suite has a run that is not the suite's own.
void require_own_runs(const RunFiles& files, const StoredSuite& suite) {
  const auto fault = look_at_suite(files.folder, suite.plan, suite.recorded).fault;
  if (!fault) return;
  throw Error(
      ErrorKind::verification,
      {{fmt::format("cannot recover the suite in {}", files.folder.string()),
        fmt::format("expected {}, found {}", fault->expected, fault->actual), fault->way_out}});
}

/// Workloads that were not started are named in a warning; the suite's record counts them as not
/// run.
FinishedRun recover_suite(const RunFiles& files, const StoredSuite& suite) {
  const SuitePlan& plan = suite.plan;
  require_own_runs(files, suite);
  FinishedRun finished;
  for (const std::string& workload : plan.workloads) {
    const RunFiles part{files.folder / workload};
    if (!std::filesystem::exists(part.journal())) {
      finished.warnings.push_back(fmt::format("{} was not started", workload));
      continue;
    }
    FinishedRun run = recover_run(part);
    for (std::string& warning : run.warnings) finished.warnings.push_back(std::move(warning));
  }
  finished.record = write_suite_record(files.folder, plan);
  return finished;
}

/// The plan of a suite whose suite.json is gone, by its journals.
std::optional<SuitePlan> plan_without_record(const std::filesystem::path& folder) {
  const RunFiles files{folder};
  for (const std::filesystem::path& file : {files.suite(), files.journal(), files.record()}) {
    if (std::filesystem::exists(file)) return std::nullopt;
  }
  return std::filesystem::is_directory(folder) ? suite_plan_of_journals(folder) : std::nullopt;
}

}  // namespace

FinishedRun recover(const std::filesystem::path& path) {
  if (const auto plan = plan_without_record(path)) return recover_suite({path}, {*plan, {}});
  const RunFiles files = open_run_folder(path);
  if (const auto suite = read_suite_record(files.folder)) return recover_suite(files, *suite);
  return recover_run(files);
}

}  // namespace heteroperf
