#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "metrics/error.hpp"
#include "runners/plan/exporters/flagscale_setup.hpp"
#include "runners/plan/exporters/megatron_arguments.hpp"
#include "runners/plan/plan_json.hpp"
#include "suite/verbs/export_json.hpp"
#include "suite/verbs/output_file.hpp"
#include "suite/verbs/verbs.hpp"

namespace heteroperf {
namespace {

struct PlanFormat {
  const char* name;
  const char* summary;
  std::string (*text)(const Plan& plan);
};
constexpr PlanFormat plan_formats[] = {
    {"flagscale", "train configuration in YAML",
     [](const Plan& plan) { return flagscale_text(flagscale_setup(plan)); }},
    {"megatron", "arguments with a layout string", megatron_arguments},
};

const PlanFormat& find_plan_format(const std::string& name) {
  std::vector<std::string> names;
  for (const PlanFormat& format : plan_formats) {
    if (name == format.name) return format;
    names.emplace_back(format.name);
  }
  const std::string near = nearest_name(name, names);
  throw UserError(fmt::format("there is no export format '{}'", name),
                  fmt::format("there are {}", fmt::join(names, ", ")),
                  near.empty() ? "" : fmt::format("Did you mean '{}'?", near));
}

class ExportVerb : public Verb {
 public:
  const char* name() const override { return "export"; }
  const char* summary() const override { return "a plan as other trainers read it"; }
  std::vector<std::string> examples() const override {
    return {"export results/latest/plan.json --to flagscale -o train.yaml",
            "export plan.json --to megatron"};
  }
  void declare(CLI::App& command) override {
    command.add_option("file", path_, "a plan.json")->required();
    std::vector<std::string> texts;
    for (const PlanFormat& format : plan_formats) {
      texts.push_back(fmt::format("{} ({})", format.name, format.summary));
    }
    command.add_option("--to", format_, fmt::format("{}", fmt::join(texts, ", ")))
        ->required()
        ->type_name("FORMAT");
    command.add_option("-o,--out", out_, "a file instead of stdout")->type_name("FILE");
  }

  ExitCode run(const GlobalOptions& options) override {
    const PlanFormat& format = find_plan_format(format_);
    std::string text = format.text(read_plan_file(path_));
    if (out_.empty()) {
      fmt::print("{}", options.json ? export_json_text(format.name, text) : text);
      return ExitCode::ok;
    }
    if (!OutputFile(out_).write(text)) {
      throw SystemError(fmt::format("{} cannot be written", out_));
    }
    if (options.json) fmt::print("{}", export_json_text(format.name, text));
    return ExitCode::ok;
  }

 private:
  std::string path_, format_, out_;
};

}  // namespace

std::unique_ptr<Verb> make_export_verb() { return std::make_unique<ExportVerb>(); }

}  // namespace heteroperf
