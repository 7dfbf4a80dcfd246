#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runners/comm/control_channel.hpp"
#include "suite/program/turn_protocol.hpp"

namespace heteroperf {

struct RankContext;

/// A clock that can be stopped: nanoseconds of the process's monotonic clock without the time that
/// it stood still. Usable from any thread.
class StoppableClock {
 public:
  std::int64_t now_ns() const;
  void stop();
  /// Returns how long it stood still, in nanoseconds.
  std::int64_t go_on();

 private:
  mutable std::mutex mutex_;
  std::int64_t stopped_at_ns_ = 0;  // 0: it runs
  std::int64_t held_ns_ = 0;
};

/// The gate's next wish in lockstep, known to every rank.
struct TurnOrder {
  enum class Kind { steps, end, interrupt };
  Kind kind = Kind::end;
  std::uint64_t steps = 0;   ///< in the next turn
  std::int64_t held_ns = 0;  ///< for how long the run stood still
};

/// The processes of a run have used so much since they were asked last.
struct TurnUsage {
  double cpu_s = 0;  ///< used in a turn by all threads
  /// The time of a turn in which threads could have run but had no core, each at most as long as it
  /// ran. A thread that sleeps most of the time and waits for a slice when it wakes says little of
  /// the machine's load.
  double wait_s = 0;
  double idle_cpu_s = 0;  ///< CPU time while they stood still before that turn
  double peak_bytes = 0;  ///< resident memory
};

/// A run's side of lockstep (turn_protocol.hpp), on rank 0. It tells the gate that it takes part
/// when it is made.
class TurnTaker {
 public:
  /// Follows HETEROPERF_TURNS; null where it is not set. Throws UserError where that is no address
  /// or of another version of the protocol, SystemError where its pipes are not there.
  static std::unique_ptr<TurnTaker> from_environment();
  explicit TurnTaker(const TurnAddress& address);

  /// Throws UserError, and tells the gate, why the runs cannot stop between two steps.
  [[noreturn]] void refuse(const std::string& why);

  /// The journal's clock.
  const StoppableClock& clock() const { return clock_; }
  /// Where the run writes, absolute; the gate hears of it.
  void set_folder(const std::string& folder) { folder_ = folder; }

  /// True when a run that is warm is to stand still before its next step.
  bool is_over() const { return step_ns_.size() >= wanted_; }
  /// A step is done; one before the first order does not count.
  void count_step();

  /// Tells the gate what the turn took and waits for its next line; `stop` ends the wait. The clock
  /// stands still meanwhile. Throws SystemError where the gate is gone, says nothing for as long as
  /// it promised, or something else than the protocol knows.
  TurnOrder next_order(const TurnUsage& usage, const std::function<bool()>& stop);
  /// Another rank asks for the order of a turn by its number; the answer comes with the order.
  void answer(const std::string& question, ControlChannel::Reply reply);

 private:
  TurnOrder wait_for_order(const std::function<bool()>& stop);
  void publish(const TurnOrder& order);

  TurnPipe pipe_;
  double patience_s_;
  StoppableClock clock_;
  std::string folder_;
  bool told_ready_ = false;
  std::int64_t last_ns_ = 0;
  std::uint64_t wanted_ = 0;
  std::vector<std::int64_t> step_ns_;

  std::mutex mutex_;  // guards what follows
  std::size_t orders_ = 0;
  std::string last_order_;
  std::vector<ControlChannel::Reply> asked_;  ///< for the next order
};

/// One rank's way through the turns. All calls are collective over all ranks.
class RankTurns {
 public:
  /// `speaks`: this rank reports what its process uses; one rank of every process does.
  RankTurns(RankContext& context, bool speaks) : context_(context), speaks_(speaks) {}

  /// Stands still until the gate wants steps, or the end. No rank uses a core meanwhile, and
  /// `context` gives the steps that follow times that leave the wait out.
  TurnOrder stand_still();

  /// The seconds that one thread has run and waited so far.
  struct ThreadTime {
    double cpu_s = 0, wait_s = 0;
  };

 private:
  TurnUsage usage_of_turn();

  RankContext& context_;
  bool speaks_;
  std::size_t number_ = 0;
  double cpu_s_ = 0, idle_cpu_s_ = 0;
  std::map<std::string, ThreadTime> threads_;  ///< when the last turn ended
};

}  // namespace heteroperf
