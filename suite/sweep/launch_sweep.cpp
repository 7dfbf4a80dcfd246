#include "suite/sweep/launch_sweep.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "results/run_folder.hpp"
#include "results/scaling/sweep_report.hpp"
#include "runners/cluster/shared_module.hpp"
#include "suite/config/reproduce.hpp"
#include "suite/program/signals.hpp"
#include "suite/sweep/run_words.hpp"
#include "suite/sweep/sweep_session.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Options of the sweep alone, which its runs would read from the environment.
constexpr const char* own_variables =
    "unset HETEROPERF_REPEAT HETEROPERF_SWEEP HETEROPERF_RUN_LIMIT HETEROPERF_JSON "
    "HETEROPERF_OUT; ";

std::string shell_line(const SweepIndex& index, const SweepRun& run, const fs::path& folder) {
  std::string line = own_variables + fmt::format("{}={} exec ", parent_variable, getpid()) +
                     shell_quoted(program_path().string());
  for (const std::string& word : sweep_run_words(index, run, folder.string())) {
    line += ' ' + shell_quoted(word);
  }
  return line;
}

/// Whether points that differ in ranks differ in the threads of a rank as well, as nobody says
/// them.
bool threads_follow_ranks(const SweepIndex& index) {
  const std::string threads = "scale.threads_per_rank";
  bool ranks = false, said = false;
  for (const auto& axis : index.axes) {
    for (const std::string& path : axis) {
      ranks = ranks || path == "scale.ranks";
      said = said || path == threads;
    }
  }
  for (const std::string& word : index.command) said = said || word.starts_with(threads + '=');
  return ranks && !said;
}

ExitCode exit_code_for(const SweepIndex& index) {
  std::optional<int> failed;
  bool invalid = false;
  for (const SweepRun& run : index.runs) {
    if (run.state == SweepRunState::failed && !failed) failed = run.exit_code;
    invalid = invalid || run.exit_code == static_cast<int>(ExitCode::invalid_result);
  }
  const bool any = index.count(SweepRunState::complete) > 0;
  // Ended well without a record, or by a signal: no code of this program's own.
  const bool own = failed && *failed > 0 && *failed <= static_cast<int>(ExitCode::not_comparable);
  if (failed) return any || !own ? ExitCode::run_failed : static_cast<ExitCode>(*failed);
  return invalid ? ExitCode::invalid_result : ExitCode::ok;
}

}  // namespace

ExitCode launch_sweep(const SweepRequest& request, const SweepLimits& limits,
                      const GlobalOptions& options) {
  const SweepIndex wanted = plan_sweep(request);
  const bool named = !limits.out.empty();
  const fs::path folder = named ? fs::path(limits.out) : fs::path("results") / wanted.sweep_id;
  install_stop_signals([] {});
  SweepProgram program;
  program.command = [&](const SweepRun& run, const fs::path& home) {
    return shell_line(wanted, run, home);
  };
  program.deadline_s = limits.deadline_s;
  program.say = [&](const std::string& line) {
    if (options.verbosity != Verbosity::quiet) fmt::print(stderr, "{}\n", line);
  };
  if (!named) program.say("sweep " + folder.string());
  if (threads_follow_ranks(wanted)) {
    program.say(
        "the threads of a rank follow from their number here (cores / ranks), so no scaling is "
        "told: --threads-per-rank 1 keeps them the same");
  }
  const SweepIndex index = run_sweep(folder, wanted, program);
  if (!named) point_latest_at(folder);
  const SweepReport report = report_sweep(folder);
  fmt::print("{}",
             options.json ? sweep_report_json_text(report) : sweep_report_console_text(report));
  return exit_code_for(index);
}

}  // namespace heteroperf
