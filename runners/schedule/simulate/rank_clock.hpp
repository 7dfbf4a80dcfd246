#pragma once

#include <cstdint>
#include <vector>

#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

/// One rank of simulate_network(): its place in its program, its time there, and the spans and
/// causes that it leaves in the timeline as it goes on.
class RankClock {
 public:
  using Cause = Timeline::Cause;

  /// Adds the rank to the timeline, which, as the program, must outlive the clock. Ranks ascend.
  RankClock(int rank, const std::vector<Instruction>& program, Timeline& timeline);

  double time() const { return time_; }
  std::int32_t next() const { return next_; }
  const Instruction& instruction() const { return (*program_)[next_]; }
  const Instruction& instruction(std::int32_t index) const { return (*program_)[index]; }
  bool finished() const { return next_ == static_cast<std::int32_t>(program_->size()); }
  /// One past the last of the instructions that run as one with the next.
  std::int32_t unit_end() const;
  /// One past the last of the messages that are issued with the next.
  std::int32_t group_end() const;

  /// The next instruction takes this long.
  void pass(double seconds);
  /// The next instruction and those that run as one with it end then.
  void pass_unit(double end);
  /// The rank waits until `end`; from `under_way` on it is a message that it waits for.
  void pass_wait(double end, double under_way, Cause waited_for);
  /// The next instruction has its span already.
  void skip() { ++next_; }
  /// From the rank's time on, after what it did before.
  void stamp(std::int32_t index, double end);

  /// Messages before `end` are issued now, a collective is reached.
  void post(std::int32_t end);
  bool posted(std::int32_t index) const { return index < posted_; }
  double posted_at() const { return posted_at_; }
  /// Waits that end with what the rank itself did last are not caused by other members of a group:
  /// those may wait for what comes later.
  Cause before_post() const { return cause(posted_after_); }

 private:
  Cause cause(std::int32_t index) const { return index < 0 ? Cause{} : Cause{rank_, index}; }

  const std::vector<Instruction>* program_;
  TimeSpan* spans_;
  Cause* causes_;
  double* under_way_;
  int rank_;
  std::int32_t next_ = 0;
  std::int32_t last_ = -1;  // the instruction that ended at time_
  std::int32_t posted_ = 0;
  std::int32_t posted_after_ = -1;  // last_ at that time
  double posted_at_ = 0;
  double time_ = 0;
};

}  // namespace heteroperf
