// The verb `version`: everything that decides whether two installations do the same: the version
// and commit, the build, the ruleset that judges runs, the optional parts, and the version of each
// kind of document that this program writes and reads.
#include "suite/program/version.hpp"

#include <fmt/format.h>

#include "metrics/base/document_kind.hpp"
#include "results/record/ruleset.hpp"
#include "results/text/document.hpp"
#include "suite/program/verb.hpp"

namespace heteroperf {
namespace {

/// For people one fact a line, its name in front, so that scripts can cut it.
Document version_document() {
  Document document{"heteroperf-version"};
  document.data("program", "program", Unit::none, "heteroperf");
  document.field("version", "heteroperf", Unit::none, version_text());
  document.field("commit", "commit", Unit::none, git_commit());
  document.field("build", "build", Unit::none, build_text());
  document.field("ruleset", "ruleset", Unit::none, ruleset_version);
  const Backends parts = find_backends();
  add_backends(document, "parts", parts);
  for (const auto& [name, part] : parts) {
    document.field("", name, Unit::none,
                   !part.built            ? "not built"
                   : part.version.empty() ? "built"
                                          : part.version);
  }
  // Whoever reads documents of this program asks here which versions it writes.
  for (const DocumentKind& kind : document_kinds()) {
    document.field(std::string("formats.") + kind.format, "format", Unit::none,
                   Datum(kind.version).as(fmt::format("{} {}", kind.format, kind.version)));
  }
  return document;
}

class VersionVerb : public Verb {
 public:
  VersionVerb()
      : Verb({"version",
              "version, commit, formats and built parts of this program",
              {"version", "version --json"}}) {}

  void declare(CLI::App&) override {}

  ExitCode run(const GlobalOptions& options) override {
    print(version_document(), options);
    return ExitCode::ok;
  }
};

}  // namespace

std::unique_ptr<Verb> make_version_verb() { return std::make_unique<VersionVerb>(); }

}  // namespace heteroperf
