// The verb `align`: sets two runs of one training side by side (verification/align_runs.cpp) and
// says with its exit code whether they agree. It is how a port to another machine, device or plan
// is accepted.
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
              {"align results/pipeline results/serial", "align a b --limit 0.001 --json",
               "align results/chip results/exact --locate"}}) {}

  void declare(CLI::App& command) override {
    add_argument(command, "a", a_, "run folder");
    add_argument(command, "b", b_, "run folder: the reference");
    add_typed_option(command, "--limit", limit_, "FRACTION",
                     fmt::format("largest {}; 0: equal bit for bit", AcceptanceRule::text));
    command.add_flag("--locate", locate_,
                     "where the losses part, find the layer and the operator of A at fault; they "
                     "are held to a noise band unless --limit is given");
    add_typed_option(command, "--bands", runs_, "S",
                     fmt::format("hold losses to {:g} times the noise of S trainings with sums in "
                                 "drawn orders, {} or more",
                                 parted_bands, fewest_band_runs));
    add_typed_option(command, "--steps", steps_, "N",
                     fmt::format("the first steps of both, which are trained again; {} at most by "
                                 "default",
                                 NoiseRequest().steps));
  }

  ExitCode run(const GlobalOptions& options) override {
    check();
    AcceptanceRule rule;
    if (limit_) rule.limit = *limit_;
    std::optional<NoiseRequest> noise;
    if (locate_ || runs_) {
      noise = NoiseRequest{.locate = locate_, .by_limit = limit_.has_value()};
      noise->runs = runs_.value_or(noise->runs);
      noise->steps = steps_.value_or(noise->steps);
    }
    const Alignment alignment = align_runs(a_, b_, rule, noise);
    print_warnings(alignment.warnings);
    print(alignment_document(alignment), options);
    // A difference fails an acceptance, so it has the exit code of a failed verification.
    return alignment.ok() ? ExitCode::ok : ExitCode::verification;
  }

 private:
  void check() const {
    ProblemList problems;
    // Written so that a number that is not one is refused, too.
    if (limit_ && !(*limit_ >= 0)) {
      problems.add(fmt::format("--limit {} is out of range", *limit_), "0 or more");
    }
    if (runs_ && *runs_ < fewest_band_runs) {
      problems.add(fmt::format("--bands {} is out of range", *runs_),
                   fmt::format("{} or more", fewest_band_runs));
    }
    if (runs_ && limit_ && !locate_) {
      problems.add("--bands and --limit", "one of them decides",
                   "Give one, or --locate with both: the limit decides then");
    }
    if (steps_ && *steps_ == 0) problems.add("--steps 0 is out of range", "1 or more");
    if (steps_ && !locate_ && !runs_) {
      problems.add("--steps without --locate or --bands",
                   "it says how many steps are trained again", "Give one of them too");
    }
    problems.throw_if_any();
  }

  std::string a_, b_;
  std::optional<double> limit_;
  bool locate_ = false;
  std::optional<int> runs_;
  std::optional<std::uint64_t> steps_;
};

}  // namespace

std::unique_ptr<Verb> make_align_verb() { return std::make_unique<AlignVerb>(); }

}  // namespace heteroperf
