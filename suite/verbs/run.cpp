#include <fmt/format.h>

#include <algorithm>

#include "metrics/error.hpp"
#include "suite/catalog.hpp"
#include "suite/run/launch.hpp"
#include "suite/run/run_config_json.hpp"
#include "suite/verbs/run_flags.hpp"
#include "suite/verbs/verbs.hpp"

namespace heteroperf {
namespace {

/// `--quick`: every workload answers within seconds, and no result of it can be ranked.
void make_quick(RunConfig& config) {
  config.quick = true;
  config.measure.duration_s = 12;
  config.measure.evaluation_samples = 128;
  config.measure.peak_s = 0.3;
  config.automl.first_rung_steps = 8;
  config.automl.evaluation_samples = 128;
}

std::string environment_name(const char* flag) {
  std::string name = std::string("HETEROPERF_") + (flag + 2);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return name;
}

Setting parse_set(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw UserError("--set " + text + " is not usable", "expected path.to.key=value");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

class RunVerb : public Verb {
 public:
  const char* name() const override { return "run"; }
  const char* summary() const override { return "run a workload and write its record"; }
  std::vector<std::string> examples() const override {
    return {"run --quick", "run llm --duration 60 --data text:input.txt --out results/mine"};
  }

  void declare(CLI::App& command) override {
    command.add_option(
        "workload", workload_,
        fmt::format("{} (none: every one of them, as a suite)", fmt::join(workload_names(), ", ")));
    command.add_flag("--quick", quick_, "seconds instead of minutes; never ranked")
        ->envname("HETEROPERF_QUICK");
    const auto& flags = run_flags();
    values_.resize(flags.size());
    for (std::size_t i = 0; i < flags.size(); ++i) {
      options_.push_back(command
                             .add_option(flags[i].flag, values_[i],
                                         std::string(flags[i].help) + "  [" + flags[i].path + "]")
                             ->type_name(flags[i].value_name)
                             ->envname(environment_name(flags[i].flag)));
    }
  }

  ExitCode run(const GlobalOptions& options) override {
    RunConfig config;
    if (quick_) make_quick(config);
    config = apply_settings(config, settings(options));
    validate(config);
    return launch_run(config, identity(options), options);
  }

 private:
  bool was_given(std::size_t flag) const { return options_[flag]->count() > 0; }

  std::vector<Setting> settings(const GlobalOptions& options) const {
    std::vector<Setting> list;
    ProblemList problems;
    if (!workload_.empty()) list.emplace_back("workload", workload_);
    const auto& flags = run_flags();
    for (std::size_t i = 0; i < flags.size(); ++i) {
      if (!was_given(i)) continue;
      if (flags[i].positive &&
          (values_[i].empty() || values_[i][0] == '-' || is_zero(values_[i]))) {
        problems.add(fmt::format("{} {} is out of range", flags[i].flag, values_[i]), "at least 1");
      }
      list.emplace_back(flags[i].path, values_[i]);
    }
    problems.throw_if_any();
    for (const std::string& text : options.sets) list.push_back(parse_set(text));
    return list;
  }

  static bool is_zero(const std::string& text) {
    return text.find_first_not_of("0.") == std::string::npos;
  }

  RunIdentity identity(const GlobalOptions& options) const {
    RunIdentity identity;
    identity.argv = original_argv();
    if (quick_) identity.flags.emplace_back("--quick");
    const auto& flags = run_flags();
    for (std::size_t i = 0; i < flags.size(); ++i) {
      if (!was_given(i) || std::string(flags[i].path) == "out") continue;
      identity.flags.emplace_back(flags[i].flag);
      identity.flags.push_back(values_[i]);
    }
    for (const std::string& text : options.sets) {
      identity.flags.emplace_back("--set");
      identity.flags.push_back(text);
    }
    return identity;
  }

  std::string workload_;
  bool quick_ = false;
  std::vector<std::string> values_;
  std::vector<CLI::Option*> options_;
};

}  // namespace

std::unique_ptr<Verb> make_run_verb() { return std::make_unique<RunVerb>(); }

}  // namespace heteroperf
