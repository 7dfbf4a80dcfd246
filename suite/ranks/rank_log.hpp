#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "results/journal/events.hpp"

namespace heteroperf {

/// The log of one rank: `rank-<n>.log` in the run folder, one line per event with the seconds since
/// the rank's start, written at once. No part of the record: nothing is computed from it, `verify`
/// does not look at it.
class RankLog {
 public:
  /// Makes the folder where it is missing (a host of its own). Throws SystemError when the file
  /// cannot be made; a later failure is told on stderr once and does not end the run.
  RankLog(const std::filesystem::path& folder, int rank);

  void write(const std::string& text);
  /// Writes an event that the rank told the journal; one that comes with every step is left out.
  void note(const Event& event);
  /// The first step of a model, then one every ten seconds.
  void step(std::uint64_t n, double loss);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
  std::int64_t start_ns_, next_step_ns_ = 0;
  bool broken_ = false;
};

}  // namespace heteroperf
