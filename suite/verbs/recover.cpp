#include "results/recover.hpp"

#include <fmt/format.h>

#include "results/show.hpp"
#include "suite/verbs/verbs.hpp"

namespace heteroperf {
namespace {

class RecoverVerb : public Verb {
 public:
  const char* name() const override { return "recover"; }
  const char* summary() const override {
    return "rebuild record.json and samples.h5 of an interrupted run from its journal";
  }
  std::vector<std::string> examples() const override {
    return {"recover results/latest", "recover results/20260101T101500Z-llm-1f0c9a77 --json"};
  }
  void declare(CLI::App& command) override {
    command.add_option("run", path_, "run or suite folder")->required();
  }

  ExitCode run(const GlobalOptions& options) override {
    const FinishedRun run = recover(path_);
    for (const std::string& warning : run.warnings) {
      fmt::print(stderr, "heteroperf: warning: {}\n", warning);
    }
    fmt::print("{}", show(path_, options.json ? ShowFormat::json : ShowFormat::console,
                          options.color ? Colour::on : Colour::off));
    return ExitCode::ok;
  }

 private:
  std::string path_;
};

}  // namespace

std::unique_ptr<Verb> make_recover_verb() { return std::make_unique<RecoverVerb>(); }

}  // namespace heteroperf
