#include "results/comparison/run_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "metrics/error.hpp"
#include "results/comparison/baseline_store.hpp"
#include "results/comparison/parallel_rows.hpp"
#include "results/run_folder.hpp"
#include "results/sweep/sweep_index.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
constexpr int deepest = 4;

/// Collects what lies below one path.
class RunSearch {
 public:
  explicit RunSearch(RunSet& found) : found_(found) {}

  /// Reads all that was looked at.
  void read_records() {
    std::vector<std::optional<RunDigest>> digests(records_.size());
    std::vector<std::string> reasons(records_.size());
    in_parallel(records_.size(), [&](std::size_t i) {
      try {
        digests[i] = read_run_digest(records_[i]);
        check_baseline_file(records_[i], digests[i]->record_sha256);
      } catch (const Error& error) {
        digests[i].reset();
        reasons[i] = error.what();
      }
    });
    for (std::size_t i = 0; i < records_.size(); ++i) {
      if (digests[i]) {
        found_.runs.push_back(std::move(*digests[i]));
      } else {
        found_.skipped.push_back({records_[i], reasons[i]});
      }
    }
  }

  void look_at(const fs::path& path, int depth) {
    if (fs::is_regular_file(path)) return look_at_file(path, depth);
    const RunFiles files{path};
    if (fs::exists(files.record())) return read(files.record());
    if (fs::exists(files.journal())) {
      found_.skipped.push_back({path,
                                "unfinished: a journal without record.json (heteroperf "
                                "recover makes it)"});
      return;
    }
    if (is_sweep_folder(path)) return look_at_sweep(path, depth);
    if (depth == deepest) return;
    for (const fs::path& entry : entries_of(path)) look_at(entry, depth + 1);
  }

 private:
  /// What was set aside, and what is not there yet, is no result.
  void look_at_sweep(const fs::path& folder, int depth) {
    try {
      for (const SweepRun& run : read_sweep(folder).runs) {
        const bool ended =
            run.state == SweepRunState::complete || run.state == SweepRunState::failed;
        if (ended && fs::exists(folder / run.folder)) look_at(folder / run.folder, depth + 1);
      }
    } catch (const UserError& error) {
      found_.skipped.push_back({sweep_file(folder), error.what()});
    }
  }

  static std::vector<fs::path> entries_of(const fs::path& folder) {
    std::vector<fs::path> entries;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (!entry.is_symlink(error)) entries.push_back(entry.path());
    }
    std::sort(entries.begin(), entries.end());
    return entries;
  }

  void look_at_file(const fs::path& path, int depth) {
    // A file that was named itself is what it is; in a folder only what looks like a record is.
    if (depth == 0 || is_baseline_file_name(path.filename().string())) return read(path);
    ++found_.foreign;
  }

  void read(const fs::path& record) { records_.push_back(record); }

  RunSet& found_;
  std::vector<fs::path> records_;
};

void add_key_differences(const RunDigest& a, const RunDigest& b, const std::string& name_a,
                         const std::string& name_b, std::vector<Problem>& problems) {
  for (std::size_t i = 0; i < a.key.size(); ++i) {
    if (a.key[i] == b.key[i]) continue;
    const auto text = [](const std::string& value) { return value.empty() ? "(none)" : value; };
    problems.push_back({fmt::format("{} differs", a.key[i].name),
                        fmt::format("{} in {}, {} in {}", text(a.key[i].value), name_a,
                                    text(b.key[i].value), name_b),
                        ""});
  }
}

}  // namespace

RunSet find_runs(const std::vector<fs::path>& paths) {
  RunSet found;
  RunSearch search(found);
  for (const fs::path& path : paths) {
    if (!fs::exists(path)) throw UserError("no such run: " + path.string());
    search.look_at(path, 0);
  }
  search.read_records();
  std::stable_sort(found.runs.begin(), found.runs.end(),
                   [](const RunDigest& a, const RunDigest& b) {
                     return std::tie(a.created_utc, a.run_id) < std::tie(b.created_utc, b.run_id);
                   });
  std::set<std::string> seen;
  std::erase_if(found.runs, [&](const RunDigest& run) { return !seen.insert(run.run_id).second; });
  return found;
}

RunSet require_runs(const std::vector<fs::path>& paths) {
  RunSet found;
  for (const fs::path& path : paths) {
    const RunSet here = find_runs({path});
    for (const SkippedEntry& skipped : here.skipped) {
      throw UserError("cannot use " + skipped.path.string(), skipped.reason);
    }
    if (here.runs.empty()) {
      throw UserError(path.string() + " holds no record",
                      "neither it nor the folders in it have a record.json");
    }
    found.runs.insert(found.runs.end(), here.runs.begin(), here.runs.end());
  }
  const auto edited = contradictions(found.runs);
  for (std::size_t i = 0; i < found.runs.size(); ++i) {
    const RunDigest& run = found.runs[i];
    if (edited[i]) {
      throw Error(ErrorKind::verification, {{run.record.string() + " is not what was measured",
                                             *edited[i], "`heteroperf verify` shows all of it."}});
    }
    if (run.severity == "invalid") {
      throw Error(ErrorKind::invalid_result, {{run.record.string() + " is invalid by the rules",
                                               fmt::format("{}", fmt::join(run.reasons, "; ")),
                                               "`heteroperf show` says what can be done."}});
    }
  }
  return found;
}

void require_comparable(const RunSet& a, const RunSet& b, const std::string& name_a,
                        const std::string& name_b) {
  std::vector<Problem> problems;
  const RunDigest& first = a.runs.front();
  for (const auto& [set, name] : {std::pair(&a, name_a), std::pair(&b, name_b)}) {
    for (const RunDigest& run : set->runs) {
      if (!problems.empty()) break;
      const bool same_side = set == &a;
      const std::string in_first = same_side ? first.record.string() : name_a;
      add_key_differences(first, run, in_first, same_side ? run.record.string() : name, problems);
    }
  }
  if (!problems.empty()) throw Error(ErrorKind::not_comparable, std::move(problems));
}

std::vector<std::optional<std::string>> contradictions(const std::vector<RunDigest>& digests) {
  std::vector<std::optional<std::string>> found(digests.size());
  in_parallel(digests.size(), [&](std::size_t i) { found[i] = contradiction(digests[i]); });
  return found;
}

std::vector<EnvironmentDifference> environment_differences(const RunDigest& a, const RunDigest& b) {
  std::set<std::string> paths;
  for (const auto& [path, value] : a.environment) paths.insert(path);
  for (const auto& [path, value] : b.environment) paths.insert(path);
  const auto value_of = [](const RunDigest& run, const std::string& path) {
    const auto found = run.environment.find(path);
    return found == run.environment.end() ? std::string() : found->second;
  };
  std::vector<EnvironmentDifference> differences;
  for (const std::string& path : paths) {
    const std::string in_a = value_of(a, path), in_b = value_of(b, path);
    if (in_a != in_b) differences.push_back({path, in_a, in_b});
  }
  return differences;
}

}  // namespace heteroperf
