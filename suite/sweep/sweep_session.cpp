// The runs of a sweep, one process after another. sweep.json says what is to run and how far it is;
// it is written before the first run and again before and after each, so that a sweep that is
// killed goes on where it was. A run reads its own entry there when it begins and writes its place
// into the first line of its journal (results/journal/events.hpp, SweepPlace).
#include "suite/sweep/sweep_session.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "results/record/run_folder.hpp"
#include "results/scaling/sweep_report.hpp"
#include "runners/cluster/shared_module.hpp"
#include "suite/config/reproduce.hpp"
#include "suite/program/exit_code.hpp"
#include "suite/program/shell_command.hpp"
#include "suite/program/signals.hpp"
#include "suite/run/launch.hpp"
#include "suite/sweep/sweep_folder.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Adds what makes the sweep in `folder` another one than the one that is wanted.
void add_difference(const fs::path& folder, const std::string& problem, ProblemList& problems) {
  problems.add(problem, folder.string() + " holds a sweep that was begun otherwise",
               "Give the same options to go on, or another folder with --out.");
}

/// A sweep's own wishes in words that are compared; the options of its runs come first.
std::vector<std::pair<const char*, std::string>> facts_of(const SweepIndex& index) {
  std::string points;
  for (const SweepPoint& point : index.points) points += point_text(point) + "; ";
  return {{"the runs' options", fmt::format("{}", fmt::join(index.command, " "))},
          {"the points", points},
          {"the repetitions", std::to_string(index.repeats)},
          {"the seeds", std::to_string(index.first_seed)}};
}

/// A sweep goes on only with the options that began it: other ones would fill one table with
/// numbers of two plans. Adds the differences of the first `facts` of facts_of().
void hold(const SweepIndex& stored, const SweepIndex& wanted, std::size_t facts,
          const fs::path& folder, ProblemList& problems) {
  const auto before = facts_of(stored), now = facts_of(wanted);
  for (std::size_t i = 0; i < facts; ++i) {
    const auto& [what, words] = now[i];
    if (before[i].second == words) continue;
    add_difference(folder,
                   fmt::format("{} differ: '{}' now, '{}' before", what, words, before[i].second),
                   problems);
  }
}

/// Finds the wanted run that is the same as a run of the rebuilt index; null where there is none.
SweepRun* same_run(SweepIndex& wanted, const SweepIndex& rebuilt, const SweepRun& run) {
  const auto same = std::find_if(wanted.runs.begin(), wanted.runs.end(), [&](const SweepRun& w) {
    return w.folder == run.folder && w.seed == run.seed &&
           wanted.points[w.point] == rebuilt.points[run.point];
  });
  return same == wanted.runs.end() ? nullptr : &*same;
}

/// Puts what a rebuilt index knows into the wanted sweep. The rebuilt one has only the runs that
/// named their places, each of which has to be one of the wanted; the others lose their numbers.
/// Throws UserError where a run is none of the wanted.
SweepIndex plan_again(const SweepIndex& rebuilt, SweepIndex wanted, const fs::path& folder) {
  ProblemList differences;
  hold(rebuilt, wanted, 1, folder, differences);
  for (SweepRun& run : wanted.runs) run.number = 0;
  for (const SweepRun& run : rebuilt.runs) {
    SweepRun* const same = same_run(wanted, rebuilt, run);
    if (same == nullptr) {
      add_difference(folder, fmt::format("the run {} is none of these options", run.folder),
                     differences);
      continue;
    }
    same->number = run.number;
    same->state = run.state;
    same->exit_code = run.exit_code;
    same->reason = run.reason;
  }
  differences.throw_if_any();
  wanted.sweep_id = rebuilt.sweep_id;
  wanted.created_utc = rebuilt.created_utc;
  wanted.set_aside = rebuilt.set_aside;
  return wanted;
}

/// Works through the runs of a sweep in its folder, whose lock the caller holds.
class SweepSession {
 public:
  SweepSession(fs::path folder, SweepIndex index, const SweepProgram& program)
      : folder_(std::move(folder)), index_(std::move(index)), program_(program) {}

  /// Runs what settle() left to do, in the order of the index. A failure stops nothing.
  SweepIndex run() {
    settle();
    for (SweepRun& run : index_.runs) {
      if (run.state == SweepRunState::waiting) run_one(run);
    }
    return std::move(index_);
  }

