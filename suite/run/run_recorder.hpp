#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "results/journal/journal.hpp"
#include "results/record/rule_watch.hpp"
#include "results/record/run_folder.hpp"
#include "suite/run/prepare.hpp"
#include "suite/training/turn_taker.hpp"

namespace heteroperf {

/// The command behind a run.
struct RunIdentity {
  std::vector<std::string> argv;         ///< as typed, with the program
  std::string reproduce = {};            ///< one that is the same run anywhere
  std::optional<SuitePlan> suite = {};   ///< absent: the run is alone
  std::optional<SweepPlace> sweep = {};  ///< absent: no sweep started the run
};

/// One run's folder and journal, kept by rank 0. Whatever happens, `finish` (or a later `recover`)
/// makes the record from what the journal holds.
class RunRecorder {
 public:
  /// Creates the folder and writes the lines that open a journal. `folder` empty: the default name
  /// under results/.
  /// `turns`: of a run in lockstep, whose clock gives the lines' times; it outlives the recorder.
  RunRecorder(const RunConfig& config, const RunIdentity& identity, const std::string& workload,
              const std::filesystem::path& folder, TurnTaker* turns = nullptr);

  JournalWriter& journal() { return *journal_; }
  const RunFiles& files() const { return files_; }
  /// Rank 0's part in a run of which this is the recorder.
  FirstRank first_rank(ProgressLine* progress, TurnTaker* turns) {
    return {journal_.get(), progress, turns, name_.run_id, files_.folder};
  }

  /// The lines that say what runs where. What the ruleset says of such a run already.
  Validity describe(const PreparedRun& run, const std::string& libtorch_version);

  /// Appends the stop line, then record.json, samples.h5 and the companion files. Only the first
  /// call counts.
  FinishedRun finish(RunStatus status, const std::string& reason, std::int32_t exit_code);
  bool finished() const { return closed_; }  // set by the thread that asks
  /// For failure paths: writes what the journal still buffers, if it is open.
  void flush() noexcept {
    if (journal_) journal_->flush_now();
  }

 private:
  void watch_rules();
  void open(const Event& event);

  RunName name_;
  RunFiles files_;
  Journal opening_;  // the lines before the run begins
  RuleWatch watch_;
  std::mutex closing_;
  bool closed_ = false;                     // guarded by closing_: no line follows the stop
  Severity standing_ = Severity::closed;    // guarded by closing_: the class so far
  std::unique_ptr<JournalWriter> journal_;  // its thread uses what is above
};

}  // namespace heteroperf
