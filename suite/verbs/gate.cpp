// The verb `gate`: answers whether the head is slower than the base, for a CI job. Exit code 0
// means no regression beyond the threshold, 3 a regression, 4 that noise hides the answer; any
// other code means that the gate itself did not come to an end. It judges stored records (--base,
// --head) or runs commands by itself, in blocks or in lockstep (gate/gate_session.cpp).
//
// A gate always leaves its reports: JUnit, Markdown and gate.json are written even where an error
// ended it, and tell that error. The threshold in percent becomes a *margin* on the logarithm of
// the times, where a loss of x percent is -log(1 - x), so that ratios of runs add up.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "metrics/base/text_file.hpp"
#include "results/comparison/baseline_store.hpp"
#include "results/gate/gate_report.hpp"
#include "results/record/run_folder.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "suite/config/reproduce.hpp"
#include "suite/gate/gate_session.hpp"
#include "suite/program/signals.hpp"
#include "suite/program/verb.hpp"
#include "suite/verbs/output_file.hpp"
#include "suite/watch/host_load.hpp"

namespace heteroperf {
namespace {

constexpr double percent = 0.01;
constexpr double usual_load = 0.5, usual_patience_s = 30;
constexpr double longest_wait_s = 30 * 86400.0;
constexpr std::int64_t most_blocks_allowed = 1000;

/// Turns the verdict into the exit code that a CI job reads.
ExitCode exit_code_for(GateVerdict verdict) {
  if (verdict == GateVerdict::regression) return ExitCode::regression;
  return verdict == GateVerdict::inconclusive ? ExitCode::inconclusive : ExitCode::ok;
}

/// Cores that were busy over the next second, whoever used them; nothing where the system does not
/// say.
std::optional<double> busy_cores() {
  const Stopwatch stopwatch;
  const CpuSet cpus = usable_cores().cpus;
  const auto before = read_host_counters(cpus).busy_s;
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto after = read_host_counters(cpus).busy_s;
  if (!before || !after) return std::nullopt;
  return (*after - *before) / stopwatch.elapsed_s();
}

/// Waits until at most so many cores are busy, a second at a time, `patience_s` at the longest, and
/// returns what it saw last. A stop signal ends the wait too.
std::optional<double> wait_for_quiet(double cores, double patience_s) {
  for (double waited_s = 1;; ++waited_s) {
    const auto busy = busy_cores();
    if (!busy || *busy <= cores || waited_s >= patience_s || stop_signal() != nullptr) return busy;
  }
}

class GateVerb : public Verb {
 public:
  GateVerb()
      : Verb({"gate",
              "is the head slower than the base? exit code 0 no, 3 yes, 4 cannot be told",
              {"gate --base-cmd './old run llm' --head-cmd './new run llm' --lockstep --junit "
               "out.xml",
               "gate --base main --head results/latest"}}) {}

  void declare(CLI::App& command) override {
    add_typed_option(command, "--base-cmd", commands_.base, "COMMAND",
                     "command that runs the base: a `run`, or `ops`");
    add_typed_option(command, "--head-cmd", commands_.head, "COMMAND",
                     "command that runs the head");
    add_typed_option(
        command, "--base", base_, "RUNS",
        "run folders, records of ops, folders of them, or the name of a saved baseline");
    add_typed_option(command, "--head", head_, "RUNS", "the same of the head");
    command.add_flag(
        "--lockstep", lockstep_,
        "both commands alive at once, by turns of some steps: sees smaller changes on a "
        "machine with load; blocks where a program cannot");
    add_typed_option(command, "--pair-seconds", commands_.pair_s, "S",
                     "how long a pair of processes in lockstep moves by turns");
    add_typed_option(command, "--turn-timeout", commands_.turn_timeout_s, "S",
                     "seconds that a turn in lockstep may take");
    add_typed_option(command, "--threshold", threshold_percent_, "PCT",
                     "smallest loss that counts, in percent");
    add_typed_option(command, "--alpha", rules_.statistics.alpha, "P", "chance of a false alarm");
    command.add_option(
        "--max-blocks", most_blocks_,
        "blocks of base, head, head, base (5 to 1000), or pairs in lockstep (6 to 1000), to "
        "run at most");
    add_typed_option(command, "--ignore", rules_.ignored, "METRIC", "metrics that are not gated");
    add_typed_option(command, "--junit", junit_, "FILE", "write JUnit XML");
    add_typed_option(command, "--markdown", markdown_, "FILE", "write a summary for a CI step");
    add_typed_option(command, "--out", out_, "DIR",
                     "new folder for the runs of --base-cmd and --head-cmd");
    add_typed_option(command, "--timeout", commands_.deadline_s, "S",
                     "seconds that one run may take");
    add_typed_option(command, "--max-load", max_load_, "SHARE",
                     "share of the cores that others may use before it begins; 1: any load");
    add_typed_option(command, "--settle", settle_s_, "S", "seconds to wait for that");
  }

