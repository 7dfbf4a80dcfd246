// Starts the commands that a gate compares and reads their records. A command is any shell line
// that ends in a run or a report of operators; the gate gives it a new folder through
// HETEROPERF_OUT, which stands for --out, or HETEROPERF_OPS_RECORD, for --record of `ops`. What a
// run left is held against its own journal before it counts, since a gate that believes an edited
// record proves nothing.
//
// Exit code 8 means that the run went through but breaks a rule; its record then says which, and
// that is the better message. Every other code that is not 0 is a failure of the command, told with
// its last words on stderr. A run_id that was seen before is refused on either side: it would be
// one measurement that counts twice.
#include "suite/gate/gate_runs.hpp"

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "results/comparison/record_doubt.hpp"
#include "results/text/text_escapes.hpp"
#include "suite/program/exit_code.hpp"
#include "suite/program/signals.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
constexpr int invalid_by_rules = static_cast<int>(ExitCode::invalid_result);

[[noreturn]] void throw_failed(const BegunRun& run, const CommandOutcome& outcome) {
  throw Error(ErrorKind::run_failed,
              {{fmt::format("{} failed with exit code {}", run.name(), outcome.exit_code),
                last_words(run.command.err, outcome), "See " + run.command.err.string()}});
}

void require_sound(RunDigest& digest, const std::string& what) {
  if (const auto doubt = hold_to_journal(digest)) throw doubt->error("the record of " + what);
  if (digest.severity == "invalid") {
    throw Error(ErrorKind::invalid_result,
                {{fmt::format("the run of {} is invalid by the rules", what),
                  fmt::format("{}", fmt::join(digest.reasons, "; ")), ""}});
  }
}

}  // namespace

std::string BegunRun::name() const { return fmt::format("{} `{}`", side, command.line); }
fs::path BegunRun::run_folder() const { return fs::absolute(home / "run"); }

GateRuns::GateRuns(fs::path out, double deadline_s, const GateProgress& progress)
    : out_(std::move(out)), deadline_s_(deadline_s), progress_(progress) {}

fs::path GateRuns::make_home(const std::string& folder) const {
  std::error_code error;
  fs::create_directories(out_ / folder, error);
  if (!error) return out_ / folder;
  throw SystemError("cannot create the folder " + (out_ / folder).string(), error.message(), "",
                    ErrorKind::environment);
}

BegunRun GateRuns::begin(const std::string& side, const std::string& line,
                         const std::string& folder,
                         const std::vector<std::string>& environment) const {
  BegunRun run{side, folder, out_ / folder, {}, nullptr};
  std::vector<std::string> all = environment;
  // `run` takes the one, `ops` the other.
  for (const char* option : {"HETEROPERF_OUT=", "HETEROPERF_OPS_RECORD="}) {
    all.push_back(option + run.run_folder().string());
  }
  run.command = {line,        std::move(all),  run.home / "stdout.txt", run.home / "stderr.txt",
                 deadline_s_, OrphanFate::ends};
  run.process = std::make_unique<StartedCommand>(run.command);
  return run;
}

RunDigest GateRuns::finish(BegunRun& run) {
  const CommandOutcome outcome = run.process->wait();
  check(run, outcome);
  progress_(fmt::format("{}: {} took {:.1f} s", run.folder, run.side, outcome.seconds));
  RunDigest digest = record_of(run, outcome);
  require_new(digest, run);
  return digest;
}

void GateRuns::check(const BegunRun& run, const CommandOutcome& outcome) const {
  if (outcome.end == CommandEnd::interrupted) {
    const char* signal = stop_signal();
    throw Error(ErrorKind::interrupted,
                {{fmt::format("stopped by {}", signal == nullptr ? "the gate" : signal),
                  "the runs so far are in " + out_.string(), ""}});
  }
  if (outcome.end == CommandEnd::timed_out) {
    throw Error(
        ErrorKind::timeout,
        {{fmt::format("{} did not end within {:g} s", run.name(), run.command.deadline_s),
          last_words(run.command.err, outcome), "Give --timeout more seconds, or a shorter run."}});
  }
  // A run that the rules forbid has measured: its record names them.
  if (outcome.exit_code == 0 || outcome.exit_code == invalid_by_rules) return;
  throw_failed(run, outcome);
}

RunDigest GateRuns::record_of(const BegunRun& run, const CommandOutcome& outcome) const {
  const fs::path folder = run.home / "run";
  // The folder may hold a suite; find_runs looks inside.
  RunSet set = fs::exists(folder) ? find_runs({folder}) : RunSet{};
  // Without a record the code alone can tell what went wrong.
  if (set.runs.empty() && outcome.exit_code != 0) throw_failed(run, outcome);
  if (!set.skipped.empty()) {
    throw Error(ErrorKind::environment,
                {{run.name() + " left no usable record", set.skipped.front().reason, ""}});
  }
  if (set.runs.size() != 1) {
    const bool none = set.runs.empty();
    throw Error(ErrorKind::environment,
                {{fmt::format("{} left {} records", run.name(), set.runs.size()),
                  none ? fmt::format("it ended well, but {} has no record.json", folder.string())
                       : "a gate is about one workload",
                  none ? "Leave --out out of the command: the gate sets HETEROPERF_OUT."
                       : "Name one workload after `run`."}});
  }
  require_sound(set.runs.front(), run.name());
  if (outcome.exit_code != 0) throw_failed(run, outcome);
  return set.runs.front();
}

/// One run counted twice has no noise: its copies would prove anything.
void GateRuns::require_new(const RunDigest& digest, const BegunRun& run) {
  const auto [seen, is_new] = seen_.emplace(digest.run_id, run.folder);
  if (is_new) return;
  throw Error(ErrorKind::environment,
              {{fmt::format("{} left the record of an earlier run in {}", run.name(), run.folder),
                fmt::format("run_id {} is that of {}", utf8_text(digest.run_id), seen->second),
                "Let the command run the program each time; to judge stored records, give --base "
                "and --head."}});
}

}  // namespace heteroperf