 private:
  /// Keeps the complete runs that an earlier process left and moves what others left out of the
  /// way. A run of a sweep that an older program began has no number until it is run again.
  void settle() {
    for (std::size_t i = 0; i < index_.runs.size(); ++i) {
      SweepRun& run = index_.runs[i];
      const std::string why = why_incomplete(folder_ / run.folder);
      if (why.empty()) {
        run.state = SweepRunState::complete;
        run.reason.clear();
        continue;
      }
      if (fs::exists(folder_ / run.folder)) set_aside(run, why);
      run = SweepRun{run.folder, run.point, run.repeat, run.seed, {}, {}, 0, {}, i + 1};
    }
    write_sweep(folder_, index_);
  }

  /// Moves a run's folder to aside/, because the run that is begun anew needs an empty one. Nothing
  /// that was measured is deleted.
  void set_aside(const SweepRun& run, const std::string& why) {
    const std::string name = free_name_aside(folder_, run.folder);
    fs::rename(folder_ / run.folder, folder_ / name);
    index_.set_aside.push_back({name, to_string(run.state), why});
    program_.say(fmt::format("{} was {} ({}): it is in {} now", run.folder, to_string(run.state),
                             why, (folder_ / name).string()));
  }

  /// Runs one process to its end. The index says `running` meanwhile, so that whoever reads it
  /// after a kill knows what was going on. Throws Error{interrupted} after a signal.
  void run_one(SweepRun& run) {
    run.state = SweepRunState::running;
    write_sweep(folder_, index_);
    const fs::path logs = folder_ / "logs", home = folder_ / run.folder;
    fs::create_directories(logs);
    const ShellCommand command{program_.command(run, home),
                               {},
                               logs / (run.folder + ".out"),
                               logs / (run.folder + ".err"),
                               program_.deadline_s};
    const CommandOutcome outcome = run_shell_command(command);
    judge(outcome, command, run);
    write_sweep(folder_, index_);
    tell(run);
    if (run.state != SweepRunState::interrupted) return;
    throw Error(
        ErrorKind::interrupted,
        {{fmt::format("stopped by {}", stop_signal()),
          fmt::format("{} of {} runs are complete in {}", index_.count(SweepRunState::complete),
                      index_.runs.size(), folder_.string()),
          program_.way_on.empty() ? "The same command with --out " + folder_.string() + " goes on."
                                  : program_.way_on}});
  }

  /// Sets the run's state: a process that says that it measured must have left complete records.
  void judge(const CommandOutcome& outcome, const ShellCommand& command, SweepRun& run) const {
    run.seconds = outcome.seconds;
    run.exit_code = outcome.exit_code;
    const bool measured = outcome.exit_code == static_cast<int>(ExitCode::ok) ||
                          outcome.exit_code == static_cast<int>(ExitCode::invalid_result);
    if (outcome.end == CommandEnd::interrupted) {
      run.state = SweepRunState::interrupted;
      run.reason = "the sweep was stopped";
    } else if (outcome.end == CommandEnd::timed_out) {
      run.state = SweepRunState::failed;
      run.exit_code = static_cast<int>(ExitCode::timeout);
      run.reason = fmt::format("it did not end within {:g} s", program_.deadline_s);
    } else if (!measured) {
      run.state = SweepRunState::failed;
      run.reason =
          fmt::format("exit code {}, {}", outcome.exit_code, last_words(command.err, outcome));
    } else {
      run.reason = why_incomplete(folder_ / run.folder);
      run.state = run.reason.empty() ? SweepRunState::complete : SweepRunState::failed;
    }
  }

  /// Says how the run ended and how long the rest will take if its runs take as long as these did.
  void tell(const SweepRun& run) {
    seconds_ += run.seconds;
    ++ran_;
    const std::size_t left = index_.count(SweepRunState::waiting);
    program_.say(fmt::format(
        "{} of {}: {} {} after {:.1f} s{}{}", index_.runs.size() - left, index_.runs.size(),
        run.folder, to_string(run.state), run.seconds,
        run.reason.empty() ? "" : " (" + run.reason + ")",
        left == 0 ? ""
                  : fmt::format(", about {:.0f} s to go",
                                seconds_ / static_cast<double>(ran_) * static_cast<double>(left))));
  }

  fs::path folder_;
  SweepIndex index_;
  const SweepProgram& program_;
  double seconds_ = 0;
  std::size_t ran_ = 0;
};

