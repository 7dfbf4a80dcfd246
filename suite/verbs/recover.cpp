// The verb `recover`: makes the record of a run that was killed, from its journal. The journal is
// written line by line and is whole up to the last line, which is all that a record needs. A suite
// or a sweep is an index over its runs; a damaged index is rebuilt from their journals after their
// records. The result is then printed as `show` would.
#include "results/record/run_folder.hpp"

#include <fmt/format.h>

#include "results/exports/run_export.hpp"
#include "results/scaling/sweep_report.hpp"
#include "suite/program/verb.hpp"
#include "suite/sweep/sweep_folder.hpp"

namespace heteroperf {
namespace {

class RecoverVerb : public Verb {
 public:
  RecoverVerb()
      : Verb({"recover",
              "rebuild record.json and samples.h5 of an interrupted run from its journal, "
              "suite.json "
              "and sweep.json from their runs",
              {"recover results/latest", "recover results/20260101T101500Z-llm-1f0c9a77 --json"}}) {
  }

  void declare(CLI::App& command) override {
    add_argument(command, "run", path_, "run, suite or sweep folder");
  }

  ExitCode run(const GlobalOptions& options) override {
    if (const auto sweep = damaged_sweep_of(path_)) return run_of_sweep(*sweep, options);
    // Warnings do not keep the record from being made.
    print_warnings(recover(path_).warnings);
    fmt::print("{}", show(path_, form_of(options), style_of(options)));
    return ExitCode::ok;
  }

 private:
  /// Rebuilds the records of the runs first, then the index that is made of them.
  static ExitCode run_of_sweep(const std::filesystem::path& folder, const GlobalOptions& options) {
    const RecoveredSweep recovered = recover_sweep(folder);
    print_warnings(recovered.warnings);
    if (options.verbosity != Verbosity::quiet) fmt::print(stderr, "{}\n", recovered.done);
    fmt::print("{}", sweep_report_text(report_sweep(folder), form_of(options), style_of(options)));
    return ExitCode::ok;
  }

  std::string path_;
};

}  // namespace

std::unique_ptr<Verb> make_recover_verb() { return std::make_unique<RecoverVerb>(); }

}  // namespace heteroperf
