#include <fmt/format.h>

#include <algorithm>

#include "runners/comm/world.hpp"
#include "suite/catalog.hpp"
#include "suite/run/launch.hpp"
#include "suite/run/run_config_json.hpp"
#include "suite/run/run_flags.hpp"
#include "suite/verbs/verbs.hpp"

namespace heteroperf {
namespace {

/// "--set path=value" as a setting; adds a problem when it is none.
void add_set(const std::string& text, std::vector<Setting>& settings, ProblemList& problems) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    problems.add("--set " + text + " is not usable", "expected path.to.key=value");
    return;
  }
  settings.push_back({text.substr(0, equals), text.substr(equals + 1)});
}

std::string keys_text() {
  std::string text = "Keys for --set KEY=VALUE (default) meaning:\n";
  for (const ConfigKey& key : config_keys()) {
    text += fmt::format("  {:<28}({}) {}\n", key.path, key.default_text, key.meaning);
  }
  return text;
}

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
    return {"run --quick", "run llm --duration 60 --data text:input.txt --out results/mine"};
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
    const auto& flags = run_flags();
    values_.resize(flags.size());
    for (std::size_t i = 0; i < flags.size(); ++i) {
      options_.push_back(command
                             .add_option(flags[i].flag, values_[i],
                                         std::string(flags[i].help) + "  [" + flags[i].path + "]")
                             ->type_name(flags[i].value_name));
    }
    command.footer(command.get_footer() + "\n" + keys_text());
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
  bool was_given(std::size_t flag) const { return options_[flag]->count() > 0; }

  std::vector<Setting> settings(const GlobalOptions& options, ProblemList& problems) const {
    std::vector<Setting> list;
    if (workload_option_->count() > 0) add_workload(list, problems);
    for (std::size_t i = 0; i < options_.size(); ++i) {
      if (was_given(i)) add_flag(run_flags()[i], values_[i], list, problems);
    }
    if (rank_logs_) list.push_back({"rank_logs", "true", "--rank-logs"});
    for (const std::string& text : options.sets) add_set(text, list, problems);
    return list;
  }

  void add_workload(std::vector<Setting>& list, ProblemList& problems) const {
    if (!workload_.empty()) return list.push_back({"workload", workload_, "workload"});
    problems.add("the workload is empty text",
                 fmt::format("one of {}", fmt::join(workload_names(), " ")),
                 "Leave it out to run all of them");
  }

  static void add_flag(const RunFlag& flag, const std::string& value, std::vector<Setting>& list,
                       ProblemList& problems) {
    if (!flag.positive || !is_zero_or_less(value)) {
      return list.push_back({flag.path, value, flag.flag});
    }
    const bool seconds = flag.path == std::string("measure.duration_s");
    problems.add(fmt::format("{} {} is out of range", flag.flag, value),
                 seconds ? "above 0 seconds" : "at least 1");
  }

  static bool is_zero_or_less(const std::string& text) {
    return !text.empty() && (text[0] == '-' || text.find_first_not_of("0.") == std::string::npos);
  }

  std::string workload_;
  CLI::Option* workload_option_ = nullptr;
  bool quick_ = false, rank_logs_ = false;
  std::vector<std::string> values_;
  std::vector<CLI::Option*> options_;
};

}  // namespace

std::unique_ptr<Verb> make_run_verb() { return std::make_unique<RunVerb>(); }

}  // namespace heteroperf
