// The verb `pack`: makes one archive of a run, a suite or a sweep, to be handed to somebody who
// verifies it. What does not verify here would not verify there, so it is refused before an archive
// is written. Checkpoints are large and left out unless they are asked for. An archive of the same
// name is replaced; a device or a pipe is not, since an archive is written and then read again for
// its hash.
#include <fmt/format.h>

#include <string>

#include "metrics/base/error.hpp"
#include "results/packing/run_archive.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/verify.hpp"
#include "results/sweep/sweep_index.hpp"
#include "results/text/document.hpp"
#include "suite/program/verb.hpp"
#include "suite/verbs/output_file.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class PackVerb : public Verb {
 public:
  PackVerb()
      : Verb({"pack",
              "one archive of a run, suite or sweep that verifies after unpacking",
              {"pack results/latest", "pack results/mine -o mine.tar.gz --checkpoints"}}) {}

  void declare(CLI::App& command) override {
    add_argument(command, "run", path_, "run, suite or sweep folder, or a file inside one");
    add_typed_option(command, "-o,--out", out_, "FILE",
                     "the archive (default: the folder's name, .tar.gz)");
    command.add_flag("--checkpoints", checkpoints_, "with what `resume` goes on from");
  }

  ExitCode run(const GlobalOptions& options) override {
    // A sweep is packed with all of its runs.
    const auto sweep = sweep_folder_of(path_);
    // `results/latest` is a link; the archive is named after the folder behind it.
    const fs::path folder = fs::canonical(sweep ? *sweep : open_run_folder(path_).folder);
    const fs::path archive =
        out_.empty() ? fs::path(folder.filename().string() + ".tar.gz") : fs::path(out_);
    require_replaceable(archive);
    require_verified(folder);
    const PackedArchive packed = pack_folder(
        folder, archive, checkpoints_ ? PackedCheckpoints::all : PackedCheckpoints::none);
    Document document{"heteroperf-pack"};
    document.field("archive", "archive", Unit::none, packed.file.string());
    document.field("files", "files", Unit::none, packed.files);
    document.field("bytes", "size", Unit::bytes, packed.bytes);
    document.field("sha256", "sha256", Unit::none, packed.sha256);
    print(document, options);
    return ExitCode::ok;
  }

 private:
  /// Refuses a name that an archive cannot take the place of.
  static void require_replaceable(const fs::path& archive) {
    const OutputFile file(archive.string());
    if (!fs::exists(archive) || fs::is_regular_file(archive)) return;
    throw UserError("cannot write " + archive.string(), "it is a device or a pipe",
                    "Give --out the path of a file.");
  }

  /// Refuses a folder that lacks its record or fails a check, with the first check that fails.
  static void require_verified(const fs::path& folder) {
    const RunFiles files{folder};
    // Recovering is another verb: packing changes nothing in a folder.
    if (fs::exists(files.journal()) && !fs::exists(files.record())) {
      throw Error(ErrorKind::verification,
                  {{folder.string() + " has no record.json", "the run did not end by itself",
                    "Make it from the journal first: heteroperf recover " + folder.string()}});
    }
    for (const VerifyCheck& check : verify(folder).checks) {
      if (check.ok) continue;
      throw Error(
          ErrorKind::verification,
          {{folder.string() + " does not verify",
            fmt::format("{}: expected {}, found {}", check.name, check.expected, check.actual),
            "`heteroperf verify` shows all of it; an archive would not verify either."}});
    }
  }

  std::string path_, out_;
  bool checkpoints_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_pack_verb() { return std::make_unique<PackVerb>(); }

}  // namespace heteroperf
