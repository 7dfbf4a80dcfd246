#pragma once

#include <cstdint>
#include <string>

namespace heteroperf {

struct GlobalOptions;

/// The content of the progress line; a phase that has just begun has a note at most.
struct ProgressState {
  std::string phase;
  double fraction = 0;  ///< 0…1 of the phase; below 0.01 nothing is told of it
  double elapsed_s = 0;
  double units_per_second = 0;
  std::string unit = {};
  double loss = 0;
  std::string note = {};  ///< "trial 12"
};

/// One line on stderr with ETA, throughput and loss: rewritten in place on a terminal, elsewhere a
/// new line every ten seconds and whenever a phase begins.
class ProgressLine {
 public:
  /// Silent where the user wants it quiet.
  explicit ProgressLine(const GlobalOptions& options);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// A whole line of its own, at once.
  void say(const std::string& text);
  /// Cheap when it is too early for a new line. The first one of a phase is never too early.
  void update(const ProgressState& state);
  /// Ends an unfinished line, so that other text starts on its own.
  void finish();

 private:
  bool silent_, terminal_;
  std::string phase_;
  bool open_ = false;
  std::int64_t next_ns_ = 0;
};

}  // namespace heteroperf
