// The verb `resume`: goes on from a checkpoint of a finished or interrupted training, in a new run
// folder. All of the work is a plan of the new configuration (run/resume.cpp); what follows is an
// ordinary run with a parent. The verb takes only those flags of `run` that leave the training the
// same.
#include "suite/run/resume.hpp"

#include <fmt/format.h>

#include "suite/config/flag_options.hpp"
#include "suite/program/environment.hpp"
#include "suite/program/verb.hpp"
#include "suite/run/launch.hpp"

namespace heteroperf {
namespace {

class ResumeVerb : public Verb {
 public:
  ResumeVerb()
      : Verb({"resume",
              "go on from a run's last good checkpoint, in a new run folder",
              {"resume results/latest", "resume results/latest --ranks 2 --steps 500 --out later"},
              VerbRanks::all}) {}

  void declare(CLI::App& command) override {
    add_argument(command, "run", path_, "run folder with checkpoints");
    command.add_option("--from-step", step_, "that checkpoint, not the last good one");
    flags_.declare(command, can_change_on_resume);
    command.footer(command.get_footer() +
                   "\nEverything else is as the run had it; --set takes the keys of these flags "
                   "and those of scale, batch,\nplan, cluster, pace, measure, checkpoint and comm. "
                   "--steps counts those of the whole training;\n--duration starts anew.\n");
  }

  ExitCode run(const GlobalOptions& options) override {
    ProblemList problems;
    ResumeRequest request{path_, step_, flags_.settings(problems)};
    for (const std::string& text : options.sets) add_set(text, request.settings, problems);
    problems.throw_if_any();
    const ResumePlan plan = plan_resume(request);
    print_warnings(plan.warnings);
    // Where a broken checkpoint was skipped this names the one that was taken.
    if (options.verbosity != Verbosity::quiet) {
      fmt::print(stderr, "heteroperf: going on from {}\n", plan.config.parent->checkpoint);
    }
    return launch_run(plan.config, {original_argv()}, options);
  }

 private:
  std::string path_;
  std::optional<std::uint64_t> step_;
  FlagOptions flags_;
};

}  // namespace

std::unique_ptr<Verb> make_resume_verb() { return std::make_unique<ResumeVerb>(); }

}  // namespace heteroperf
