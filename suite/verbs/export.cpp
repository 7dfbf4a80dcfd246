// The verb `export`: writes a run for other tools (CSV, Google Benchmark, MLPerf logs, OpenMetrics)
// or a plan for other trainers. One option names the format; plan formats are listed here, run
// formats belong to the results. A plan that a trainer cannot express is refused with everything
// that does not fit, rather than written in part.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "results/exports/run_export.hpp"
#include "runners/plan/plan_json.hpp"
#include "runners/plan/rivals/trainers/trainer_plans.hpp"
#include "suite/program/verb.hpp"
#include "suite/verbs/output_file.hpp"

namespace heteroperf {
namespace {

/// {"format":…, "text":…}: what `export --json` prints.
std::string export_json_text(const std::string& format, const std::string& text) {
  Json document = new_document("heteroperf-export");
  document.update({{"format", format}, {"text", text}});
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// A format of another trainer, and the function that writes a plan in it.
struct PlanFormat {
  const char* name;
  const char* summary;
  std::string (*text)(const Plan& plan);
};
/// A new trainer is a line here.
constexpr PlanFormat plan_formats[] = {
    {"flagscale", "train configuration in YAML",
     [](const Plan& plan) { return flagscale_text(flagscale_setup(plan)); }},
    {"megatron", "arguments with a layout string", megatron_arguments},
};

/// Finds a format of plans; null for a format of runs. Throws UserError for a name of neither.
const PlanFormat* find_plan_format(const std::string& name) {
  std::vector<std::string> names;
  for (const PlanFormat& format : plan_formats) {
    if (name == format.name) return &format;
    names.emplace_back(format.name);
  }
  for (const RunExportFormat& format : run_export_formats()) {
    if (name == format.name) return nullptr;
    names.emplace_back(format.name);
  }
  // Formats of both kinds are candidates for what was meant.
  throw UserError(fmt::format("there is no export format '{}'", name),
                  fmt::format("there are {}", fmt::join(names, ", ")), suggest_name(name, names));
}

/// Both tables of formats have a name and a summary.
void describe(const auto& formats, std::vector<std::string>& texts) {
  for (const auto& format : formats) {
    texts.push_back(fmt::format("{} ({})", format.name, format.summary));
  }
}

class ExportVerb : public Verb {
 public:
  ExportVerb()
      : Verb({"export",
              "a run as other tools read it, a plan as other trainers do",
              {"export results/latest/plan.json --to flagscale -o train.yaml",
               "export results/latest --to openmetrics"}}) {}

  void declare(CLI::App& command) override {
    add_argument(command, "path", path_,
                 "a run folder (gbench, openmetrics: or sweep), or a plan.json");
    std::vector<std::string> texts;
    describe(run_export_formats(), texts);
    describe(plan_formats, texts);
    add_argument(command, "--to", format_, fmt::format("{}", fmt::join(texts, ", ")));
    command.add_option("--table", table_,
                       fmt::format("csv: one of {}", fmt::join(csv_table_names(), ", ")));
    add_typed_option(command, "-o,--out", out_, "FILE", "a file instead of stdout");
  }

  ExitCode run(const GlobalOptions& options) override {
    const PlanFormat* plan_format = find_plan_format(format_);
    // A file that cannot be written is refused before any work.
    const OutputFile out(out_);
    // An option that changes nothing is refused, as everywhere in the program.
    if (!table_.empty() && format_ != "csv") {
      throw UserError(fmt::format("--table {} changes nothing", table_), format_ + " has no tables",
                      "Leave it out, or export --to csv.");
    }
    const std::string text = plan_format != nullptr ? plan_format->text(read_plan_file(path_))
                                                    : run_export_text(path_, format_, table_);
    if (!out.given()) {
      fmt::print("{}", options.json ? export_json_text(format_, text) : text);
      return ExitCode::ok;
    }
    // With --json the document goes to stdout even where the text goes to a file.
    out.save(text);
    if (options.json) fmt::print("{}", export_json_text(format_, text));
    return ExitCode::ok;
  }

 private:
  std::string path_, format_, table_, out_;
};

}  // namespace

std::unique_ptr<Verb> make_export_verb() { return std::make_unique<ExportVerb>(); }

}  // namespace heteroperf
