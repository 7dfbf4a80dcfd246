// The verb `align`: sets two runs of one training side by side (verification/align_runs.cpp) and
// says with its exit code whether they agree. It is how a port to another machine or plan is
// accepted.
#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "results/text/text_escapes.hpp"
#include "suite/program/verb.hpp"
#include "suite/verification/align_runs.hpp"

namespace heteroperf {
namespace {

class AlignVerb : public Verb {
 public:
  AlignVerb()
      : Verb({"align",
              "compare losses, gradient norms and parameters of two runs of one training",
              {"align results/pipeline results/serial", "align a b --limit 0.001 --json"}}) {}

  void declare(CLI::App& command) override {
    command.add_option("a", a_, "run folder")->required();
    command.add_option("b", b_, "run folder: the reference")->required();
    command
        .add_option("--limit", rule_.limit,
                    fmt::format("largest {}; 0: equal bit for bit", AcceptanceRule::text))
        ->type_name("FRACTION");
  }

  ExitCode run(const GlobalOptions& options) override {
    // Written so that a number that is not one is refused, too.
    if (!(rule_.limit >= 0)) {
      throw UserError(fmt::format("--limit {} is out of range", rule_.limit), "0 or more");
    }
    const Alignment alignment = align_runs(a_, b_, rule_);
    for (const std::string& warning : alignment.warnings) {
      fmt::print(stderr, "heteroperf: warning: {}\n", line_text(warning));
    }
    print(alignment_document(alignment), options);
    // A difference fails an acceptance, so it has the exit code of a failed verification.
    return alignment.ok() ? ExitCode::ok : ExitCode::verification;
  }

 private:
  std::string a_, b_;
  AcceptanceRule rule_;
};

}  // namespace

std::unique_ptr<Verb> make_align_verb() { return std::make_unique<AlignVerb>(); }

}  // namespace heteroperf
