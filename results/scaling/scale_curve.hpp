#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "results/comparison/run_digest.hpp"

namespace heteroperf {

/// A geometric mean over repetitions. Its interval is the one from run to run, or the run's own
/// where there is only one.
struct RepeatedRate {
  double value = 0;
  std::optional<Interval> ci95;
};

/// Repetitions of one run.
using Repetitions = std::vector<const RunDigest*>;
/// The quantity that is held against others: a rate above 0.
using RunRate = double (*)(const RunDigest& run);

/// The mean of values that were measured independently, at least one.
RepeatedRate repeated_rate(const std::vector<double>& values, const std::optional<Interval>& ci95);

/// Rate per device over the base's. With an interval where both sides have two runs or more that
/// can be paired: repetitions of one seed lie side by side in time.
RepeatedRate efficiency_against(const Repetitions& base, const Repetitions& runs, RunRate rate);

/// A scale that may be part of a curve.
struct ScaleMember {
  std::uint64_t devices = 0;
  std::string threads = {};  ///< per rank: "2", for several classes "1+4"
};

/// Scales that are held against the smallest of them.
struct ScaleCurve {
  std::vector<std::size_t> members;  ///< the smallest first
  /// No two scales have equally many threads: a machine divided among more ranks, so that there is
  /// a speed-up and no efficiency of a device.
  bool divided = false;
};

/// Finds the curves among scales that differ in nothing else. Scales with equally many threads form
/// a curve where at least two numbers of devices are among them; where there is no such curve, all
/// scales form a divided one. Fewer than two numbers of devices give none.
std::vector<ScaleCurve> scale_curves(const std::vector<ScaleMember>& members);

/// Threads of a rank, class by class: "2", "1+4".
std::string threads_text(const RunDigest& run);
/// "8 threads on 2 CPUs" where a run that is not emulated has more than its ranks may use; else
/// empty, also where that is not recorded.
std::string crowding_text(const RunDigest& run);

}  // namespace heteroperf
