#include <fmt/format.h>

#include <algorithm>

#include "runners/comm/world.hpp"
#include "suite/catalog.hpp"
#include "suite/run/launch.hpp"
#include "suite/run/run_config_json.hpp"
#include "suite/verbs/flag_options.hpp"
#include "suite/verbs/verbs.hpp"

namespace heteroperf {
namespace {

void check_transport(const std::vector<Setting>& settings, ProblemList& problems) {
  const auto launched = detect_launcher();
  if (!launched) return;
  for (const Setting& setting : settings) {
    if (setting.path != "scale.transport" || setting.value != "threads") continue;
    problems.add(fmt::format("{} does not fit the launcher's world", shown(setting)),
                 fmt::format("{} started {} processes", launched->launcher, launched->size),
                 "Leave it out, or start heteroperf without a launcher");
  }
}

class RunVerb : public Verb {
 public:
  const char* name() const override { return "run"; }
  const char* summary() const override { return "run a workload and write its record"; }
  std::vector<std::string> examples() const override {
    return {"run --quick",
            "run llm --ranks 4 --pp 2 --schedule zb-h1 --data text:input.txt --out results/mine"};
  }

  bool configurable() const override { return true; }
  bool on_every_rank() const override { return true; }
  void declare(CLI::App& command) override {
    workload_option_ = command.add_option(
        "workload", workload_,
        fmt::format("{} (none: every one of them, as a suite)", fmt::join(workload_names(), ", ")));
    command.add_flag("--quick", quick_, "seconds instead of minutes; never ranked");
    command.add_flag("--rank-logs", rank_logs_,
                     "a log of every rank in the run folder, rank-0.log and on: phases, progress, "
                     "warnings, errors  [rank_logs]");
    command.add_flag("--with-baselines", with_baselines_,
                     "also run each class of a mixed --cluster alone, and compare  "
                     "[with_baselines]");
    flags_.declare(command, [](const std::string&) { return true; });
    command.footer(command.get_footer() + "\n" + config_keys_text());
  }

  ExitCode run(const GlobalOptions& options) override {
    ProblemList problems;
    const std::vector<Setting> given = settings(options, problems);
    const RunConfig config = apply_settings(quick_ ? quick_config() : RunConfig{}, given, problems);
    validate(config, given, problems);
    check_transport(given, problems);
    problems.throw_if_any();
    return launch_run(config, {original_argv()}, options);
  }

 private:
  std::vector<Setting> settings(const GlobalOptions& options, ProblemList& problems) const {
    std::vector<Setting> list;
    if (workload_option_->count() > 0) add_workload(list, problems);
    for (Setting& setting : flags_.settings(problems)) list.push_back(std::move(setting));
    if (rank_logs_) list.push_back({"rank_logs", "true", "--rank-logs"});
    if (with_baselines_) list.push_back({"with_baselines", "true", "--with-baselines"});
    for (const std::string& text : options.sets) add_set(text, list, problems);
    return list;
  }

  void add_workload(std::vector<Setting>& list, ProblemList& problems) const {
    if (!workload_.empty()) return list.push_back({"workload", workload_, "workload"});
    problems.add("the workload is empty text",
                 fmt::format("one of {}", fmt::join(workload_names(), " ")),
                 "Leave it out to run all of them");
  }

  std::string workload_;
  CLI::Option* workload_option_ = nullptr;
  bool quick_ = false, rank_logs_ = false, with_baselines_ = false;
  FlagOptions flags_;
};

}  // namespace

std::unique_ptr<Verb> make_run_verb() { return std::make_unique<RunVerb>(); }

}  // namespace heteroperf
