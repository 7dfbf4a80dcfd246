#include "suite/sweep/sweep_session.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "results/run_folder.hpp"
#include "suite/program/exit_code.hpp"
#include "suite/program/shell_command.hpp"
#include "suite/program/signals.hpp"
#include "suite/sweep/folder_lock.hpp"
#include "suite/sweep/run_outcome.hpp"
#include "suite/sweep/swept_runs.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// What makes the sweep in `folder` another one than the one that is wanted.
class Differences {
 public:
  explicit Differences(const fs::path& folder) : folder_(folder.string()) {}

  void hold(const char* what, const std::string& before, const std::string& now) {
    if (before != now) add(fmt::format("{} differ: '{}' now, '{}' before", what, now, before));
  }
  void add(const std::string& problem) {
    problems_.add(problem, folder_ + " holds a sweep that was begun otherwise",
                  "Give the same options to go on, or another folder with --out.");
  }
  void throw_if_any() const { problems_.throw_if_any(); }

 private:
  std::string folder_;
  ProblemList problems_;
};

std::string command_text(const SweepIndex& index) {
  return fmt::format("{}", fmt::join(index.command, " "));
}

void require_same(const SweepIndex& stored, const SweepIndex& wanted, const fs::path& folder) {
  Differences differences(folder);
  const auto points = [](const SweepIndex& index) {
    std::string text;
    for (const SweepPoint& point : index.points) text += point_text(point) + "; ";
    return text;
  };
  const auto number = [](auto value) { return fmt::format("{}", value); };
  differences.hold("the runs' options", command_text(stored), command_text(wanted));
  differences.hold("the points", points(stored), points(wanted));
  differences.hold("the repetitions", number(stored.repeats), number(wanted.repeats));
  differences.hold("the seeds", number(stored.first_seed), number(wanted.first_seed));
  differences.throw_if_any();
}

/// The run of the sweep that is the same as this one of another index; null where none is.
SweepRun* same_run(SweepIndex& sweep, const SweepIndex& other, const SweepRun& run) {
  const auto found = std::find_if(sweep.runs.begin(), sweep.runs.end(), [&](const SweepRun& mine) {
    return mine.folder == run.folder && mine.seed == run.seed &&
           sweep.points[mine.point] == other.points[run.point];
  });
  return found == sweep.runs.end() ? nullptr : &*found;
}

/// The wanted sweep with what a rebuilt index knows of it: that one has only the runs that were
/// found, each of which has to be one of the wanted. Throws UserError where they are of another.
SweepIndex plan_again(const SweepIndex& rebuilt, SweepIndex wanted, const fs::path& folder) {
  Differences differences(folder);
  differences.hold("the runs' options", command_text(rebuilt), command_text(wanted));
  for (const SweepRun& run : rebuilt.runs) {
    SweepRun* const same = same_run(wanted, rebuilt, run);
    if (same == nullptr) {
      differences.add(fmt::format("the run {} is none of these options", run.folder));
      continue;
    }
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

class SweepSession {
 public:
  SweepSession(fs::path folder, SweepIndex index, const SweepProgram& program)
      : folder_(std::move(folder)), index_(std::move(index)), program_(program) {}

  /// Sorts what an earlier process left.
  void settle() {
    for (SweepRun& run : index_.runs) {
      const std::string why = why_incomplete(folder_ / run.folder);
      if (why.empty()) {
        run.state = SweepRunState::complete;
        run.reason.clear();
        continue;
      }
      if (fs::exists(folder_ / run.folder)) set_aside(run, why);
      run = SweepRun{run.folder, run.point, run.repeat, run.seed, {}, {}, 0, {}};
    }
    write_sweep(folder_, index_);
  }

  void run_all() {
    for (SweepRun& run : index_.runs) {
      if (run.state == SweepRunState::waiting) run_one(run);
    }
  }

  const SweepIndex& index() const { return index_; }

 private:
  void set_aside(const SweepRun& run, const std::string& why) {
    fs::create_directories(folder_ / "aside");
    fs::path target;
    for (int i = 1; target.empty() || fs::exists(target); ++i) {
      target = folder_ / "aside" / fmt::format("{}-{}", run.folder, i);
    }
    fs::rename(folder_ / run.folder, target);
    index_.set_aside.push_back({fs::relative(target, folder_).string(), to_string(run.state), why});
    program_.say(fmt::format("{} was {} ({}): it is in {} now", run.folder, to_string(run.state),
                             why, target.string()));
  }

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
          "The same command with --out " + folder_.string() + " goes on."}});
  }

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

void refuse_lost_index(const fs::path& folder) {
  const std::vector<SweptRun> runs = swept_runs(folder);
  const bool any = std::any_of(runs.begin(), runs.end(), [](const SweptRun& run) {
    return run.words && run.foreign.empty();
  });
  if (!any) return;
  throw UserError("the sweep in " + folder.string() + " has no sweep.json", "its runs are there",
                  fmt::format("`heteroperf recover {}` makes it again from them; then give the "
                              "same options to go on.",
                              folder.string()));
}

/// Leaves the sweep's index in the folder, new or as an earlier process left it.
void begin_or_go_on(const fs::path& folder, const SweepIndex& wanted) {
  if (is_sweep_folder(folder)) {
    const SweepIndex stored = read_sweep(folder);
    if (!stored.rebuilt()) require_same(stored, wanted, folder);
    return;
  }
  refuse_lost_index(folder);
  create_run_folder(folder);
  write_sweep(folder, wanted);
}

SweepIndex index_to_run(const fs::path& folder, const SweepIndex& wanted) {
  SweepIndex stored = read_sweep(folder);
  return stored.rebuilt() ? plan_again(stored, wanted, folder) : stored;
}

}  // namespace

SweepIndex run_sweep(const fs::path& folder, const SweepIndex& wanted,
                     const SweepProgram& program) {
  begin_or_go_on(folder, wanted);
  const FolderLock lock(folder, "Wait for it, or choose another folder with --out.");
  SweepSession session(folder, index_to_run(folder, wanted), program);
  session.settle();
  session.run_all();
  return session.index();
}

}  // namespace heteroperf
