// The verb `show`: prints the record of a run or suite, or the table of a sweep. Before a number is
// shown the record is held against its journal; one that does not follow from it is refused,
// because a screen gives an edited number the same authority as a true one. A record without a
// journal is shown with a warning.
#include "results/exports/run_export.hpp"

#include <fmt/format.h>

#include "results/comparison/record_doubt.hpp"
#include "results/comparison/run_set.hpp"
#include "results/record/run_folder.hpp"
#include "results/scaling/sweep_report.hpp"
#include "suite/program/verb.hpp"

namespace heteroperf {
namespace {

class ShowVerb : public Verb {
 public:
  ShowVerb()
      : Verb({"show",
              "print the record of a run or suite, the table of a sweep",
              {"show results/latest", "show results/latest --format md"}}) {}

  void declare(CLI::App& command) override {
    add_argument(command, "run", path_, "run, suite or sweep folder, or a file inside one");
    add_parsed_option(
        command, "--format", form_,
        [](const std::string& name) {
          using enum DocumentForm;
          return parse_form(name, {console, json, csv, markdown});
        },
        "console, json, csv or md");
  }

  ExitCode run(const GlobalOptions& options) override {
    const DocumentForm form = options.json ? DocumentForm::json : form_;
    if (const auto sweep = sweep_folder_of(path_)) {
      fmt::print("{}", sweep_report_text(report_sweep(*sweep), form, style_of(options)));
      return ExitCode::ok;
    }
    require_sound();
    fmt::print("{}", show(path_, form, style_of(options)));
    return ExitCode::ok;
  }

 private:
  /// Refuses a record that says something else than its journal gives.
  void require_sound() const {
    std::error_code none;
    if (!std::filesystem::exists(path_, none)) return;  // show() says what is wrong
    const std::filesystem::path path(path_);
    // A file inside a folder stands for the folder.
    const bool names_suite = path.filename() == RunFiles{}.suite();
    const std::filesystem::path folder = names_suite ? home_of(path) : path;
    RunSet run_set = find_runs({folder});
    for (const SkippedEntry& skipped_entry : run_set.skipped) {
      if (skipped_entry.path == RunFiles{folder}.suite())
        throw Error(skipped_entry.kind, skipped_entry.problems);
      // One that could be shown, but that other verbs cannot use, was not written by a program.
      if (skipped_entry.path.filename() == RunFiles{}.record()) {
        throw UserError("cannot show " + skipped_entry.path.string(), skipped_entry.reason,
                        "heteroperf recover rebuilds a record from its journal.");
      }
    }
    // All runs are checked before the first number is printed.
    const auto doubts = hold_to_journals(run_set.runs);
    for (std::size_t i = 0; i < doubts.size(); ++i) {
      if (!has_journal(run_set.runs[i])) {
        print_warnings(
            {run_set.runs[i].record.string() + ": no journal beside it confirms its numbers"});
      }
      if (doubts[i]) throw doubts[i]->error(run_set.runs[i].record.string());
    }
  }

  std::string path_;
  DocumentForm form_ = DocumentForm::console;
};

}  // namespace

std::unique_ptr<Verb> make_show_verb() { return std::make_unique<ShowVerb>(); }

}  // namespace heteroperf
