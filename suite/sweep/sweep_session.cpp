#include "suite/sweep/sweep_session.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>

#include "metrics/error.hpp"
#include "results/comparison/run_set.hpp"
#include "results/run_folder.hpp"
#include "results/suite_record.hpp"
#include "suite/exit_code.hpp"
#include "suite/run/shell_command.hpp"
#include "suite/run/signals.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Held while a process works on a sweep's folder. The runs inherit it: one that outlives a killed
/// sweep still writes there, and takes cores.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY)) {
    // Where the file system has no locks, two processes in one folder are the user's to avoid.
    if (descriptor_ < 0 || flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
      return;
    close(descriptor_);
    throw UserError("another process works on the sweep in " + folder.string(), "",
                    "Wait for it, or choose another folder with --out.");
  }
  ~FolderLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

void require_same(const SweepIndex& stored, const SweepIndex& wanted, const fs::path& folder) {
  ProblemList problems;
  const std::string why = folder.string() + " holds a sweep that was begun otherwise";
  const std::string way_out = "Give the same options to go on, or another folder with --out.";
  const auto differs = [&](const char* what, const std::string& before, const std::string& now) {
    if (before == now) return;
    problems.add(fmt::format("{} differ: '{}' now, '{}' before", what, now, before), why, way_out);
  };
  const auto points = [](const SweepIndex& index) {
    std::string text;
    for (const SweepPoint& point : index.points) text += point_text(point) + "; ";
    return text;
  };
  const auto number = [](auto value) { return fmt::format("{}", value); };
  differs("the runs' options", fmt::format("{}", fmt::join(stored.command, " ")),
          fmt::format("{}", fmt::join(wanted.command, " ")));
  differs("the points", points(stored), points(wanted));
  differs("the repetitions", number(stored.repeats), number(wanted.repeats));
  differs("the seeds", number(stored.first_seed), number(wanted.first_seed));
  problems.throw_if_any();
}

/// Why a run's folder holds no complete result; empty where it does.
std::string incomplete(const fs::path& folder) {
  if (!fs::exists(folder)) return "it left no folder";
  try {
    const RunSet found = find_runs({folder});
    for (const SkippedEntry& one : found.skipped) return one.reason;
    for (const RunDigest& run : found.runs) {
      if (run.status != "complete") return fmt::format("its record is {}", run.status);
    }
    const auto suite = read_suite_plan(folder);
    const std::size_t expected = suite ? suite->workloads.size() : 1;
    if (found.runs.size() == expected) return "";
    return fmt::format("it left {} of {} records", found.runs.size(), expected);
  } catch (const Error& error) {
    return error.what();
  }
}

class SweepSession {
 public:
  SweepSession(fs::path folder, SweepIndex index, const SweepProgram& program)
      : folder_(std::move(folder)), index_(std::move(index)), program_(program) {}

  /// Sorts what an earlier process left.
  void settle() {
    for (SweepRun& run : index_.runs) {
      const std::string why = incomplete(folder_ / run.folder);
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
      run.reason = fmt::format("exit code {}, {}", outcome.exit_code, last_words(command.err));
    } else {
      run.reason = incomplete(folder_ / run.folder);
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

/// Leaves the sweep's index in the folder, new or as an earlier process left it.
void begin_or_go_on(const fs::path& folder, const SweepIndex& wanted) {
  if (is_sweep_folder(folder)) return require_same(read_sweep(folder), wanted, folder);
  create_run_folder(folder);
  write_sweep(folder, wanted);
}

}  // namespace

SweepIndex run_sweep(const fs::path& folder, const SweepIndex& wanted,
                     const SweepProgram& program) {
  begin_or_go_on(folder, wanted);
  const FolderLock lock(folder);
  SweepSession session(folder, read_sweep(folder), program);
  session.settle();
  session.run_all();
  return session.index();
}

}  // namespace heteroperf
