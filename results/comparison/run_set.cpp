// Finds the runs below the paths that a user named. A path may be a record, a run folder, a suite,
// a sweep, a saved baseline, or a folder of any of these. The search first collects the places of
// records and then reads them in parallel, since reading is what takes long. Whatever looks like a
// run and cannot be used is *skipped* with a reason and never dropped in silence: a list that lacks
// a run without saying so would be read as complete. A path below which nothing was found is
// *barren*. The same run is often found twice, in its run folder and as a saved baseline or in a
// copied folder, so last of all copies are set aside.

#include "results/comparison/run_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "metrics/base/error.hpp"
#include "results/comparison/baseline_store.hpp"
#include "results/comparison/parallel_rows.hpp"
#include "results/comparison/record_doubt.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/suite_record.hpp"
#include "results/sweep/sweep_index.hpp"
#include "results/text/sha256.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
constexpr int deepest = 4;

/// Collects what lies below the paths into a RunSet: look_at_given() for each path, then
/// read_records(), then judge_suites(). A record that several paths lead to is read once.
class RunSearch {
 public:
  explicit RunSearch(RunSet& run_set) : found_(run_set) {}

  /// Reads the records that were found. Results go to places of their own first, so the order of
  /// the runs does not depend on the threads.
  void read_records() {
    std::vector<std::optional<RunDigest>> digests(records_.size());
    std::vector<std::optional<SkippedEntry>> skipped(records_.size());
    in_parallel(records_.size(), [&](std::size_t i) {
      try {
        digests[i] = read_checked(records_[i]);
      } catch (const Error& error) {
        skipped[i].emplace(records_[i], error.what(), error);
      }
    });
    for (auto& digest : digests) {
      if (digest) found_.runs.push_back(std::move(*digest));
    }
    for (auto& entry : skipped) {
      if (entry) found_.skipped.push_back(std::move(*entry));
    }
  }

  /// Judges suite.json of the suites that were found. Each run of a suite counts by itself; a suite
  /// whose own file says otherwise than its runs is skipped, and one without a score is noted.
  void judge_suites() {
    for (const fs::path& folder : suites_) {
      const fs::path file = RunFiles{folder}.suite();
      try {
        if (const std::string wrong = suite_contradiction(folder); !wrong.empty()) {
          const RecordDoubt doubt = edited_record(wrong);
          found_.skipped.push_back({file, doubt.text(), doubt.error(file.string())});
        } else if (std::string why = why_no_suite_score(folder); !why.empty()) {
          found_.suites.push_back({file, std::move(why)});
        }
      } catch (const Error& error) {
        found_.skipped.push_back({file, error.what(), error});
      }
    }
  }

  /// A path that leads to a run that was found before is not barren: `seen_` counts it again.
  void look_at_given(const fs::path& path) {
    const std::size_t before = seen_ + found_.skipped.size();
    look_at(path, 0);
    if (seen_ + found_.skipped.size() == before) found_.barren.push_back(path);
  }

 private:
  /// A run folder ends the search: its baselines and checkpoints are not runs of their own. It ends
  /// `deepest` levels down too, so that a huge folder does not hold it up for long.
  void look_at(const fs::path& path, int depth) {
    std::error_code error;
    if (fs::is_regular_file(path, error)) {
      // A file that was named itself is what it is; in a folder only what looks like a record is.
      if (depth == 0 || is_baseline_file_name(path.filename().string())) return read(path);
      ++found_.foreign;
      return;
    }
    const RunFiles files{path};
    if (fs::exists(files.record(), error)) return read(files.record());
    if (error) {
      found_.skipped.push_back({path, fmt::format("it cannot be read ({})", error.message())});
      return;
    }
    if (fs::exists(files.journal())) {
      found_.skipped.push_back({path,
                                "unfinished: a journal without record.json (heteroperf "
                                "recover makes it)"});
      return;
    }
    if (is_sweep_folder(path)) return look_at_sweep(path, depth);
    if (depth == deepest) return;
    if (fs::exists(files.suite(), error) && is_new(path)) suites_.push_back(path);
    for (const fs::path& entry : entries_of(path)) look_at(entry, depth + 1);
  }

