// The verb `compare`: tells how much faster B is than A, with an interval, and what else differs
// between them. Both sides may be single runs, folders of repeated runs, or two sweeps, which are
// compared point by point. With --baseline homogeneous the first operand is a mixed cluster and the
// others are its classes alone; the answer is then HSR, the throughput of the mix over the sum of
// theirs.
//
// A comparison does not judge: its exit code is 0 whatever it finds. The verb `gate` judges.
#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "results/comparison/hetero_ratio.hpp"
#include "results/comparison/run_comparison.hpp"
#include "results/scaling/sweep_report.hpp"
#include "results/sweep/sweep_index.hpp"
#include "suite/program/verb.hpp"

namespace heteroperf {
namespace {

class CompareVerb : public Verb {
 public:
  CompareVerb()
      : Verb({"compare",
              "B against A with intervals, and what else differs; mixed against homogeneous "
              "clusters",
              {"compare results/a results/b",
               "compare --baseline homogeneous results/mix results/fast-alone "
               "results/slow-alone"}}) {}

  void declare(CLI::App& command) override {
    add_argument(command, "runs", runs_,
                 "A and B: runs, records of ops, folders of repeated ones, or two sweeps (point by "
                 "point); with --baseline the mix, then one per class");
    command.add_option("--baseline", baseline_, "homogeneous: HSR of the first against the others");
    add_typed_option(command, "--threshold", threshold_percent_, "PCT",
                     "a change below this is none, in percent");
    add_parsed_option(
        command, "--format", form_,
        [](const std::string& name) {
          using enum DocumentForm;
          return parse_form(name, {console, json, markdown});
        },
        "console, json or md");
  }

  ExitCode run(const GlobalOptions& options) override {
    const DocumentForm form = options.json ? DocumentForm::json : form_;
    // All problems of the options are told at once, before any folder is read.
    check_options();
    fmt::print("{}", baseline_.empty() ? compare(form, style_of(options))
                                       : document_text(against_classes(), form, style_of(options)));
    return ExitCode::ok;
  }

 private:
  /// The number of operands depends on the question.
  void check_options() const {
    ProblemList problems;
    if (!baseline_.empty() && baseline_ != "homogeneous") {
      problems.add("unknown baseline '" + baseline_ + "'", "homogeneous is known");
    }
    if (baseline_.empty() && runs_.size() != 2) {
      problems.add(fmt::format("{} given", runs_.size()), "compare takes A and B",
                   "Repeated runs go into a folder each.");
    }
    if (!baseline_.empty() && runs_.size() < 3) {
      problems.add(fmt::format("{} given", runs_.size()),
                   "the mix, and one run or folder per class, are at least 3");
    }
    if (!(threshold_percent_ > 0 && threshold_percent_ < 100)) {
      problems.add(fmt::format("--threshold {:g} is out of range", threshold_percent_),
                   "above 0 and below 100 percent");
    }
    problems.throw_if_any();
  }

  /// Compares two sweeps by their points, everything else as two sets of runs.
  std::string compare(DocumentForm form, const TextStyle& style) const {
    const auto a = sweep_folder_of(runs_[0]), b = sweep_folder_of(runs_[1]);
    const double margin = threshold_percent_ / 100;
    // A sweep against a single run has no common points and is compared as a set of runs.
    if (a && b) return sweep_comparison_text(compare_sweeps(*a, *b, margin), form, style);
    // Throws where the two sides are no measurement of the same thing.
    const RunPairs runs = require_pairs({runs_[0]}, {runs_[1]}, "A", "B");
    return document_text(comparison_document(compare_runs(runs, margin)), form, style);
  }

  /// The first operand is the mix; every other one holds the runs of one class.
  Document against_classes() const {
    std::vector<RunSet> alone;
    for (std::size_t i = 1; i < runs_.size(); ++i) alone.push_back(require_runs({runs_[i]}));
    return hetero_ratio_document(hetero_ratio(require_runs({runs_[0]}), alone));
  }

  std::vector<std::string> runs_;
  std::string baseline_;
  DocumentForm form_ = DocumentForm::console;
  double threshold_percent_ = 2;
};

}  // namespace

std::unique_ptr<Verb> make_compare_verb() { return std::make_unique<CompareVerb>(); }

}  // namespace heteroperf
