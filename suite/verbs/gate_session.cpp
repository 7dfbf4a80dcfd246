#include "suite/verbs/gate_session.hpp"

#include <fmt/format.h>

#include <map>

#include "metrics/error.hpp"
#include "results/gate/gate_rows.hpp"
#include "results/text_escapes.hpp"
#include "suite/exit_code.hpp"
#include "suite/run/shell_command.hpp"
#include "suite/run/signals.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
constexpr int invalid_by_rules = static_cast<int>(ExitCode::invalid_result);

/// Starts runs, one at a time.
class RunStarter {
 public:
  RunStarter(const GateCommands& commands, const GateProgress& progress)
      : commands_(commands), progress_(progress) {}

  /// Runs `line` into `folder` below the gate's own and reads its record.
  RunDigest run(const std::string& side, const std::string& line, const std::string& folder) {
    const fs::path home = commands_.out / folder;
    create(home);
    ShellCommand command{line,
                         {"HETEROPERF_OUT=" + fs::absolute(home / "run").string()},
                         home / "stdout.txt",
                         home / "stderr.txt",
                         commands_.deadline_s,
                         OrphanFate::ends};
    const CommandOutcome outcome = run_shell_command(command);
    check(outcome, side, command);
    progress_(fmt::format("{}: {} took {:.1f} s", folder, side, outcome.seconds));
    RunDigest found = record_of(home, side, command, outcome);
    require_new(found, fmt::format("{} `{}`", side, line), folder);
    return found;
  }

 private:
  static void create(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (!error) return;
    throw SystemError("cannot create the folder " + folder.string(), error.message(), "",
                      ErrorKind::environment);
  }

  void check(const CommandOutcome& outcome, const std::string& side,
             const ShellCommand& command) const {
    const std::string what = fmt::format("{} `{}`", side, command.line);
    if (outcome.end == CommandEnd::interrupted) {
      throw Error(ErrorKind::interrupted,
                  {{fmt::format("stopped by {}", stop_signal()),
                    "the runs so far are in " + commands_.out.string(), ""}});
    }
    if (outcome.end == CommandEnd::timed_out) {
      throw Error(
          ErrorKind::timeout,
          {{fmt::format("{} did not end within {:g} s", what, command.deadline_s),
            last_words(command.err, outcome), "Give --timeout more seconds, or a shorter run."}});
    }
    // A run that the rules forbid has measured: its record names them.
    if (outcome.exit_code == 0 || outcome.exit_code == invalid_by_rules) return;
    throw_failed(what, command, outcome);
  }

  [[noreturn]] static void throw_failed(const std::string& what, const ShellCommand& command,
                                        const CommandOutcome& outcome) {
    throw Error(ErrorKind::run_failed,
                {{fmt::format("{} failed with exit code {}", what, outcome.exit_code),
                  last_words(command.err, outcome), "See " + command.err.string()}});
  }

  static RunDigest record_of(const fs::path& home, const std::string& side,
                             const ShellCommand& command, const CommandOutcome& outcome) {
    const RunSet found = fs::exists(home / "run") ? find_runs({home / "run"}) : RunSet{};
    const std::string what = fmt::format("{} `{}`", side, command.line);
    if (found.runs.empty() && outcome.exit_code != 0) throw_failed(what, command, outcome);
    if (!found.skipped.empty()) {
      throw Error(ErrorKind::environment,
                  {{what + " left no usable record", found.skipped.front().reason, ""}});
    }
    if (found.runs.size() != 1) {
      const bool none = found.runs.empty();
      throw Error(
          ErrorKind::environment,
          {{fmt::format("{} left {} records", what, found.runs.size()),
            none ? fmt::format("it ended well, but {} has no record.json", (home / "run").string())
                 : "a gate is about one workload",
            none ? "Leave --out out of the command: the gate sets HETEROPERF_OUT."
                 : "Name one workload after `run`."}});
    }
    require_sound(found.runs.front(), what);
    if (outcome.exit_code != 0) throw_failed(what, command, outcome);
    return found.runs.front();
  }

  static void require_sound(const RunDigest& run, const std::string& what) {
    if (const auto wrong = contradiction(run)) {
      throw Error(ErrorKind::verification, {{"the record of " + what + " is not what was measured",
                                             *wrong, "`heteroperf verify` shows all of it."}});
    }
    if (run.severity == "invalid") {
      throw Error(ErrorKind::invalid_result,
                  {{fmt::format("the run of {} is invalid by the rules", what),
                    fmt::format("{}", fmt::join(run.reasons, "; ")), ""}});
    }
  }

