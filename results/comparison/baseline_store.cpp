// The store of saved baselines is a folder per name with a copy of record.json per run. A file's
// name ends in two hashes: that of the run's key, by which a newer run of the same kind finds the
// file it replaces, and that of the content, which shows an edited file without any index beside
// it. There is no index on purpose: two branches that each save a baseline add different files, so
// version control has nothing to merge by hand.

#include "results/comparison/baseline_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/record/run_folder.hpp"
#include "results/text/sha256.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t key_digits = 8, content_digits = 12;
constexpr std::string_view extension = ".json";
constexpr std::string_view name_characters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

/// Replaces what no file name should hold on any system; such a character becomes an underscore.
std::string plain_name(std::string text) {
  for (std::size_t i = 0; (i = text.find_first_not_of(name_characters, i)) != std::string::npos;) {
    text[i] = '_';
  }
  return text;
}

std::string key_of(const RunDigest& run) {
  return sha256_hex(run.key_text()).substr(0, key_digits);
}

/// "…-<key>-<content>.json" from its end.
struct FileName {
  std::string key, content;
};
std::optional<FileName> split_name(std::string_view name) {
  constexpr std::size_t tail = key_digits + content_digits + 2;
  if (!name.ends_with(extension)) return std::nullopt;
  name.remove_suffix(extension.size());
  if (name.size() <= tail) return std::nullopt;
  const std::string_view end = name.substr(name.size() - tail);
  const std::string_view key = end.substr(1, key_digits), content = end.substr(key_digits + 2);
  constexpr const char* hex = "0123456789abcdef";
  const bool hashes = key.find_first_not_of(hex) == std::string_view::npos &&
                      content.find_first_not_of(hex) == std::string_view::npos;
  if (end[0] != '-' || end[key_digits + 1] != '-' || !hashes) return std::nullopt;
  return FileName{std::string(key), std::string(content)};
}

/// Files of other forms in the folder are left alone. A folder that is missing has none.
std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (is_baseline_file_name(entry.path().filename().string())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string baseline_file_name(const RunDigest& run) {
  return fmt::format("{}-{}-{}-{}r-{}-{}{}", plain_name(run.workload),
                     run.size.empty() ? "any" : plain_name(run.size), plain_name(run.precision),
                     run.ranks, key_of(run), run.record_sha256.substr(0, content_digits),
                     extension);
}

bool is_baseline_file_name(const std::string& name) { return split_name(name).has_value(); }

bool has_key_of(const std::string& file_name, const RunDigest& run) {
  const auto name = split_name(file_name);
  return name && name->key == key_of(run);
}

void check_baseline_file(const fs::path& file, const std::string& sha256) {
  const auto name = split_name(file.filename().string());
  if (!name || sha256.starts_with(name->content)) return;
  throw Error(ErrorKind::verification,
              {{file.string() + " is not what was saved",
                fmt::format("its name says {}, its content has {}", name->content,
                            sha256.substr(0, content_digits)),
                "Save the baseline again from its run, or take the file from version control."}});
}

bool is_baseline_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name == plain_name(name);
}

void check_baseline_name(const std::string& name) {
  if (is_baseline_name(name)) return;
  throw UserError("'" + name + "' cannot be the name of a baseline",
                  "letters, digits, '.', '_' and '-' are taken, no '.' in front");
}

std::vector<SavedBaseline> saved_baselines(const fs::path& folder) {
  std::vector<SavedBaseline> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!entry.is_directory(error)) continue;
    SavedBaseline baseline{entry.path().filename().string(), files_in(entry.path())};
    if (!baseline.files.empty()) all.push_back(std::move(baseline));
  }
  std::ranges::sort(all, {}, &SavedBaseline::name);
  return all;
}

fs::path path_or_baseline(const fs::path& path) {
  // A path that exists wins over a baseline of the same name, so a run folder is never shadowed.
  const fs::path saved = usual_baseline_folder / path;
  const bool is_saved = is_baseline_name(path) && !fs::exists(path) && fs::is_directory(saved);
  return is_saved ? saved : path;
}

SavedBaseline saved_baseline(const fs::path& folder, const std::string& name) {
  check_baseline_name(name);
  std::vector<std::string> names;
  for (SavedBaseline& baseline : saved_baselines(folder)) {
    if (baseline.name == name) return std::move(baseline);
    names.push_back(baseline.name);
  }
  const std::string nearest = nearest_name(name, names);
  throw UserError("there is no baseline '" + name + "' in " + folder.string(),
                  names.empty() ? "none is saved there" : fmt::format("{}", fmt::join(names, " ")),
                  nearest.empty() ? "" : "Did you mean '" + nearest + "'?");
}

std::vector<fs::path> save_baseline(const fs::path& folder, const std::string& name,
                                    const std::vector<RunDigest>& runs) {
  check_baseline_name(name);
  const fs::path home = folder / name;
  std::error_code error;
  fs::create_directories(home, error);
  if (error) throw UserError("cannot create " + home.string(), error.message());
  // All new files are written before an old one is removed, so a crash between leaves too many
  // files and never too few.
  std::vector<fs::path> written;
  std::set<std::string> keys;
  for (const RunDigest& run : runs) {
    written.push_back(home / baseline_file_name(run));
    write_file_atomically(written.back(), read_run_file(run.record));
    keys.insert(key_of(run));
  }
  for (const fs::path& file : files_in(home)) {
    const bool is_new = std::find(written.begin(), written.end(), file) != written.end();
    if (!is_new && keys.contains(split_name(file.filename().string())->key)) fs::remove(file);
  }
  return written;
}

void remove_baseline(const fs::path& folder, const std::string& name) {
  for (const fs::path& file : saved_baseline(folder, name).files) fs::remove(file);
  // Removing a folder that still holds other files fails, and that is meant: they are not ours.
  std::error_code not_empty;
  fs::remove(folder / name, not_empty);
}

}  // namespace heteroperf
