// The verb `version`: everything that decides whether two installations do the same: the version
// and commit, the build, the ruleset that judges runs, the optional parts, and the version of each
// kind of document that this program writes and reads.
#include "suite/program/version.hpp"

#include <fmt/format.h>

#include "metrics/base/document_kind.hpp"
#include "results/record/ruleset.hpp"
#include "suite/program/verb.hpp"
#include "suite/verbs/doctor_report.hpp"

namespace heteroperf {
namespace {

/// One fact a line, its name in front, so that scripts can cut it.
std::string version_table(const Backends& parts) {
  std::string text = fmt::format("heteroperf {}\ncommit   {}\nbuild    {}\nruleset  {}\n",
                                 version_text(), git_commit(), build_text(), ruleset_version);
  for (const auto& [name, part] : parts) {
    text += fmt::format("{:<8} {}\n", name,
                        !part.built            ? "not built"
                        : part.version.empty() ? "built"
                                               : part.version);
  }
  for (const DocumentKind& kind : document_kinds()) {
    text += fmt::format("format   {} {}\n", kind.format, kind.version);
  }
  return text;
}

class VersionVerb : public Verb {
 public:
  const char* name() const override { return "version"; }
  const char* summary() const override {
    return "version, commit, formats and built parts of this program";
  }
  std::vector<std::string> examples() const override { return {"version", "version --json"}; }
  void declare(CLI::App&) override {}

  ExitCode run(const GlobalOptions& options) override {
    const Backends parts = find_backends();
    fmt::print("{}", options.json ? version_json_text(parts) : version_table(parts));
    return ExitCode::ok;
  }
};

}  // namespace

std::unique_ptr<Verb> make_version_verb() { return std::make_unique<VersionVerb>(); }

}  // namespace heteroperf
