#include "results/recover.hpp"

#include <fmt/format.h>

#include "metrics/error.hpp"
#include "metrics/text_file.hpp"
#include "results/suite_record.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// The lines before a damaged one become the journal. All of what was there stays beside it, under
/// a name that no verb reads. Returns the warning.
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
  return fmt::format("line {} of its journal is damaged ({}): its first {} lines are kept, and {} "
                     "has all of what was there",
                     damage.line(), damage.problems().front().why, damage.good_lines(),
                     aside.string());
}

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

FinishedRun recover_suite(const RunFiles& files, const SuitePlan& plan) {
  FinishedRun finished;
  for (const std::string& workload : plan.workloads) {
    const RunFiles part{files.folder / workload};
    if (!std::filesystem::exists(part.journal())) {
      finished.warnings.push_back(fmt::format("{} was not started", workload));
      continue;
    }
    FinishedRun one = recover_run(part);
    for (std::string& warning : one.warnings) finished.warnings.push_back(std::move(warning));
  }
  finished.record = write_suite_record(files.folder, plan);
  return finished;
}

}  // namespace

FinishedRun recover(const std::filesystem::path& path) {
  const RunFiles files = open_run_folder(path);
  if (const auto plan = read_suite_plan(files.folder)) return recover_suite(files, *plan);
  return recover_run(files);
}

}  // namespace heteroperf
