// The verb `run`: makes a configuration of the flags and then of --set, and starts the run. With
// --repeat, --sweep or --tune it starts many runs instead, each as a process of its own, and hands
// over the settings unparsed: every point of a sweep is a configuration by itself. Settings that a
// plan file brings for its workload fill only what the user left open.
#include <fmt/format.h>

#include "results/record/ruleset.hpp"
#include "runners/comm/world.hpp"
#include "suite/config/flag_options.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/planning/plan_sources.hpp"
#include "suite/program/catalog.hpp"
#include "suite/program/environment.hpp"
#include "suite/program/verb.hpp"
#include "suite/run/launch.hpp"
#include "suite/sweep/tuning.hpp"

namespace heteroperf {
namespace {

/// Refuses --transport threads under a launcher.
void check_transport(const std::vector<Setting>& settings, ProblemList& problems) {
  const auto launched = detect_launcher();
  if (!launched) return;
  for (const Setting& setting : settings) {
    // Ranks that a launcher started are processes and cannot be threads of each other.
    if (setting.path != "scale.transport" || setting.value != "threads") continue;
    problems.add(fmt::format("{} does not fit the launcher's world", shown(setting)),
                 fmt::format("{} started {} processes", launched->launcher, launched->size),
                 "Leave it out, or start heteroperf without a launcher");
  }
}

/// Reads the options of `run` and launches one run or several.
class RunVerb : public Verb {
 public:
  RunVerb()
      : Verb(
            {"run",
             "run a workload and write its record",
             {"run --quick",
              "run llm --ranks 4 --pp 2 --schedule zb-h1 --data text:input.txt --out results/mine"},
             VerbRanks::all}) {}

  void declare(CLI::App& command) override {
    workload_option_ = command.add_option(
        "workload", workload_,
        fmt::format("{} (none: {}, as a suite)", fmt::join(workload_names(), ", "),
                    fmt::join(suite_workloads, ", ")));
    command.add_flag("--quick", quick_, "seconds instead of minutes; never ranked");
    flags_.declare(command, [](const std::string&) { return true; });
    repeat_option_ =
        command.add_option("--repeat", repeats_, "runs of each point, every one with its own seed");
    add_typed_option(command, "--sweep", sweeps_, "KEY=VALUES",
                     "KEY=VALUE,VALUE…: runs of every value of a flag or key; again for every "
                     "combination; ranks:micro-batches=1:4,2:2 changes both together")
        ->take_all()
        ->allow_extra_args(false);
    add_typed_option(command, "--run-limit", run_limit_s_, "S",
                     "seconds that one run of several may take");
    tune_option_ = add_typed_option(
        command, "--tune", tune_s_, "S",
        "no run: tries ranks x threads x micro-batch, and what --sweep names, for about S seconds "
        "and prints the fastest three with the best one's command");
    command.footer(command.get_footer() + "\n" + config_keys_text());
  }

  ExitCode run(const GlobalOptions& options) override {
    ProblemList problems;
    const std::vector<Setting> given = settings(options, problems);
    if (repeat_option_->count() > 0 || !sweeps_.empty() || tune_option_->count() > 0) {
      return run_several(given, problems, options);
    }
    // Settings change the quick configuration, not the other way round.
    const RunConfig config = apply_settings(quick_ ? quick_config() : RunConfig{}, given, problems);
    validate(config, given, problems);
    check_transport(given, problems);
    problems.throw_if_any();
    return launch_run(config, {original_argv()}, options);
  }

 private:
  /// A launcher's ranks cannot start runs of their own, so a sweep is refused there.
  ExitCode run_several(const std::vector<Setting>& given, ProblemList& problems,
                       const GlobalOptions& options) const {
    if (const auto launched = detect_launcher()) {
      // Each run would need a world of its own from the launcher.
      problems.add("--repeat, --sweep and --tune do not work under a launcher",
                   fmt::format("{} started this process, and every run is one of its own",
                               launched->launcher),
                   "Start heteroperf without it; --transport mpi lets each run start mpirun.");
    }
    if (!(run_limit_s_ > 0)) {
      problems.add(fmt::format("--run-limit {:g} is out of range", run_limit_s_),
                   "above 0 seconds");
    }
    problems.throw_if_any();
    SweepRequest request{{}, quick_, sweeps_, repeats_, run_limit_s_};
    for (const Setting& setting : given) {
      if (&setting != last_of(given, setting.path)) continue;
      // The folder is that of the whole sweep; its runs get folders inside.
      if (setting.path == "out") {
        request.out = setting.value;
      } else {
        request.settings.push_back(setting);
      }
    }
    if (tune_option_->count() > 0) return launch_tuning(request, tune_s_, options);
    return launch_sweep(request, options);
  }

  /// Collects everything that the user gave, in the order of precedence.
  std::vector<Setting> settings(const GlobalOptions& options, ProblemList& problems) const {
    std::vector<Setting> list;
    if (workload_option_->count() > 0) add_workload(list, problems);
    for (Setting& setting : flags_.settings(problems)) list.push_back(std::move(setting));
    // --set comes last and wins over a flag of the same key.
    for (const std::string& text : options.sets) add_set(text, list, problems);
    return with_workload_of_plan(std::move(list));
  }

  void add_workload(std::vector<Setting>& list, ProblemList& problems) const {
    // An empty text is most likely a variable of a script that was not set; it does not mean a
    // suite.
    if (!workload_.empty()) return list.push_back({"workload", workload_, "workload"});
    problems.add("the workload is empty text",
                 fmt::format("one of {}", fmt::join(workload_names(), " ")),
                 "Leave it out to run all of them");
  }

  std::string workload_;
  CLI::Option* workload_option_ = nullptr;
  bool quick_ = false;
  FlagOptions flags_;
  CLI::Option* repeat_option_ = nullptr;
  std::int64_t repeats_ = 1;
  std::vector<std::string> sweeps_;
  double run_limit_s_ = 86400;
  CLI::Option* tune_option_ = nullptr;
  double tune_s_ = 0;
};

}  // namespace

std::unique_ptr<Verb> make_run_verb() { return std::make_unique<RunVerb>(); }

}  // namespace heteroperf