  ExitCode run(const GlobalOptions& options) override {
    check_options();
    // Files that cannot be written are refused before hours of runs.
    const OutputFile junit(junit_, "--junit"), markdown(markdown_, "--markdown");
    rules_.statistics.margin = -std::log1p(-threshold_percent_ * percent);
    rules_.statistics.most_blocks = most_blocks_;
    const GateReport report = gate(options);
    keep(report, [&] { junit.save(gate_junit_text(report)); });
    keep(report, [&] { markdown.save(gate_markdown_text(report)); });
    if (!commands_.out.empty()) {
      keep(report, [&] {
        write_file_atomically(commands_.out / "gate.json", json_text(gate_document(report)));
      });
    }
    // The reports are written; now the error ends the program as any other does.
    if (report.error) throw Error(*report.error);
    print(gate_document(report), options);
    return exit_code_for(report.verdict);
  }

 private:
  /// A gate runs for hours, so every option is checked before it begins.
  void check_options() const {
    ProblemList problems;
    const bool commands = !commands_.base.empty() || !commands_.head.empty();
    const bool records = !base_.empty() || !head_.empty();
    // Either both are given or none is.
    if (commands == records) {
      problems.add("a gate needs a base and a head", "either as records or as commands",
                   "Give --base and --head, or --base-cmd and --head-cmd.");
    } else if (commands && (commands_.base.empty() || commands_.head.empty())) {
      problems.add("one of --base-cmd and --head-cmd is missing");
    } else if (records && (base_.empty() || head_.empty())) {
      problems.add("one of --base and --head is missing");
    }
    const auto range = [&](bool ok, const char* option, double value, const char* why) {
      if (!ok) problems.add(fmt::format("{} {:g} is out of range", option, value), why);
    };
    const SequentialRule& rule = rules_.statistics;
    const auto fewest_blocks =
        static_cast<std::int64_t>(lockstep_ ? fewest_lockstep_pairs : rule.fewest_blocks);
    range(threshold_percent_ > 0 && threshold_percent_ < 100, "--threshold", threshold_percent_,
          "above 0 and below 100 percent");
    range(rule.alpha > 0 && rule.alpha < 0.5, "--alpha", rule.alpha, "above 0 and below 0.5");
    range(max_load_ > 0 && max_load_ <= 1, "--max-load", max_load_, "above 0, at most 1");
    range(settle_s_ >= 0, "--settle", settle_s_, "0 seconds or more");
    const auto seconds = [&](const char* option, double value) {
      range(value > 0 && value <= longest_wait_s, option, value,
            "above 0 seconds, at most 30 days");
    };
    seconds("--timeout", commands_.deadline_s);
    seconds("--pair-seconds", commands_.pair_s);
    seconds("--turn-timeout", commands_.turn_timeout_s);
    if (lockstep_ && records) {
      problems.add("--lockstep needs commands", "records are of runs that are over",
                   "Give --base-cmd and --head-cmd.");
    }
    if (most_blocks_ < fewest_blocks || most_blocks_ > most_blocks_allowed) {
      problems.add(fmt::format("--max-blocks {} is out of range", most_blocks_),
                   fmt::format("{} to {}: fewer {} cannot tell noise from a change", fewest_blocks,
                               most_blocks_allowed, lockstep_ ? "pairs" : "blocks"));
    }
    for (const std::string& name : rules_.ignored) add_unless_metric(name, problems);
    problems.throw_if_any();
  }

  static void add_unless_metric(const std::string& name, ProblemList& problems) {
    try {
      compared_metric(name);
    } catch (const UserError& error) {
      const Problem& unknown = error.problems().front();
      problems.add("--ignore: " + unknown.problem, unknown.why, unknown.suggestion);
    }
  }

  /// Makes the report; never without one, so that whoever reads the files learns what ended the
  /// gate.
  GateReport gate(const GlobalOptions& options) {
    GateReport report;
    try {
      report = commands_.base.empty() ? gate_records() : gate_commands(options);
    } catch (const Error& error) {
      report.error = error;
      // Whatever happens, the reports must tell it.
    } catch (const std::exception& error) {
      report.error = Error(ErrorKind::internal, unexpected_failure(error).problems());
    }
    report.threshold = threshold_percent_ * percent;
    if (!commands_.base.empty()) report.reproduce = reproduce();
    return report;
  }

