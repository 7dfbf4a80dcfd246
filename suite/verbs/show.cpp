// The verb `show`: prints the record of a run or suite, or the table of a sweep. Before a number is
// shown the record is held against its journal; one that does not follow from it is refused,
// because a screen gives an edited number the same authority as a true one. A record without a
// journal is shown with a warning.
#include "results/record/show.hpp"

#include <fmt/format.h>

#include "results/comparison/record_doubt.hpp"
#include "results/comparison/run_set.hpp"
#include "results/record/run_folder.hpp"
#include "results/scaling/sweep_report.hpp"
#include "suite/program/verb.hpp"
#include "suite/verbs/flag_options.hpp"

namespace heteroperf {
namespace {

class ShowVerb : public Verb {
 public:
  const char* name() const override { return "show"; }
  const char* summary() const override {
    return "print the record of a run or suite, the table of a sweep";
  }
  std::vector<std::string> examples() const override {
    return {"show results/latest", "show results/latest --format md"};
  }
  void declare(CLI::App& command) override {
    command.add_option("run", path_, "run, suite or sweep folder, or a file inside one")
        ->required();
    add_parsed_option(command, "--format", format_, parse_show_format, "console, json, csv or md");
  }

  ExitCode run(const GlobalOptions& options) override {
    const ShowFormat format = options.json ? ShowFormat::json : format_;
    if (const auto sweep = sweep_folder_of(path_)) {
      fmt::print("{}", sweep_text(report_sweep(*sweep), format));
      return ExitCode::ok;
    }
    require_sound();
    fmt::print("{}", show(path_, format, options.color ? Colour::on : Colour::off));
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
    RunSet found = find_runs({folder});
    for (const SkippedEntry& one : found.skipped) {
      if (one.path == RunFiles{folder}.suite()) throw Error(one.kind, one.problems);
      // One that could be shown, but that other verbs cannot use, was not written by a program.
      if (one.path.filename() == RunFiles{}.record()) {
        throw UserError("cannot show " + one.path.string(), one.reason,
                        "heteroperf recover rebuilds a record from its journal.");
      }
    }
    // All runs are checked before the first number is printed.
    const auto doubts = hold_to_journals(found.runs);
    for (std::size_t i = 0; i < doubts.size(); ++i) {
      if (!has_journal(found.runs[i])) {
        fmt::print(stderr, "heteroperf: warning: {}: no journal beside it confirms its numbers\n",
                   found.runs[i].record.string());
      }
      if (doubts[i]) throw doubts[i]->error(found.runs[i].record.string());
    }
  }

  static std::string sweep_text(const SweepReport& report, ShowFormat format) {
    switch (format) {
      case ShowFormat::json:
        return sweep_report_json_text(report);
      case ShowFormat::csv:
        return sweep_report_csv_text(report);
      case ShowFormat::markdown:
        return sweep_report_markdown_text(report);
      case ShowFormat::console:
        break;
    }
    return sweep_report_console_text(report);
  }

  std::string path_;
  ShowFormat format_ = ShowFormat::console;
};

}  // namespace

std::unique_ptr<Verb> make_show_verb() { return std::make_unique<ShowVerb>(); }

}  // namespace heteroperf
