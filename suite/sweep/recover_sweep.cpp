// Recovery makes again what a kill or an edit took from a sweep: records from the journals of the
// runs, and sweep.json from the first lines of these journals. There every run names its place
// (number, point, repetition, seed) and what all runs share (id, date, command, axes). An index
// that was made so lists the runs that are there and says what they cannot tell, above all runs
// that were never started; nothing is made up. The old file stays in aside/.

#include "suite/sweep/sweep_folder.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/comparison/run_digest.hpp"
#include "results/record/run_folder.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Gives the file a second name, so that one of them is there whatever happens; moves it where the
/// file system cannot do that.
void keep_file(const fs::path& file, const fs::path& kept) {
  std::error_code error;
  if (fs::is_regular_file(file, error)) {
    fs::create_hard_link(file, kept, error);
    if (!error || fs::copy_file(file, kept, error)) return;
  }
  fs::rename(file, kept, error);
  if (error) throw SystemError("cannot move " + file.string(), error.message());
}

/// True where a run, or a workload of a suite, has a journal and no record that can be read; the
/// record's numbers are not held to the journal.
bool lacks_record(const fs::path& home) {
  for (const fs::path& journal : journals_in(home)) {
    try {
      read_run_digest(RunFiles{journal.parent_path()}.record());
    } catch (const UserError&) {
      return true;
    }
  }
  return false;
}

/// Says "002" or "002 to 005".
std::string numbers_text(std::size_t first, std::size_t last) {
  return first == last ? fmt::format("{:03}", first) : fmt::format("{:03} to {:03}", first, last);
}

/// Keeps of a place what all runs of the sweep share.
SweepPlace sweep_of(SweepPlace place) {
  place.point.clear();
  place.number = place.repeat = place.seed = 0;
  return place;
}

/// Names a sweep by its id and its options, "sweep-x 'run --set workload=llm --sweep scale.ranks'".
std::string sweep_text(const SweepPlace& place) {
  std::string options;
  for (const auto& axis : place.axes) options += fmt::format(" --sweep {}", fmt::join(axis, ":"));
  return fmt::format("{} '{}{}'", place.sweep_id, fmt::join(place.command, " "), options);
}

/// Says why a folder holds no run that the sweep has in that place; empty where it does.
std::string why_no_run(const SweptRun& run) {
  if (!run.place) return run.silence;
  const std::string name = sweep_run_folder(run.place->number, run.place->point, run.place->seed);
  return name == run.folder ? "" : fmt::format("it was {} when it was run", name);
}

/// Takes the runs that name a place and lie in the folder of that place, by their numbers.
std::vector<SweptRun> runs_of_one_sweep(const fs::path& folder,
                                        std::vector<std::string>& warnings) {
  std::vector<SweptRun> runs = swept_runs(folder);
  const std::string silence =
      runs.empty() ? "no folder in it is named as a sweep's run, 001-ranks=1-seed=1"
                   : fmt::format("{}: {}", runs.front().folder, why_no_run(runs.front()));
  std::erase_if(runs, [&](const SweptRun& run) {
    const std::string why = why_no_run(run);
    if (!why.empty()) warnings.push_back(fmt::format("{} is left out: {}", run.folder, why));
    return !why.empty();
  });
  if (runs.empty()) {
    throw UserError(
        "no run in " + folder.string() + " tells of a sweep", silence,
        "`heteroperf recover` of a run's own folder makes its record from its journal; the same "
        "options with another --out run the sweep anew.");
  }
  std::ranges::sort(runs, {}, [](const SweptRun& run) { return run.place->number; });
  const SweptRun& first = runs.front();
  for (const SweptRun& run : runs) {
    if (sweep_of(*run.place) == sweep_of(*first.place)) continue;
    // Two sweeps in one folder have no common index.
    throw UserError("the runs in " + folder.string() + " are of several sweeps",
                    fmt::format("{} is of {}, {} of {}", first.folder, sweep_text(*first.place),
                                run.folder, sweep_text(*run.place)),
                    "Move those of the other sweep to a folder of their own.");
  }
  return runs;
}

/// Lists what lies in aside/. Only the lost index told why it was set aside; its own state still
/// does.
std::vector<SetAside> set_aside_in(const fs::path& folder) {
  std::vector<SetAside> list;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "aside", error)) {
    const std::string why = entry.is_directory(error) ? why_incomplete(entry.path())
                                                      : "an index that could not be used";
    list.push_back({"aside/" + entry.path().filename().string(), "not known", why});
  }
  std::ranges::sort(list, {}, &SetAside::folder);
  return list;
}

/// Says which runs of the plan may be missing: gaps between the numbers, and the end of the list.
std::vector<std::string> unknown_beside(const std::vector<SweepRun>& runs) {
  std::vector<std::string> unknown;
  std::size_t next = 1;
  for (const SweepRun& run : runs) {
    if (run.number > next) {
      unknown.push_back(
          fmt::format("what {} was to be: it is not here", numbers_text(next, run.number - 1)));
    }
    next = run.number + 1;
  }
  unknown.push_back(fmt::format("runs after {:03} that were planned and never started", next - 1));
  unknown.push_back("how long the processes of its runs took");
  return unknown;
}

