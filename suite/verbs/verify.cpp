#include "results/verify.hpp"

#include <fmt/format.h>

#include "results/packing/unpacked_archive.hpp"
#include "results/run_folder.hpp"
#include "results/sweep/sweep_index.hpp"
#include "results/text_escapes.hpp"
#include "suite/verbs/checkpoint_checks.hpp"
#include "suite/verbs/plan_report.hpp"
#include "suite/verbs/plan_simulation.hpp"
#include "suite/verbs/sailor_planning.hpp"
#include "suite/verbs/verbs.hpp"

namespace heteroperf {
namespace {

class VerifyVerb : public Verb {
 public:
  const char* name() const override { return "verify"; }
  const char* summary() const override { return "recompute everything a run or a plan claims"; }
  std::vector<std::string> examples() const override {
    return {"verify results/latest", "verify mine.tar.gz --json"};
  }
  void declare(CLI::App& command) override {
    command
        .add_option(
            "run", path_,
            "run, suite or sweep folder, a folder of those, a file inside one, an archive that "
            "`pack` wrote, or a plan that `plan` wrote")
        ->required();
  }

  ExitCode run(const GlobalOptions& options) override {
    const Verification result = is_sailor_plan_file(path_) ? verify_sailor_plan_file(path_)
                                : is_plan_file(path_)      ? verify_plan_file(path_)
                                : is_archive_file(path_)   ? verify_archive()
                                                           : verify_run(path_);
    if (options.json) {
      fmt::print("{}", result.to_json());
    } else {
      print(result, options);
    }
    return result.ok() ? ExitCode::ok : ExitCode::verification;
  }

 private:
  static Verification verify_run(const std::string& path) {
    Verification result = verify(path);
    // Checkpoints of a folder of runs are verified run by run.
    if (sweep_folder_of(path) || holds_runs_only(path)) return result;
    for (VerifyCheck& check : check_checkpoints(path)) result.checks.push_back(std::move(check));
    return result;
  }

  /// What is in it is looked at where all of it could be unpacked.
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

  static bool holds_runs_only(const std::string& path) {
    const RunFiles files{path};
    return std::filesystem::is_directory(path) && !std::filesystem::exists(files.journal()) &&
           !std::filesystem::exists(files.record()) && !std::filesystem::exists(files.suite());
  }

  static void print(const Verification& result, const GlobalOptions& options) {
    for (const VerifyCheck& check : result.checks) {
      if (check.ok && options.verbosity == Verbosity::quiet) continue;
      const bool remark = check.ok && check.expected != check.actual;
      fmt::print("{:<6} {}{}\n", check.ok ? "ok" : "FAILED", check.name,
                 remark ? " (" + line_text(check.actual) + ")" : "");
      // It may be a stranger's run, whose words steer no terminal.
      if (!check.ok) {
        fmt::print("       expected {}\n       actual   {}\n", line_text(check.expected),
                   line_text(check.actual));
      }
    }
    fmt::print("{} checks: {}\n", result.checks.size(),
               result.ok() ? "everything matches" : "this is not what the file says");
  }

  std::string path_;
};

}  // namespace

std::unique_ptr<Verb> make_verify_verb() { return std::make_unique<VerifyVerb>(); }

}  // namespace heteroperf
