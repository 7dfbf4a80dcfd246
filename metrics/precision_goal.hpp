#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "metrics/rate.hpp"

namespace heteroperf {

/// When a measurement that goes on until its rate is known well enough is looked at, and how wide
/// its interval is then (README, "Measuring until an interval is narrow").
struct PrecisionGoal {
  double fraction = 0;              ///< of the rate, that half of the interval may have
  std::uint64_t fewest_steps = 40;  ///< measured before the first look; the others are at twice,
                                    ///< four times … as many as that was at
  double fewest_s = 20;             ///< measured before the first look
  std::uint32_t blocks = 5;         ///< the window is resampled in about so many
  std::uint32_t fewest_blocks = 3;  ///< and once more in so many, against slow drifts
  double misses = 0.05;             ///< chance that any of all looks misses the rate

  /// Of the interval at the look of this number, from 1 on. The chances to miss add up to `misses`.
  double coverage(std::size_t look) const;

  friend bool operator==(const PrecisionGoal&, const PrecisionGoal&) = default;
};

/// What a look saw. A pure function of the goal, its number, the window and the steps in it.
struct PrecisionLook {
  TimeWindow window;
  bool settled = true;      ///< the steps in the window do not become faster any more
  std::uint64_t steps = 0;  ///< that end in the window
  double coverage = 0;      ///< of what was resampled
  /// The widest side of what the goal is held to / rate: the interval in `blocks`, and that in
  /// `fewest_blocks` of coverage 95 %. Absent with fewer than 10 steps.
  std::optional<double> half_width_fraction;
  bool reached = false;
  /// To be told: what was resampled, in `blocks` or in `fewest_blocks` whichever is wider; where
  /// the goal is reached as wide as the goal. A look ends the measurement because it saw little
  /// noise, which may have been luck.
  std::optional<Interval> interval = {};
};

/// Looks that a measurement of so many steps can take: each at twice the steps of the one before,
/// and a last one.
std::size_t most_looks(std::size_t steps);

/// `number` counts the looks from 1 on; `settled` becomes the look's own.
PrecisionLook look_at(const PrecisionGoal& goal, std::size_t number,
                      std::span<const StepWork> steps, TimeWindow window, bool settled);

/// How long the measurement would have had to be.
struct NeededTime {
  double seconds = 0;     ///< of the window
  bool at_least = false;  ///< nothing tells that a longer window narrows the interval, or only
                          ///< one more than 100 times as long would
};

/// By the last look, as if the interval narrowed with the square root of the time and widened by
/// the further looks. Nothing without an interval, or where it is narrow enough.
std::optional<NeededTime> time_needed(const PrecisionGoal& goal,
                                      std::span<const PrecisionLook> looks);

/// Follows a measurement step by step and says when it may end.
class PrecisionWatch {
 public:
  explicit PrecisionWatch(const PrecisionGoal& goal) : goal_(goal) {}

  /// One step more, those of the warm-up as well; in order.
  void add(const StepWork& step) { steps_.push_back(step); }
  /// The steps from here on are measured.
  void begin() { warmup_steps_ = steps_.size(); }

  enum class Moment { after_step, last };
  /// Nothing when it is not the time for one; the last look of a measurement is always taken,
  /// unless no step was measured.
  std::optional<PrecisionLook> look(Moment moment);
  /// True after a step at which the measurement may not go on without a look.
  bool is_due() const;

 private:
  PrecisionGoal goal_;
  std::vector<StepWork> steps_;
  std::size_t warmup_steps_ = 0, looks_ = 0;
  std::size_t next_look_ = 0;  // measured steps; 0 before the first one
};

}  // namespace heteroperf