  /// One run counted twice has no noise: its copies would prove anything.
  void require_new(const RunDigest& run, const std::string& what, const std::string& folder) {
    const auto [seen, is_new] = seen_.emplace(run.run_id, folder);
    if (is_new) return;
    throw Error(
        ErrorKind::environment,
        {{fmt::format("{} left the record of an earlier run in {}", what, folder),
          fmt::format("run_id {} is that of {}", utf8_text(run.run_id), seen->second),
          "Let the command run the program each time; to judge stored records, give --base and "
          "--head."}});
  }

  const GateCommands& commands_;
  const GateProgress& progress_;
  std::map<std::string, std::string> seen_;  ///< folder by run_id, of both sides
};

/// The runs of one gate so far, and what they say.
class GateSession {
 public:
  GateSession(const GateCommands& commands, const GateRules& rules, const GateProgress& progress)
      : commands_(commands), rules_(rules), progress_(progress), starter_(commands, progress) {
    runs_.order = RunOrder::blocks;
    rules_.looks = GateLooks::after_each_block;
  }

  GateReport settled() {
    warm_up();
    while (true) {
      add_block();
      GateReport report = judge_gate(runs_, rules_);
      if (blocks_ < rules_.statistics.fewest_blocks && !is_certain(report)) continue;
      progress_(gate_headline(report));
      const bool open = report.verdict == GateVerdict::inconclusive;
      if (!open || blocks_ >= rules_.statistics.most_blocks) return report;
    }
  }

  /// What the whole blocks before it say.
  GateReport ended_by(const Error& error) const {
    GateReport report;
    if (blocks_ > 0) {
      RunPairs whole = runs_;
      whole.base.runs.resize(2 * blocks_);
      whole.head.runs.resize(2 * blocks_);
      try {
        report = judge_gate(whole, rules_);
      } catch (const Error&) {
        report = {};  // nothing in these runs can be judged
      }
    }
    report.order = RunOrder::blocks;
    report.blocks = blocks_;
    report.more_blocks.reset();
    report.why_inconclusive.clear();
    report.error = error;
    return report;
  }

 private:
  RunDigest base(const std::string& folder) {
    return starter_.run("--base-cmd", commands_.base, folder);
  }
  RunDigest head(const std::string& folder) {
    return starter_.run("--head-cmd", commands_.head, folder);
  }

  void warm_up() {
    warm_up_.base.runs = {base("warmup-base")};
    warm_up_.head.runs = {head("warmup-head")};
    require_comparable(warm_up_.base, warm_up_.head, "--base-cmd", "--head-cmd");
  }

  /// Whether the verdict needs no further blocks; then the report says why.
  bool is_certain(GateReport& report) const {
    const auto worse = certain_regressions(report, runs_, warm_up_);
    if (worse.empty()) return false;
    report.notes.push_back(fmt::format(
        "stopped after {} block{}: {} worse in every run of the head and exact; metrics with noise "
        "were not waited for",
        blocks_, blocks_ == 1 ? "" : "s",
        fmt::format("{} {}", fmt::join(worse, ", "), worse.size() == 1 ? "is" : "are")));
    return true;
  }

  void add_block() {
    const std::string folder = fmt::format("block-{:02}/", blocks_ + 1);
    runs_.base.runs.push_back(base(folder + "1-base"));
    runs_.head.runs.push_back(head(folder + "2-head"));
    runs_.head.runs.push_back(head(folder + "3-head"));
    runs_.base.runs.push_back(base(folder + "4-base"));
    require_comparable(runs_.base, runs_.head, "--base-cmd", "--head-cmd");
    ++blocks_;
  }

  const GateCommands& commands_;
  GateRules rules_;
  const GateProgress& progress_;
  RunStarter starter_;
  RunPairs runs_, warm_up_;
  std::size_t blocks_ = 0;  ///< whole ones
};

}  // namespace

GateReport run_gate(const GateCommands& commands, const GateRules& rules,
                    const GateProgress& progress) {
  GateSession session(commands, rules, progress);
  try {
    return session.settled();
  } catch (const Error& error) {
    return session.ended_by(error);
  }
}

}  // namespace heteroperf
