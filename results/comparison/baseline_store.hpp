#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "results/comparison/run_digest.hpp"
#include "results/comparison/run_set.hpp"

namespace heteroperf {

/// Saved baselines are plain files, one record each, byte for byte, so that version control merges
/// them: `<folder>/<name>/<workload>-<size>-<precision>-<ranks>r-<key>-<content>.json`, `key` and
/// `content` the first 8 and 12 digits of the SHA-256 of the run's key and of the file.
std::string baseline_file_name(const RunDigest& run);
bool is_baseline_file_name(const std::string& name);
/// True when a file of that name holds a run of this one's key.
bool has_key_of(const std::string& file_name, const RunDigest& run);

/// Throws Error{verification} where a file of that form holds another content than it names.
void check_baseline_file(const std::filesystem::path& file, const std::string& sha256);

/// One name in a folder of baselines.
struct SavedBaseline {
  std::string name;
  std::vector<std::filesystem::path> files;
};
std::vector<SavedBaseline> saved_baselines(const std::filesystem::path& folder);
/// Throws UserError naming the nearest one.
SavedBaseline saved_baseline(const std::filesystem::path& folder, const std::string& name);

/// The folder of baselines unless somebody names another one, seen from the working directory.
inline constexpr const char* usual_baseline_folder = "baselines";
/// `path` if it is there; else the saved baseline of that name, if it is one.
std::filesystem::path path_or_baseline(const std::filesystem::path& path);

/// True for a name of letters, digits, '.', '_' and '-' that does not begin with '.'.
bool is_baseline_name(const std::string& name);
/// Throws UserError unless `name` is made of letters, digits, '.', '_' and '-'.
void check_baseline_name(const std::string& name);

/// Puts the runs in place of those of the same keys, new files before old ones go. Other keys of
/// that name stay.
std::vector<std::filesystem::path> save_baseline(const std::filesystem::path& folder,
                                                 const std::string& name,
                                                 const std::vector<RunDigest>& runs);
/// Removes the files of that name, and its folder once nothing else is in it.
void remove_baseline(const std::filesystem::path& folder, const std::string& name);

/// Says if new runs may take the place of saved ones. The values are ordered by weight: of several
/// objections the last one counts.
enum class ReplacementVerdict { allowed, inconclusive, regression };
constexpr std::array<const char*, 3> value_names(ReplacementVerdict) {
  return {"allowed", "inconclusive", "regression"};
}

struct BaselineReplacement {
  ReplacementVerdict verdict = ReplacementVerdict::allowed;
  std::vector<std::string> reasons;  ///< against it, a metric each
};

/// Compares runs with those of their keys that are saved in `home`, a baseline's folder, which may
/// be absent. `regression`: a metric is worse. `inconclusive`: a statistical one is, by more than
/// the fraction `threshold` (with a single run on a side: than single_run_noise), but that may be
/// chance; or throughput is not to be had. Throws Error of the file's kind where a saved file that
/// would be replaced is unusable.
BaselineReplacement judge_replacement(const std::filesystem::path& home, const RunSet& runs,
                                      double threshold);

}  // namespace heteroperf