/// Without its index a sweep would begin anew beside its own runs. Throws UserError where the
/// folder has such runs.
void refuse_lost_index(const fs::path& folder) {
  const std::vector<SweptRun> runs = swept_runs(folder);
  const bool any = std::any_of(runs.begin(), runs.end(),
                               [](const SweptRun& run) { return run.place.has_value(); });
  if (!any) return;
  throw UserError("the sweep in " + folder.string() + " has no sweep.json", "its runs are there",
                  fmt::format("`heteroperf recover {}` makes it again from them; then give the "
                              "same options to go on.",
                              folder.string()));
}

/// Makes sure that the sweep's index is in the folder, new or as an earlier process left it.
void begin_or_go_on(const fs::path& folder, const SweepIndex& wanted) {
  if (is_sweep_folder(folder)) {
    const SweepIndex stored = read_sweep(folder);
    ProblemList differences;
    if (!stored.rebuilt()) hold(stored, wanted, 4, folder, differences);
    return differences.throw_if_any();
  }
  refuse_lost_index(folder);
  create_run_folder(folder);
  write_sweep(folder, wanted);
}

/// Takes the sweep's own options out of the environment, where its runs would read them.
constexpr const char* without_sweep_options =
    "unset HETEROPERF_REPEAT HETEROPERF_SWEEP HETEROPERF_TUNE HETEROPERF_RUN_LIMIT HETEROPERF_JSON "
    "HETEROPERF_OUT; ";

/// The command of one run for /bin/sh. Two variables go with it: the process that the run ends
/// with, and its number, by which it finds its place in sweep.json.
std::string shell_line(const SweepIndex& index, const SweepRun& run, const fs::path& folder) {
  std::string line =
      without_sweep_options +
      fmt::format("{}={} {}={} exec ", parent_variable, getpid(), sweep_run_variable, run.number) +
      shell_quoted(program_path().string());
  for (const std::string& word : sweep_run_words(index, run, folder.string())) {
    line += ' ' + shell_quoted(word);
  }
  return line;
}

/// True where points that differ in ranks differ in the threads of a rank as well, because nobody
/// says these.
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

/// A sweep with a complete run ends with 6 where another failed; without any, with the code that
/// the first failure had.
ExitCode exit_code_for(const SweepIndex& index) {
  std::optional<int> failed;
  bool invalid = false;
  for (const SweepRun& run : index.runs) {
    if (run.state == SweepRunState::failed && !failed) failed = run.exit_code;
    invalid = invalid || run.exit_code == static_cast<int>(ExitCode::invalid_result);
  }
  const bool any = index.count(SweepRunState::complete) > 0;
  // A run that ended well without a record, or by a signal, has no code of this program's own.
  const bool known = failed && *failed > 0 && *failed <= static_cast<int>(ExitCode::not_comparable);
  if (failed) return any || !known ? ExitCode::run_failed : static_cast<ExitCode>(*failed);
  return invalid ? ExitCode::invalid_result : ExitCode::ok;
}

}  // namespace

SweepIndex run_sweep(const fs::path& folder, const SweepIndex& wanted,
                     const SweepProgram& program) {
  begin_or_go_on(folder, wanted);
  const FolderLock lock(folder, "Wait for it, or choose another folder with --out.");
  SweepIndex index = read_sweep(folder);
  if (index.rebuilt()) index = plan_again(index, wanted, folder);
  return SweepSession(folder, std::move(index), program).run();
}

SweepProgram this_program(const SweepIndex& index, const SweepRequest& request,
                          const GlobalOptions& options) {
  SweepProgram program;
  program.command = [index](const SweepRun& run, const fs::path& home) {
    return shell_line(index, run, home);
  };
  program.deadline_s = request.deadline_s;
  program.say = [verbosity = options.verbosity](const std::string& line) {
    if (verbosity != Verbosity::quiet) fmt::print(stderr, "{}\n", line);
  };
  return program;
}

ExitCode launch_sweep(const SweepRequest& request, const GlobalOptions& options) {
  const SweepIndex wanted = plan_sweep(request);
  const bool named = !request.out.empty();
  const fs::path folder = named ? fs::path(request.out) : fs::path("results") / wanted.sweep_id;
  install_stop_signals([] {});
  const SweepProgram program = this_program(wanted, request, options);
  if (!named) program.say("sweep " + folder.string());
  if (threads_follow_ranks(wanted)) {
    program.say(
        "the threads of a rank follow from their number here (cores / ranks), so no scaling is "
        "told: --threads-per-rank 1 keeps them the same");
  }
  const SweepIndex index = run_sweep(folder, wanted, program);
  if (!named) point_latest_at(folder);
  fmt::print("{}", sweep_report_text(report_sweep(folder), form_of(options), style_of(options)));
  return exit_code_for(index);
}

}  // namespace heteroperf