/// Makes an index from the places that the runs in a folder name, with their states as their
/// folders tell them.
SweepIndex index_of_runs(const fs::path& folder, std::vector<std::string>& warnings) {
  const std::vector<SweptRun> runs = runs_of_one_sweep(folder, warnings);
  const SweepPlace& first = *runs.front().place;
  SweepIndex index;
  index.sweep_id = first.sweep_id;
  index.created_utc = first.created_utc;
  index.command = first.command;
  index.axes = first.axes;
  index.first_seed = first.seed - first.repeat;
  for (const SweptRun& swept : runs) {
    const SweepPlace& place = *swept.place;
    const auto known = std::find(index.points.begin(), index.points.end(), place.point);
    const auto point = static_cast<std::size_t>(known - index.points.begin());
    if (known == index.points.end()) index.points.push_back(place.point);
    index.runs.push_back(
        {swept.folder, point, place.repeat, place.seed, {}, {}, 0, {}, place.number});
    tell_outcome(folder / swept.folder, index.runs.back());
    index.repeats = std::max<std::size_t>(index.repeats, place.repeat + 1);
  }
  index.set_aside = set_aside_in(folder);
  index.unknown = unknown_beside(index.runs);
  return index;
}

/// Recovers one sweep: first the records, because the state of a run follows from them, then the
/// index, which stays where it is sound. One of another version is refused before anything is done:
/// it may plan more than this program can read.
class SweepRecovery {
 public:
  explicit SweepRecovery(const fs::path& folder) : folder_(folder) {}

  RecoveredSweep run() {
    const bool sound = read_sound_index();
    recover_records();
    if (sound) {
      note_complete_runs();
    } else {
      rebuild();
    }
    return std::move(recovered_);
  }

 private:
  /// Makes the records of the runs that a kill left without one.
  void recover_records() {
    for (const SweptRun& run : swept_runs(folder_)) {
      const fs::path home = folder_ / run.folder;
      if (const std::string why = why_unreadable(home); !why.empty()) warn(run.folder, why);
      if (!lacks_record(home)) continue;
      try {
        for (const std::string& warning : recover(home).warnings) warn(run.folder, warning);
      } catch (const Error& error) {
        warn(run.folder, error.what());
      }
    }
  }

  void warn(const std::string& run, const std::string& text) {
    recovered_.warnings.push_back(run + ": " + text);
  }

  /// False where sweep.json is not as it was written, which `damage_` then says.
  bool read_sound_index() {
    const fs::path file = sweep_file(folder_);
    if (!fs::exists(file)) {
      damage_ = "was missing";
      return false;
    }
    try {
      text_ = read_regular_file(file);
      index_ = parse_sweep(text_, file.string());
      const bool sound = index_.sealed ? has_own_seal(text_) : sweep_json_text(index_) == text_;
      if (!sound) damage_ = "was not as it was written";
      return sound;
    } catch (const UserError& error) {
      if (is_of_another_version(text_)) throw;
      const Problem& first = error.problems().front();
      damage_ = "could not be used: " + Problem{first.problem, first.why, ""}.text();
      return false;
    }
  }

  /// Marks runs that the index has as running or failed and that are complete, as after a kill of
  /// the sweep's process alone.
  void note_complete_runs() {
    std::size_t noted = 0;
    for (SweepRun& run : index_.runs) {
      const bool open = run.state != SweepRunState::complete;
      if (!open || !why_incomplete(folder_ / run.folder).empty()) continue;
      tell_outcome(folder_ / run.folder, run);
      ++noted;
    }
    const bool as_written = sweep_text_as_written(text_, index_) == text_;
    if (noted > 0 || !as_written) write_sweep(folder_, index_);
    recovered_.done = "sweep.json is sound";
    if (noted > 0) {
      recovered_.done +=
          fmt::format("; {} more run{} complete", noted, noted == 1 ? " is" : "s are");
    }
  }

  /// Writes an index of what the runs say, once it is known that it can be read again.
  void rebuild() {
    SweepIndex index = index_of_runs(folder_, recovered_.warnings);
    parse_sweep(sweep_json_text(index), "what the runs in " + folder_.string() + " tell");
    keep_old_file(index);
    write_sweep(folder_, index);
    recovered_.done = fmt::format("sweep.json {}; it is made again from {}", damage_,
                                  plural(index.runs.size(), "run"));
  }

  /// Keeps an edited or torn index, which may still tell a reader what was planned.
  void keep_old_file(SweepIndex& index) const {
    const fs::path file = sweep_file(folder_);
    if (!fs::exists(file) || (fs::is_regular_file(file) && fs::is_empty(file))) return;
    const std::string name = free_name_aside(folder_, "sweep.json");
    keep_file(file, folder_ / name);
    index.set_aside.push_back({name, "damaged", "sweep.json " + damage_});
  }

  const fs::path& folder_;
  std::string text_;  ///< the text of `index_`
  SweepIndex index_;
  std::string damage_;
  RecoveredSweep recovered_;
};

}  // namespace

RecoveredSweep recover_sweep(const fs::path& folder) {
  const FolderLock lock(folder, "Wait for it, then try again.");
  return SweepRecovery(folder).run();
}

}  // namespace heteroperf