  /// Only the runs of the index that ended are results: a folder that was set aside, and a run that
  /// has not been made yet, are none. A sweep whose index cannot be read still has its runs in
  /// their folders; what a sweep sets aside is left out here as well.
  void look_at_sweep(const fs::path& folder, int depth) {
    std::vector<SweepRun> runs;
    try {
      runs = read_sweep(folder).runs;
    } catch (const UserError& error) {
      found_.skipped.push_back({sweep_file(folder), error.what()});
      for (const fs::path& entry : entries_of(folder)) {
        const bool run = fs::is_directory(entry) && entry.filename() != "aside";
        if (run && depth < deepest) look_at(entry, depth + 1);
      }
    }
    for (const SweepRun& run : runs) {
      const bool ended = run.state == SweepRunState::complete || run.state == SweepRunState::failed;
      if (ended && fs::exists(folder / run.folder)) look_at(folder / run.folder, depth + 1);
    }
  }

  /// Reads one record. The hash in the name of a saved baseline is checked first, because an edited
  /// file need not be readable and the better message is that it was edited.
  static RunDigest read_checked(const fs::path& record) {
    const std::string text = read_run_file(record);
    if (is_baseline_file_name(record.filename().string())) {
      check_baseline_file(record, sha256_hex(text));
    }
    return parse_run_digest(text, record);
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

  /// False for a place that another path or link has led to before: it is read once.
  bool is_new(const fs::path& path) {
    std::error_code error;
    const fs::path place = fs::weakly_canonical(path, error);
    return places_.insert(error ? path : place).second;
  }

  void read(const fs::path& record) {
    ++seen_;
    if (is_new(record)) records_.push_back(record);
  }

  RunSet& found_;
  std::vector<fs::path> records_, suites_;
  std::set<fs::path> places_;
  std::size_t seen_ = 0;
};

/// All entries are reported at once. A contradiction weighs more than a file that cannot be read,
/// so it decides the kind, and with it the exit code.
void refuse_skipped(const std::vector<SkippedEntry>& skipped) {
  if (skipped.empty()) return;
  ErrorKind kind = skipped.front().kind;
  std::vector<Problem> problems;
  for (const SkippedEntry& skipped_entry : skipped) {
    if (skipped_entry.kind == ErrorKind::verification) kind = skipped_entry.kind;
    problems.insert(problems.end(), skipped_entry.problems.begin(), skipped_entry.problems.end());
  }
  throw Error(kind, std::move(problems));
}

void refuse_barren(const std::vector<fs::path>& barren) {
  ProblemList problems;
  for (const fs::path& path : barren) {
    problems.add(path.string() + " holds no record",
                 "neither it nor the folders in it have a record.json");
  }
  problems.throw_if_any();
}

// ---------------------------------------------------------------- copies

/// One of several records of a run.
struct RunCopy {
  std::size_t place;
  bool has_journal;
  std::optional<RecordDoubt> doubt;

  /// A journal beside a record confirms or contradicts it; a record without one is neither.
  int distrust() const { return doubt ? 2 : has_journal ? 0 : 1; }
};

/// The records whose run_id others have too, by run_id. Only these are held to their journals, as
/// reading one takes long, and as copies: holding a digest to its journal changes it.
std::map<std::string, std::vector<RunCopy>> repeated_runs(const std::vector<RunDigest>& runs) {
  std::map<std::string, std::size_t> records;
  for (const RunDigest& run : runs) ++records[run.run_id];
  std::vector<std::size_t> places;
  std::vector<RunDigest> digests;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (records[runs[i].run_id] < 2) continue;
    places.push_back(i);
    digests.push_back(runs[i]);
  }
  const auto doubts = hold_to_journals(digests);
  std::map<std::string, std::vector<RunCopy>> copies;
  for (std::size_t i = 0; i < places.size(); ++i) {
    copies[runs[places[i]].run_id].push_back({places[i], has_journal(digests[i]), doubts[i]});
  }
  return copies;
}

/// Two records of one run that differ, and neither of them is known to be wrong.
SkippedEntry other_record(const RunDigest& copy, const RunDigest& kept) {
  const std::string reason =
      fmt::format("another record of {} than {}", copy.run_id, kept.record.string());
  return {copy.record, reason,
          UserError(copy.record.string() + " cannot be told from a run that is there already",
                    reason, "Leave one of the two out.")};
}

