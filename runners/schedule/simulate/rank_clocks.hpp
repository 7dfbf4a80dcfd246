#pragma once

#include <cstdint>
#include <vector>

#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

/// One rank of a simulation: its place in its program, its time there, and the spans and causes
/// that it leaves in the timeline as it goes on. The steps that every instruction takes are in
/// line.
class RankClock {
 public:
  using Cause = Timeline::Cause;

  /// Adds the rank to the timeline, which, as the program, must outlive the clock. Ranks ascend.
  /// `with_waits` says whether the timeline holds `under_way`.
  RankClock(int rank, const std::vector<Instruction>& program, bool with_waits, Timeline& timeline);

  double time() const { return time_; }
  std::int32_t next() const { return next_; }
  const Instruction& instruction() const { return (*program_)[next_]; }
  const Instruction& instruction(std::int32_t index) const { return (*program_)[index]; }
  bool finished() const { return next_ == static_cast<std::int32_t>(program_->size()); }
  /// The end of the instructions that run as one with the next; those that are fused.
  std::int32_t unit_end() const;
  /// The end of the messages that are issued with the next.
  std::int32_t group_end() const;
  /// The instruction of this rank that ended at time().
  Cause before() const { return cause(last_); }

  /// Passes the next instruction, which takes this long from the rank's time on.
  void pass(double seconds) {
    stamp(next_, time_ + seconds);
    if (seconds > 0) last_ = next_;
    time_ += seconds;
    ++next_;
  }
  /// Passes the next instruction with this span and cause; it counts as work even if it is short.
  void run(TimeSpan span, Cause cause) {
    stamp(next_, span, cause);
    time_ = span.end;
    last_ = next_++;
  }
  /// Passes the next instruction and those that run as one with it; all end at `end`.
  void run_unit(double end);
  /// Passes an instruction that blocks until `end`; from `under_way` on it waits for a message.
  void pass_wait(double end, double under_way, Cause waited_for);
  /// Passes the next instruction, which takes no time and has `cause`.
  void pass_at_once(Cause cause) {
    stamp(next_, {time_, time_}, cause);
    ++next_;
  }
  /// Passes the next instruction, which has its span already.
  void skip() { ++next_; }
  /// Gives an instruction a span from the rank's time on, without passing it.
  void stamp(std::int32_t index, double end) { stamp(index, {time_, end}, before()); }

  /// Notes that the messages before `end` are issued now, or that a collective is reached.
  void post(std::int32_t end);
  bool posted(std::int32_t index) const { return index < posted_; }
  double posted_at() const { return posted_at_; }
  /// The last instruction before post(). A wait that ends with what the rank itself did last has
  /// this cause, not another member of its group: that may wait for what comes later.
  Cause before_post() const { return cause(posted_after_); }

 private:
  Cause cause(std::int32_t index) const { return index < 0 ? Cause{} : Cause{rank_, index}; }
  void stamp(std::int32_t index, TimeSpan span, Cause cause) {
    spans_[index] = span;
    causes_[index] = cause;
    if (under_way_ != nullptr) under_way_[index] = span.start;
  }

  const std::vector<Instruction>* program_;
  TimeSpan* spans_;
  Cause* causes_;
  double* under_way_;  // null where the timeline has no waits
  int rank_;
  std::int32_t next_ = 0;
  std::int32_t last_ = -1;  // the instruction that ended at time_
  std::int32_t posted_ = 0;
  std::int32_t posted_after_ = -1;  // last_ at the time of post()
  double posted_at_ = 0;
  double time_ = 0;
};

/// The core that all models share: every rank runs ahead on its own clock until it has to wait for
/// somebody. Whoever ends the wait makes it ready again, so a rank costs nothing while it waits.
class RankClocks {
 public:
  /// All ranks are ready, rank 0 first. The schedule must outlive the clocks.
  RankClocks(const Schedule& schedule, bool with_waits);

  int ranks() const { return static_cast<int>(clocks_.size()); }
  RankClock& operator[](int rank) { return clocks_[rank]; }
  const RankClock& operator[](int rank) const { return clocks_[rank]; }

  void make_ready(int rank) { ready_.push_back(rank); }
  /// Calls step(rank) for ready ranks, again and again until it is false or the program ends. A
  /// step passes an instruction; it is false where the rank has to wait.
  template <class Step>
  void run_ready(Step step) {
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      while (!clocks_[rank].finished() && step(rank)) {
      }
    }
  }

  /// A rank that waits for ever, once nobody is ready and nothing is under way; −1 where all ended.
  int stuck_rank() const;
  Timeline& timeline() { return timeline_; }

 private:
  Timeline timeline_;
  std::vector<RankClock> clocks_;
  std::vector<int> ready_;  // a stack
};

}  // namespace heteroperf
