#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "results/journal/journal.hpp"
#include "results/record/run_folder.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// A folder that disappears with the test.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The lines of a run that was never run: a valid one unless the options or the test say otherwise.
struct SampleRun {
  std::vector<JournalLine> lines;

  /// Text of the journal, hashes included.
  std::string text() const;
  Journal journal() const;
  /// Writes journal.jsonl alone, of lines that agree with one another (agreeing_run.hpp), then
  /// everything else with `finish_run` where asked. Where the run's classes have numbers without
  /// runs of their own, those are made first.
  void write(const RunFiles& files) const;
  void write_finished(const RunFiles& files) const;

  template <class T>
  T& last() {
    for (auto line = lines.rbegin();; ++line) {
      if (T* event = std::get_if<T>(&line->event)) return *event;
    }
  }
  /// The first event of this kind; null where there is none.
  template <class T>
  T* find() {
    for (JournalLine& line : lines) {
      if (T* event = std::get_if<T>(&line.event)) return event;
    }
    return nullptr;
  }
  /// Index of the first line of this kind.
  template <class T>
  std::size_t index() const {
    for (std::size_t i = 0;; ++i) {
      if (std::holds_alternative<T>(lines.at(i).event)) return i;
    }
  }
  void insert_before_stop(Event event);
  /// Nothing was trained: the parameters are those of the begin.
  void erase_steps();
  template <class T>
  void erase_all() {
    std::erase_if(lines, [](const JournalLine& l) { return std::holds_alternative<T>(l.event); });
  }
};

/// A model of trials that nobody else knows.
ModelGraph small_classifier(std::int64_t hidden = 8);
/// The model of fixed_run().
ModelGraph fixed_classifier();

struct SampleRunOptions {
  int ranks = 2;
  int warmup_steps = 2;
  int steps = 30;        ///< in the measured phase
  double step_s = 12.0;  ///< long enough for a closed run
  std::int64_t epoch_ns = 1'000'000'000;
};
/// One group, a fixed classifier, a final evaluation that meets the target.
SampleRun fixed_run(const SampleRunOptions& options = {});
/// OPS without operations on padding, which the peak is held against.
double rate_under_peak(SampleRun& run);

/// fixed_run() on two emulated classes, one stage each, with modelled time half as fast as real
/// time: a step is predicted to take 6 s and takes 6.12 s.
SampleRun planned_run();

/// Two groups of one rank and three trials; trial 1 of group 1 diverges, trial 2 is the best.
SampleRun search_run();

/// `run` as this workload of a suite.
SampleRun part_of_suite(SampleRun run, const SuitePlan& suite, const std::string& workload);
/// The plan of a suite with all workloads.
SuitePlan whole_suite(const std::string& run_id = "20260101T101500Z-suite-0123abcd");
/// The closed runs of a suite in `folder`, each faster than the one before it, and suite.json.
void store_suite(const std::filesystem::path& folder, const SuitePlan& suite);

}  // namespace heteroperf