/// Leaves one record of each run_id, the one that can be trusted most and of equal ones the first:
/// counting a run twice would make two repetitions of one measurement and an interval that is too
/// narrow. Copies with the same content vanish without a word; one with another content, or that
/// its journal contradicts, moves to `skipped`.
void set_copies_aside(RunSet& run_set) {
  std::vector<char> leaves(run_set.runs.size(), 0);
  for (const auto& [run_id, copies] : repeated_runs(run_set.runs)) {
    const RunCopy& kept = *std::ranges::min_element(copies, {}, &RunCopy::distrust);
    for (const RunCopy& copy : copies) {
      if (&copy == &kept) continue;
      leaves[copy.place] = 1;
      const RunDigest &run = run_set.runs[copy.place], &other = run_set.runs[kept.place];
      if (copy.doubt) {
        run_set.skipped.push_back(
            {run.record, copy.doubt->text(), copy.doubt->error(run.record.string())});
      } else if (run.record_sha256 != other.record_sha256) {
        run_set.skipped.push_back(other_record(run, other));
      }
    }
  }
  std::size_t place = 0;
  std::erase_if(run_set.runs, [&](const RunDigest&) { return leaves[place++] != 0; });
}

}  // namespace

SkippedEntry::SkippedEntry(fs::path place, std::string why)
    : path(std::move(place)),
      reason(std::move(why)),
      problems{{"cannot use " + path.string(), reason, ""}} {}

RunSet find_runs(const std::vector<fs::path>& paths) {
  RunSet run_set;
  RunSearch search(run_set);
  for (const fs::path& path : paths) {
    std::error_code error;
    if (!fs::exists(path, error)) throw no_such_run(path);
    search.look_at_given(path);
  }
  search.read_records();
  search.judge_suites();
  std::ranges::stable_sort(run_set.runs, {}, &RunDigest::by_date);
  set_copies_aside(run_set);
  return run_set;
}

void require_some(const RunSet& run_set, const std::vector<fs::path>& paths) {
  const auto is_named_file = [&](const SkippedEntry& skipped_entry) {
    return fs::is_regular_file(skipped_entry.path) &&
           std::ranges::find(paths, skipped_entry.path) != paths.end();
  };
  if (!run_set.runs.empty() || !std::ranges::all_of(run_set.skipped, is_named_file)) return;
  refuse_skipped(run_set.skipped);
  refuse_barren(run_set.barren);
}

void set_aside_doubtful(RunSet& run_set) {
  // Journals are read in parallel, and the runs keep their order.
  const auto doubts = hold_to_journals(run_set.runs);
  auto doubt = doubts.begin();
  std::erase_if(run_set.runs, [&](const RunDigest& run) {
    const auto& why = *doubt++;
    if (why) run_set.skipped.push_back({run.record, why->text(), why->error("the record")});
    return why.has_value();
  });
}

RunSet require_runs(const std::vector<fs::path>& paths) {
  RunSet run_set = find_runs(paths);
  refuse_skipped(run_set.skipped);
  refuse_barren(run_set.barren);
  const auto doubts = hold_to_journals(run_set.runs);
  for (std::size_t i = 0; i < run_set.runs.size(); ++i) {
    const RunDigest& run = run_set.runs[i];
    if (doubts[i]) throw doubts[i]->error(run.record.string());
    if (run.severity == "invalid") {
      throw Error(ErrorKind::invalid_result, {{run.record.string() + " is invalid by the rules",
                                               fmt::format("{}", fmt::join(run.reasons, "; ")),
                                               "`heteroperf show` says what can be done."}});
    }
  }
  return run_set;
}

void require_disjoint(const RunSet& a, const RunSet& b, const std::string& name_a,
                      const std::string& name_b) {
  ProblemList problems;
  for (const RunDigest& run : a.runs) {
    const auto same = std::ranges::find(b.runs, run.run_id, &RunDigest::run_id);
    if (same == b.runs.end()) continue;
    problems.add(fmt::format("the run {} is in {} and in {}", run.run_id, name_a, name_b),
                 run.record == same->record
                     ? run.record.string()
                     : fmt::format("{} and {}", run.record.string(), same->record.string()),
                 "A run is no evidence against itself: leave it out of one side.");
  }
  problems.throw_if_any();
}

}  // namespace heteroperf
