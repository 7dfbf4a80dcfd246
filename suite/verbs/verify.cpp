// The verb `verify`: recomputes what a run, suite, sweep, plan or archive claims. A record must
// follow from its journal, the journal's hashes must hold, checkpoints must be whole; a plan's
// predictions are computed again. --replay also trains some steps once more, since a loss curve
// cannot be recomputed in any other way (verification/replay.cpp).
//
// Each claim is a check with what was expected and what was found. Exit code 9 means that a check
// failed; 10 that some claims could not be compared here and the others hold.
#include "results/record/verify.hpp"

#include <fmt/format.h>

#include "results/packing/unpacked_archive.hpp"
#include "results/record/run_folder.hpp"
#include "results/sweep/sweep_index.hpp"
#include "results/text/text_escapes.hpp"
#include "runners/plan/rivals/sailor/sailor_planning.hpp"
#include "suite/planning/plan_report.hpp"
#include "suite/planning/plan_simulation.hpp"
#include "suite/program/verb.hpp"
#include "suite/verification/run_checks.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class VerifyVerb : public Verb {
 public:
  VerifyVerb()
      : Verb({"verify",
              "recompute everything a run or a plan claims",
              {"verify results/latest --replay 6", "verify mine.tar.gz --json"}}) {}

  void declare(CLI::App& command) override {
    add_argument(
        command, "run", path_,
        "run, suite or sweep folder, a record of operators, a folder of those, a file inside one, "
        "an archive that `pack` wrote, or a plan that `plan` wrote");
    command
        .add_option("--replay", replay_steps_,
                    "also train so many of a run's steps again, up to half of them behind its "
                    "last checkpoint, and hold their losses to the journal")
        ->check(CLI::Range(1, 1'000'000));
  }

  ExitCode run(const GlobalOptions& options) override {
    const Verification result = verify_path();
    if (options.json) {
      fmt::print("{}", result.to_json());
    } else {
      print(result, options);
    }
    if (!result.ok()) return ExitCode::verification;
    return result.compared() ? ExitCode::ok : ExitCode::not_comparable;
  }

 private:
  /// Chooses by the kind of file: a plan, an archive, or else a folder of a run.
  Verification verify_path() const {
    const bool sailor = is_sailor_plan_file(path_), plan = !sailor && is_plan_file(path_);
    if ((sailor || plan) && replay_steps_ > 0) refuse_replay("is a plan");
    // Plans of another planner are verified by its own formulas.
    if (sailor) return verify_sailor_plan_file(path_);
    if (plan) return verify_plan_file(path_);
    return is_archive_file(path_) ? verify_archive() : verify_run(path_);
  }

  [[noreturn]] void refuse_replay(const char* what) const {
    throw UserError(fmt::format("{} {}", path_, what), "--replay trains steps of one run again",
                    "Give it a run or a suite.");
  }

  /// Checks records and journals, then checkpoints and borders, then a replay where it is asked
  /// for.
  Verification verify_run(const std::string& path) const {
    // A folder of runs has no single journal that a replay could follow.
    const bool several = sweep_folder_of(path) || holds_runs_only(path);
    if (several && replay_steps_ > 0) refuse_replay("holds several runs");
    Verification result = verify(path);
    // Checkpoints of a folder of runs are verified run by run.
    if (several) return result;
    add_of_each_run(path, check_checkpoints, result);
    add_of_each_run(path, check_borders, result);
    // A run that fails its cheap checks is not worth training again.
    if (replay_steps_ > 0 && result.ok()) {
      add_of_each_run(
          path, [&](const fs::path& run) { return replay_run(run, replay_steps_); }, result);
    }
    return result;
  }

  /// Adds the checks of a run; of a suite those of each of its workloads, which lie in folders
  /// beside suite.json.
  static void add_of_each_run(const fs::path& path, const auto& checks_of, Verification& result) {
    const RunFiles files = open_run_folder(path);
    const auto add = [&](const fs::path& run, const std::string& prefix) {
      for (VerifyCheck& check : checks_of(run)) {
        check.name = prefix + check.name;
        result.checks.push_back(std::move(check));
      }
    };
    if (!fs::exists(files.suite())) return add(files.folder, "");
    for (const auto& entry : fs::directory_iterator(files.folder)) {
      if (!fs::exists(RunFiles{entry.path()}.journal())) continue;
      add(entry.path(), entry.path().filename().string() + "/");
    }
  }

  /// Verifies an archive: first that all of it can be unpacked, then its content.
  Verification verify_archive() const {
    const UnpackedArchive unpacked(path_);
    const char* expected = "the files that were packed";
    const bool whole = unpacked.damage().empty();
    const VerifyCheck archive{"archive", whole, expected, whole ? expected : unpacked.damage()};
    if (!whole) return {{archive}};
    Verification result = verify_run(unpacked.folder().string());
    result.checks.insert(result.checks.begin(), archive);
    return result;
  }

  /// True for a folder that is no run itself, whose runs are verified one by one.
  static bool holds_runs_only(const std::string& path) {
    const RunFiles files{path};
    return fs::is_directory(path) && !fs::exists(files.journal()) && !fs::exists(files.record()) &&
           !fs::exists(files.suite());
  }

  /// Quiet output shows failures and open checks alone.
  static void print(const Verification& result, const GlobalOptions& options) {
    for (const VerifyCheck& check : result.checks) {
      const bool passed = check.ok && check.compared;
      if (passed && options.verbosity == Verbosity::quiet) continue;
      // A check can pass and still have found something else than its words expected.
      const bool remark = check.ok && check.expected != check.actual;
      fmt::print("{:<6} {}{}\n",
                 passed     ? "ok"
                 : check.ok ? "open"
                            : "FAILED",
                 line_text(check.name), remark ? " (" + line_text(check.actual) + ")" : "");
      // It may be a stranger's run, whose words steer no terminal.
      if (!check.ok) {
        fmt::print("       expected {}\n       actual   {}\n", line_text(check.expected),
                   line_text(check.actual));
      }
    }
    fmt::print("{} checks: {}\n", result.checks.size(),
               !result.ok()        ? "this is not what the file says"
               : result.compared() ? "everything matches"
                                   : "what could be compared matches");
  }

  std::string path_;
  std::uint64_t replay_steps_ = 0;  ///< 0: no replay
};

}  // namespace

std::unique_ptr<Verb> make_verify_verb() { return std::make_unique<VerifyVerb>(); }

}  // namespace heteroperf
