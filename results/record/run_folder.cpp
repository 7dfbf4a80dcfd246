// Folders of runs: their names, their creation, and the files in them. A run never writes into a
// folder that is not empty, so results cannot overwrite each other. Names come from the date, the
// workload and random digits, so that runs started at once on several machines differ and a list of
// folders is sorted by time. At its end a run reads its own journal back from the disk and makes
// all other files from it, by the code that `recover` uses, so both give the same bytes.
#include "results/record/run_folder.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <system_error>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/random.hpp"
#include "metrics/base/text_file.hpp"
#include "results/record/record.hpp"
#include "results/record/samples_h5.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace fs = std::filesystem;
namespace {

constexpr const char* latest = "latest";

/// The digits are unpredictable, so that runs that begin in the same second differ.
std::string random_id() {
  return fmt::format("{:08x}", static_cast<std::uint32_t>(unpredictable_bits()));
}

/// Writes a small file and removes it: a full disk is better noticed before an hour of training.
void check_writable(const fs::path& folder, const std::string& suggestion) {
  constexpr std::size_t probe_bytes = 4096;
  try {
    TemporaryFile(folder / "probe").write(std::string(probe_bytes, '\n'));
  } catch (const SystemError& error) {
    throw SystemError("cannot write in " + folder.string(), error.problems().front().why,
                      suggestion, ErrorKind::environment);
  }
}

/// A path with a slash at its end names the same folder.
fs::path without_slash(const fs::path& folder) {
  const fs::path clean = fs::absolute(folder).lexically_normal();
  return clean.has_filename() ? clean : clean.parent_path();
}

/// Throws for a record that is missing beside a journal: its run was killed, or still goes on. The
/// advice names the whole suite where the run is part of one.
void refuse_unfinished(const fs::path& path) {
  const RunFiles files{path.parent_path()};
  if (path != files.record() || fs::exists(path) || !fs::exists(files.journal())) return;
  const fs::path suite = without_slash(files.folder).parent_path();
  const fs::path whole = fs::exists(RunFiles{suite}.suite()) ? suite : files.folder;
  throw UserError("the run in " + files.folder.string() + " is unfinished",
                  "it has a journal but no record.json: it was killed, or still runs",
                  "Try `heteroperf recover " + whole.string() + "`");
}

/// Writes config.json, environment.json and plan.json as far as the journal has them, as indented
/// forms of its own texts. Each file is replaced as a whole, so a reader never finds half of one.
void write_companion_files(const RunFiles& files, const Journal& journal) {
  const auto write = [](const fs::path& path, const JsonText& json) {
    write_file_atomically(path, json_indented(json.text, path.string()));
  };
  if (const auto* config = journal.last<ConfigEvent>()) write(files.config(), config->config);
  if (const auto* plan = journal.last<PlanEvent>()) write(files.plan(), plan->plan);
  if (const auto* system = journal.last<SystemEvent>()) {
    write(files.environment(), system->system);
  }
}

}  // namespace

RunName make_run_name(const std::string& workload) {
  const std::tm utc = fmt::gmtime(std::time(nullptr));
  return {fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc),
          fmt::format("{:%Y%m%dT%H%M%SZ}-{}-{}", utc, workload, random_id())};
}

/// The folder is refused before anything is measured, not after.
RunFiles create_run_folder(const fs::path& folder, const char* flag) {
  const std::string suggestion = fmt::format("Choose another folder with {}.", flag);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder)) {
    throw UserError("cannot create the folder " + folder.string(),
                    error ? error.message() : "a file is in the way", suggestion);
  }
  if (!fs::is_empty(folder)) {
    throw UserError("the folder " + folder.string() + " is not empty", "a run never overwrites one",
                    suggestion);
  }
  check_writable(folder, suggestion);
  return {folder};
}

/// The new link is made under another name and renamed over the old one, so readers never find
/// none.
bool point_latest_at(const fs::path& folder) {
  const fs::path target = without_slash(folder), parent = target.parent_path();
  const fs::path link = parent / latest;
  const fs::file_status status = fs::symlink_status(link);
  if (fs::exists(status) && !fs::is_symlink(status)) return false;
  const fs::path temporary = parent / fmt::format(".{}.tmp-{}", latest, getpid());
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_directory_symlink(target.filename(), temporary, error);
  if (error) return false;
  fs::rename(temporary, link, error);
  if (!error) return true;
  fs::remove(temporary, error);
  return false;
}

fs::path home_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

/// A link is refused wherever it leads.
fs::path part_of(const fs::path& home, const std::string& name) {
  const bool is_name =
      !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
  if (is_name && !fs::is_symlink(fs::symlink_status(home / name))) return home / name;
  throw UserError(fmt::format("'{}' is no folder of {}", line_text(name), home.string()),
                  is_name ? "it is a link" : "the name of a folder in it is wanted");
}

/// Entries that cannot be read are passed over.
std::vector<fs::path> journals_in(const fs::path& folder) {
  std::error_code error;
  if (const fs::path file = RunFiles{folder}.journal(); fs::exists(file, error)) return {file};
  std::vector<fs::path> journals;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path journal = RunFiles{entry.path()}.journal();
    std::error_code unreadable;
    if (fs::exists(journal, unreadable)) journals.push_back(journal);
  }
  std::sort(journals.begin(), journals.end());
  return journals;
}

UserError no_such_run(const fs::path& path) {
  const fs::path home = home_of(path);
  std::error_code error;
  if (!fs::is_directory(home, error)) {
    return UserError("no such run: " + path.string(), "there is no folder " + home.string());
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(home, error)) {
    names.push_back(entry.path().filename().string());
  }
  const std::string nearest = nearest_name(path.filename().string(), names);
  return UserError("no such run: " + path.string(), "no file or folder has that name",
                   nearest.empty()
                       ? "`heteroperf run` makes one and prints its path."
                       : "Did you mean '" + (path.parent_path() / nearest).string() + "'?");
}

/// A file inside a folder means its folder; a file of another kind is told what it is.
RunFiles open_run_folder(const fs::path& path) {
  if (!fs::exists(path)) throw no_such_run(path);
  const RunFiles files{fs::is_directory(path) ? path : home_of(path)};
  for (const fs::path& file : {files.journal(), files.record(), files.suite()}) {
    if (fs::exists(file)) return files;
  }
  if (fs::is_regular_file(path)) {
    require_stated_format(read_text_file(path), path.string(), "heteroperf-record");
  }
  throw UserError(path.string() + " holds no run",
                  "neither journal.jsonl nor record.json nor suite.json is there");
}

std::string read_run_file(const fs::path& path) {
  refuse_unfinished(path);
  return read_regular_file(path);
}

/// samples.h5 can be made again at any time, so a failure to write it is only a warning.
FinishedRun finish_run(const RunFiles& files) {
  const Journal journal = read_journal(files.journal().string());
  FinishedRun finished;
  write_companion_files(files, journal);
  finished.record = build_record(journal);
  write_file_atomically(files.record(), finished.record);
  try {
    write_samples_h5(files.samples().string(), journal, finished.record);
  } catch (const SystemError& error) {
    finished.warnings.push_back(fmt::format("samples.h5 is absent: {}", error.what()));
  }
  return finished;
}

}  // namespace heteroperf
