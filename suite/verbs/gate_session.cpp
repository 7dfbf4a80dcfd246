#include "suite/verbs/gate_session.hpp"

#include <fmt/format.h>

#include "metrics/error.hpp"
#include "results/gate/gate_rows.hpp"
#include "suite/run/shell_command.hpp"
#include "suite/run/signals.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class GateSession {
 public:
  GateSession(const GateCommands& commands, const GateProgress& progress)
      : commands_(commands), progress_(progress) {}

  /// Runs `line` into `folder` below the gate's own and reads its record.
  RunDigest run(const std::string& side, const std::string& line, const std::string& folder) {
    const fs::path home = commands_.out / folder;
    fs::create_directories(home);
    ShellCommand command{line,
                         {"HETEROPERF_OUT=" + fs::absolute(home / "run").string()},
                         home / "stdout.txt",
                         home / "stderr.txt",
                         commands_.deadline_s};
    const CommandOutcome outcome = run_shell_command(command);
    check(outcome, side, command);
    progress_(fmt::format("{}: {} took {:.1f} s", folder, side, outcome.seconds));
    return record_of(home, side, line);
  }

 private:
  void check(const CommandOutcome& outcome, const std::string& side,
             const ShellCommand& command) const {
    const std::string what = fmt::format("{} `{}`", side, command.line);
    if (outcome.end == CommandEnd::interrupted) {
      throw Error(ErrorKind::interrupted,
                  {{fmt::format("stopped by {}", stop_signal()),
                    "the runs so far are in " + commands_.out.string(), ""}});
    }
    if (outcome.end == CommandEnd::timed_out) {
      throw Error(ErrorKind::timeout,
                  {{fmt::format("{} did not end within {:g} s", what, command.deadline_s),
                    last_words(command.err), "Give --timeout more seconds, or a shorter run."}});
    }
    if (outcome.exit_code == 0) return;
    throw Error(ErrorKind::run_failed,
                {{fmt::format("{} failed with exit code {}", what, outcome.exit_code),
                  last_words(command.err), "See " + command.err.string()}});
  }

  static RunDigest record_of(const fs::path& home, const std::string& side,
                             const std::string& line) {
    const RunSet found = fs::exists(home / "run") ? find_runs({home / "run"}) : RunSet{};
    const std::string what = fmt::format("{} `{}`", side, line);
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
    const RunDigest& run = found.runs.front();
    if (run.severity == "invalid") {
      throw Error(ErrorKind::invalid_result,
                  {{fmt::format("the run of {} is invalid by the rules", what),
                    fmt::format("{}", fmt::join(run.reasons, "; ")), ""}});
    }
    return run;
  }

  const GateCommands& commands_;
  const GateProgress& progress_;
};

}  // namespace

GateReport run_gate(const GateCommands& commands, GateRules rules, const GateProgress& progress) {
  GateSession session(commands, progress);
  const auto base = [&](const std::string& folder) {
    return session.run("--base-cmd", commands.base, folder);
  };
  const auto head = [&](const std::string& folder) {
    return session.run("--head-cmd", commands.head, folder);
  };
  RunPairs runs{{{base("warmup-base")}, {}, 0}, {{head("warmup-head")}, {}, 0}, RunOrder::blocks};
  require_comparable(runs.base, runs.head, "--base-cmd", "--head-cmd");
  runs.base.runs.clear();
  runs.head.runs.clear();
  rules.looks = GateLooks::after_each_block;
  const SequentialRule& rule = rules.statistics;
  for (std::size_t block = 1;; ++block) {
    const std::string folder = fmt::format("block-{:02}/", block);
    runs.base.runs.push_back(base(folder + "1-base"));
    runs.head.runs.push_back(head(folder + "2-head"));
    runs.head.runs.push_back(head(folder + "3-head"));
    runs.base.runs.push_back(base(folder + "4-base"));
    require_comparable(runs.base, runs.head, "--base-cmd", "--head-cmd");
    if (block < std::min(rule.fewest_blocks, rule.most_blocks)) continue;
    GateReport report = judge_gate(runs, rules);
    progress(gate_headline(report));
    if (report.verdict != GateVerdict::inconclusive || block >= rule.most_blocks) return report;
  }
}

}  // namespace heteroperf
