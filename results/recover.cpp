#include "results/recover.hpp"

#include <fmt/format.h>

#include "metrics/error.hpp"
#include "results/suite_record.hpp"

namespace heteroperf {
namespace {

FinishedRun recover_run(const RunFiles& files) {
  if (!std::filesystem::exists(files.journal())) {
    throw UserError("cannot recover " + files.folder.string(), "there is no journal.jsonl");
  }
  return finish_run(files);
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
