#pragma once

#include <cstdint>
#include <string>

namespace heteroperf {

/// What the progress line shows.
struct ProgressState {
  std::string phase;
  double fraction = 0;  ///< 0…1 of the phase
  double elapsed_s = 0;
  double units_per_second = 0;
  std::string unit;
  double loss = 0;
  std::string note;  ///< "trial 12"
};

/// One line on stderr with ETA, throughput and loss: rewritten in place on a terminal, a new line
/// every ten seconds elsewhere.
class ProgressLine {
 public:
  enum class Output { on, off };
  explicit ProgressLine(Output output);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Cheap when it is too early for a new line.
  void update(const ProgressState& state);
  /// Ends an unfinished line, so that other text starts on its own.
  void finish();

 private:
  bool due();

  Output output_;
  bool terminal_;
  bool open_ = false;
  std::int64_t next_ns_ = 0;
};

}  // namespace heteroperf