  static std::vector<std::filesystem::path> places_of(const std::vector<std::string>& names) {
    std::vector<std::filesystem::path> places;
    // A name that is no path may be that of a saved baseline.
    for (const std::string& name : names) places.push_back(path_or_baseline(name));
    return places;
  }

  /// Judges runs that are over. Their order on the machine is known only from the records.
  GateReport gate_records() const {
    const RunPairs runs = require_pairs(places_of(base_), places_of(head_), "--base", "--head");
    GateReport report = judge_gate(runs, rules_);
    if (runs.order == RunOrder::apart) {
      report.notes.push_back(
          "base and head were not run by turns: what changed on the machine between them cannot "
          "be told from a change of the program");
    }
    return report;
  }

  /// Waits for a quiet machine, makes the folder and lets the session run.
  GateReport gate_commands(const GlobalOptions& options) {
    // A stop signal ends the run that is under way and then the gate.
    install_stop_signals([] {});
    // Other programs would be measured with the head and the base; so a busy machine is refused
    // first.
    const std::string load = require_quiet_machine();
    // A gate that nobody named still keeps its runs, so that they can be looked at.
    if (out_.empty()) out_ = "results/" + make_run_name("gate").run_id;
    commands_.out = create_run_folder(out_).folder;
    if (lockstep_) commands_.mode = GateMode::lockstep;
    // Orders must not be known beforehand; no seed makes two gates alike.
    commands_.seed = unpredictable_bits();
    const GateProgress progress = [&](const std::string& line) {
      if (options.verbosity != Verbosity::quiet) fmt::print(stderr, "{}\n", line);
    };
    GateReport report = run_gate(commands_, rules_, progress);
    report.notes.push_back(load);
    return report;
  }

  /// Returns a note for the report: how busy the machine was. Throws where it does not become
  /// quiet.
  std::string require_quiet_machine() const {
    const int cores = usable_cores().count();
    const auto busy = wait_for_quiet(max_load_ * cores, settle_s_);
    // Some systems do not tell; then the report says so and the gate goes on.
    if (!busy) return "the system does not tell how busy it was before the gate";
    // --max-load 1 allows any load.
    if (*busy > max_load_ * cores && max_load_ < 1) {
      throw Error(ErrorKind::environment,
                  {{fmt::format("the machine is busy: {:.1f} of {} cores are in use", *busy, cores),
                    fmt::format("at most {:.1f} before a gate begins", max_load_ * cores),
                    "End other programs, wait with --settle, or allow it with --max-load 1."}});
    }
    return fmt::format("{:.1f} of {} cores were busy before the gate", *busy, cores);
  }

  /// The command line of this gate, with the options that differ from their defaults.
  std::string reproduce() const {
    std::string line = fmt::format(
        "heteroperf gate --base-cmd {} --head-cmd {} --threshold {:g} --alpha "
        "{:g} --max-blocks {}",
        shell_quoted(commands_.base), shell_quoted(commands_.head), threshold_percent_,
        rules_.statistics.alpha, most_blocks_);
    for (const std::string& name : rules_.ignored) line += " --ignore " + shell_quoted(name);
    const auto add_changed = [&](const char* option, double value, double usual) {
      if (value != usual) line += fmt::format(" {} {:g}", option, value);
    };
    if (lockstep_) line += " --lockstep";
    add_changed("--pair-seconds", commands_.pair_s, GateCommands{}.pair_s);
    add_changed("--turn-timeout", commands_.turn_timeout_s, GateCommands{}.turn_timeout_s);
    add_changed("--timeout", commands_.deadline_s, GateCommands{}.deadline_s);
    add_changed("--max-load", max_load_, usual_load);
    add_changed("--settle", settle_s_, usual_patience_s);
    return line;
  }

  /// Writes one of the files. The gate's own error is not hidden by that of a file.
  static void keep(const GateReport& report, const std::function<void()>& write_it) {
    try {
      write_it();
    } catch (const Error& error) {
      if (!report.error) throw;
      fmt::print(stderr, "heteroperf: {}\n", error.what());
    }
  }

  GateCommands commands_;
  std::vector<std::string> base_, head_;
  GateRules rules_;
  double threshold_percent_ = 2;
  std::int64_t most_blocks_ = SequentialRule{}.most_blocks;
  std::string junit_, markdown_, out_;
  bool lockstep_ = false;
  double max_load_ = usual_load, settle_s_ = usual_patience_s;
};

}  // namespace

std::unique_ptr<Verb> make_gate_verb() { return std::make_unique<GateVerb>(); }

}  // namespace heteroperf
