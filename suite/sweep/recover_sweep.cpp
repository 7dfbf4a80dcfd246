#include "suite/sweep/recover_sweep.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/comparison/run_digest.hpp"
#include "results/recover.hpp"
#include "results/run_folder.hpp"
#include "suite/sweep/folder_lock.hpp"
#include "suite/sweep/rebuild_index.hpp"
#include "suite/sweep/run_outcome.hpp"
#include "suite/sweep/swept_runs.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Under a second name, so that one of them is there whatever happens; moved where the file system
/// cannot do that.
void keep_file(const fs::path& file, const fs::path& kept) {
  std::error_code error;
  if (fs::is_regular_file(file, error)) {
    fs::create_hard_link(file, kept, error);
    if (!error || fs::copy_file(file, kept, error)) return;
  }
  fs::rename(file, kept, error);
  if (error) throw SystemError("cannot move " + file.string(), error.message());
}

bool has_record(const fs::path& folder) {
  try {
    read_run_digest(RunFiles{folder}.record());
    return true;
  } catch (const UserError&) {
    return false;
  }
}

/// Whether a run, or a workload of a suite, has a journal and no record that can be read.
bool lacks_record(const fs::path& home) {
  const std::vector<fs::path> journals = journals_in(home);
  return std::any_of(journals.begin(), journals.end(),
                     [](const fs::path& journal) { return !has_record(journal.parent_path()); });
}

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
  /// It may plan more than this program can read.
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

  /// Of the runs that a kill left without one.
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

  void rebuild() {
    RebuiltIndex rebuilt = rebuild_index(folder_);
    for (const std::string& one : rebuilt.warnings) recovered_.warnings.push_back(one);
    parse_sweep(sweep_json_text(rebuilt.index), "what the runs in " + folder_.string() + " tell");
    keep_old_file(rebuilt.index);
    write_sweep(folder_, rebuilt.index);
    recovered_.done =
        fmt::format("sweep.json {}; it is made again from {} run{}", damage_,
                    rebuilt.index.runs.size(), rebuilt.index.runs.size() == 1 ? "" : "s");
  }

  /// An edited or torn one may still tell a reader what was planned.
  void keep_old_file(SweepIndex& index) const {
    const fs::path file = sweep_file(folder_);
    if (!fs::exists(file) || (fs::is_regular_file(file) && fs::is_empty(file))) return;
    fs::create_directories(folder_ / "aside");
    std::string name;
    for (int i = 1; name.empty() || fs::exists(folder_ / name); ++i) {
      name = fmt::format("aside/sweep.json-{}", i);
    }
    keep_file(file, folder_ / name);
    index.set_aside.push_back({name, "damaged", "sweep.json " + damage_});
  }

  const fs::path& folder_;
  std::string text_;  ///< of `index_`
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
