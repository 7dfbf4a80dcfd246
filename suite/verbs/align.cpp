// The verb `align`: sets two runs of one training side by side (verification/align_runs.cpp) and
// says with its exit code whether they agree. It is how a port to another machine or plan is
// accepted.
#include <fmt/format.h>

#include "metrics/base/error.hpp"
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
    add_argument(command, "a", a_, "run folder");
    add_argument(command, "b", b_, "run folder: the reference");
    add_typed_option(command, "--limit", rule_.limit, "FRACTION",
                     fmt::format("largest {}; 0: equal bit for bit", AcceptanceRule::text));
  }

  ExitCode run(const GlobalOptions& options) override {
    // Written so that a number that is not one is refused, too.
    if (!(rule_.limit >= 0)) {
      throw UserError(fmt::format("--limit {} is out of range", rule_.limit), "0 or more");
    }
    const Alignment alignment = align_runs(a_, b_, rule_);
    print_warnings(alignment.warnings);
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
