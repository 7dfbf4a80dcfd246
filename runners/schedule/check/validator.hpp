#pragma once

#include <optional>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// How much a network must help for the programs to end; each level needs less than the one before.
enum class DeadlockFreedom {
  none,        ///< they may hang even with unlimited buffers
  buffered,    ///< needs every send to be buffered
  nccl,        ///< needs messages of one group to go together, groups in order (NCCL)
  rendezvous,  ///< every send may wait for its receive (MPI_Ssend), groups go together
};
const char* to_string(DeadlockFreedom freedom);

struct ScheduleChecks {
  bool complete = false;  ///< V1: every (segment, micro-batch, part) has one F and one BW or B, W
  bool ordered = false;   ///< V2: dependencies hold inside every rank
  bool placed = false;    ///< V3: instructions stand on their segment's rank
  bool matched = false;   ///< V4: sends and receives match one to one, channel by channel
  DeadlockFreedom deadlock_free = DeadlockFreedom::none;  ///< V5
  bool collectives = false;                               ///< V6: in one order on all members
  bool memory_ok = false;  ///< V7: peak memory within the limit; buffers used and freed once
  bool stepped = false;    ///< V8: reductions after the last W or BW of the weights, steps after
  /// Shortest waiting cycle that bars the next level of `deadlock_free`: "rank 0, 12: SEND_ACT
  /// 0.3>1".
  std::vector<std::string> cycle;
  std::vector<Problem> problems;  ///< of everything that fails, at most `most_problems` each

  bool ok() const;  ///< all true, and at least `nccl`
};
constexpr int most_problems = 8;

/// Never hangs and never throws for a wrong schedule, however wrong. A compute-only schedule is
/// checked as far as it goes: messages, collectives and steps hold trivially, and deadlocks are
/// those of dependencies alone.
ScheduleChecks check_schedule(const Schedule& schedule, std::optional<double> memory_limit = {});

}  // namespace heteroperf
