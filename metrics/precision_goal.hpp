#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "metrics/rate.hpp"

namespace heteroperf {

/// The goal of a measurement that goes on until its rate is known well enough: how narrow the
/// rate's interval shall be, and when the measurement looks at it (README, "Measuring until an
/// interval is narrow").
struct PrecisionGoal {
  double fraction = 0;  ///< half of the interval, as a share of the rate
  /// Steps measured before the first look. The next looks come at twice, four times … as many steps
  /// as the first one had.
  std::uint64_t fewest_steps = 40;
  double fewest_s = 20;             ///< seconds measured before the first look
  std::uint32_t blocks = 5;         ///< the window is resampled in about so many blocks
  std::uint32_t fewest_blocks = 3;  ///< and once more in so many, to see slow drifts
  double misses = 0.05;             ///< chance that any of all looks misses the true rate

  /// Returns the coverage of the interval at a look, counted from 1 on. The chances to miss of all
  /// looks add up to `misses`.
  double coverage(std::size_t look) const;

  friend bool operator==(const PrecisionGoal&, const PrecisionGoal&) = default;
};

/// The result of one look: a pure function of the goal, the look's number, the window and its
/// steps.
struct PrecisionLook {
  TimeWindow window;
  bool settled = true;      ///< false while the steps in the window still become faster
  std::uint64_t steps = 0;  ///< steps that end in the window
  double coverage = 0;      ///< coverage of the resampled intervals
  /// The widest side / rate of the intervals that the goal is held to: that in `blocks`, and that
  /// in `fewest_blocks` of coverage 95 %. Absent with fewer than 10 steps.
  std::optional<double> half_width_fraction;
  bool reached = false;
  /// The interval to report. Where the goal is reached it is as wide as the goal: a look ends the
  /// measurement because it saw little noise, which may have been luck. Elsewhere it is the wider
  /// one of those resampled in `blocks` and in `fewest_blocks`.
  std::optional<Interval> interval = {};
};

/// Returns how many looks a measurement of so many steps can take: each at twice the steps of the
/// one before, and a last one.
std::size_t most_looks(std::size_t steps);

/// Takes a look. `number` counts looks from 1 on; `settled` is copied to the result.
PrecisionLook look_at(const PrecisionGoal& goal, std::size_t number,
                      std::span<const StepWork> steps, TimeWindow window, bool settled);

/// The time that the measurement would have had to take.
struct NeededTime {
  double seconds = 0;  ///< length of the window
  /// True where nothing says that a longer window narrows the interval, or where only one more than
  /// 100 times as long would do.
  bool at_least = false;
};

/// Extrapolates from the last look, as if the interval narrowed with the square root of the time
/// and widened by the further looks. Returns nothing without an interval, or where it is narrow
/// enough.
std::optional<NeededTime> time_needed(const PrecisionGoal& goal,
                                      std::span<const PrecisionLook> looks);

/// Follows a measurement step by step and says when it may end.
class PrecisionWatch {
 public:
  explicit PrecisionWatch(const PrecisionGoal& goal) : goal_(goal) {}

  /// Takes note of the next step, in order. Steps of the warm-up are added as well.
  void add(const StepWork& step) { steps_.push_back(step); }
  /// Marks the end of the warm-up: steps from here on are measured.
  void begin() { warmup_steps_ = steps_.size(); }

  enum class Moment { after_step, last };
  /// Looks at the measurement, or returns nothing when it is not the time for a look. The last look
  /// of a measurement is always taken, unless no step was measured.
  std::optional<PrecisionLook> look(Moment moment);
  /// Returns true after a step at which the measurement may not go on without a look.
  bool is_due() const;

 private:
  PrecisionGoal goal_;
  std::vector<StepWork> steps_;
  std::size_t warmup_steps_ = 0, looks_ = 0;
  std::size_t next_look_ = 0;  ///< number of measured steps; 0 before the first look
};

}  // namespace heteroperf
