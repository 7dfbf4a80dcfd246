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

/// Makes an index from the places that the runs in a folder name.
class IndexOfRuns {
 public:
  IndexOfRuns(const fs::path& folder, std::vector<std::string>& warnings)
      : folder_(folder), warnings_(warnings) {}

  SweepIndex make() {
    take_runs();
    require_one_sweep();
    const SweepPlace& first = *runs_.front().place;
    index_.sweep_id = first.sweep_id;
    index_.created_utc = first.created_utc;
    index_.command = first.command;
    index_.axes = first.axes;
    index_.first_seed = first.seed - first.repeat;
    for (const SweptRun& run : runs_) add(run);
    list_set_aside();
    list_unknown();
    return std::move(index_);
  }

 private:
  /// Takes the runs that name a place and lie in the folder of that place, by their numbers.
  void take_runs() {
    const std::vector<SweptRun> all = swept_runs(folder_);
    for (const SweptRun& run : all) {
      const std::string why = why_no_run(run);
      if (why.empty()) {
        runs_.push_back(run);
      } else {
        warnings_.push_back(fmt::format("{} is left out: {}", run.folder, why));
      }
    }
    std::sort(runs_.begin(), runs_.end(), [](const SweptRun& a, const SweptRun& b) {
      return a.place->number < b.place->number;
    });
    if (!runs_.empty()) return;
    throw UserError(
        "no run in " + folder_.string() + " tells of a sweep",
        all.empty() ? "no folder in it is named as a sweep's run, 001-ranks=1-seed=1"
                    : fmt::format("{}: {}", all.front().folder, why_no_run(all.front())),
        "`heteroperf recover` of a run's own folder makes its record from its journal; the same "
        "options with another --out run the sweep anew.");
  }

  /// Says why a folder holds no run that the sweep has in that place; empty where it does.
  static std::string why_no_run(const SweptRun& run) {
    if (!run.place) return run.silence;
    const SweepPlace& place = *run.place;
    const std::string name = sweep_run_folder(place.number, place.point, place.seed);
    return name == run.folder ? "" : fmt::format("it was {} when it was run", name);
  }

  /// Two sweeps in one folder have no common index.
  void require_one_sweep() const {
    const SweptRun& first = runs_.front();
    for (const SweptRun& run : runs_) {
      if (sweep_of(*run.place) == sweep_of(*first.place)) continue;
      throw UserError("the runs in " + folder_.string() + " are of several sweeps",
                      fmt::format("{} is of {}, {} of {}", first.folder, sweep_text(*first.place),
                                  run.folder, sweep_text(*run.place)),
                      "Move those of the other sweep to a folder of their own.");
    }
  }

  /// Adds a run with its state as its folder tells it.
  void add(const SweptRun& swept) {
    const SweepPlace& place = *swept.place;
    SweepRun run;
    run.folder = swept.folder;
    run.number = place.number;
    std::vector<SweepPoint>& points = index_.points;
    const auto known = std::find(points.begin(), points.end(), place.point);
    run.point = static_cast<std::size_t>(known - points.begin());
    if (known == points.end()) points.push_back(place.point);
    run.repeat = place.repeat;
    run.seed = place.seed;
    tell_outcome(folder_ / run.folder, run);
    index_.repeats = std::max(index_.repeats, run.repeat + 1);
    index_.runs.push_back(std::move(run));
  }

  /// Only the lost index told why they were set aside; their own state still does.
  void list_set_aside() {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_ / "aside", error)) {
      const std::string name = entry.path().filename().string();
      const std::string why = entry.is_directory(error) ? why_incomplete(entry.path())
                                                        : "an index that could not be used";
      index_.set_aside.push_back({"aside/" + name, "not known", why});
    }
    std::sort(index_.set_aside.begin(), index_.set_aside.end(),
              [](const SetAside& a, const SetAside& b) { return a.folder < b.folder; });
  }

  /// Says which runs of the plan may be missing: gaps between the numbers, and the end of the list.
  void list_unknown() {
    std::vector<std::string>& unknown = index_.unknown;
    std::size_t next = 1;
    for (const SweepRun& run : index_.runs) {
      if (run.number > next) {
        unknown.push_back(
            fmt::format("what {} was to be: it is not here", numbers_text(next, run.number - 1)));
      }
      next = run.number + 1;
    }
    unknown.push_back(
        fmt::format("runs after {:03} that were planned and never started", next - 1));
    unknown.push_back("how long the processes of its runs took");
  }

  const fs::path& folder_;
  std::vector<std::string>& warnings_;
  std::vector<SweptRun> runs_;  // each with its place, by number
  SweepIndex index_;
};

/// Recovers one sweep: first the records, because the state of a run follows from them, then the
/// index, which stays where it is sound.
class SweepRecovery {
 public:
  explicit SweepRecovery(const fs::path& folder) : folder_(folder) {}

  RecoveredSweep run() {
    refuse_another_version();
    recover_records();
    if (read_sound_index()) {
      note_complete_runs();
    } else {
      rebuild();
    }
    return std::move(recovered_);
  }

 private:
  /// An index of another version may plan more than this program can read.
  void refuse_another_version() const {
    const fs::path file = sweep_file(folder_);
    std::error_code error;
    if (!fs::is_regular_file(file, error)) return;
    try {
      if (!is_of_another_version(read_text_file(file))) return;
    } catch (const UserError&) {
      return;  // read_sound_index() says why
    }
    read_sweep(folder_);
  }

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
    SweepIndex index = IndexOfRuns(folder_, recovered_.warnings).make();
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
