#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/name_table.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// The help that the programs need from a network to end. Each level needs less than the one
/// before.
enum class DeadlockFreedom {
  none,        ///< they may hang even with unlimited buffers
  buffered,    ///< they need every send to be buffered
  nccl,        ///< they need messages of one group to go together, groups in order (NCCL)
  rendezvous,  ///< every send may wait for its receive (MPI_Ssend), groups go together
};
constexpr std::array<const char*, 4> value_names(DeadlockFreedom) {
  return {"none", "buffered", "nccl", "rendezvous"};
}

/// The outcome of all checks. README.md describes V1 to V8 in full.
struct ScheduleChecks {
  bool complete = false;  ///< V1: every (segment, micro-batch, part) has one F and one BW or B, W
  bool ordered = false;   ///< V2: dependencies hold inside every rank
  bool placed = false;    ///< V3: instructions stand on their segment's rank
  bool matched = false;   ///< V4: sends and receives match one to one, channel by channel
  DeadlockFreedom deadlock_free = DeadlockFreedom::none;  ///< V5
  bool collectives = false;                               ///< V6: in one order on all members
  bool memory_ok = false;  ///< V7: peak memory within the limit; buffers used and freed once
  bool stepped = false;    ///< V8: reductions after the last W or BW of the weights, steps after
  /// The shortest cycle of waiting ranks that bars the next level of `deadlock_free`, as "rank 0,
  /// 12: SEND_ACT 0.3>1".
  std::vector<std::string> cycle;
  std::vector<Problem> problems;  ///< at most `most_problems` for each check that fails

  bool ok() const;  ///< all are true, and deadlock_free is at least `nccl`
};
constexpr int most_problems = 8;

/// Never hangs and never throws for a wrong schedule, however wrong. A compute-only schedule is
/// checked as far as it goes: messages, collectives and steps hold trivially, and deadlocks are
/// those of dependencies alone.
ScheduleChecks check_schedule(const Schedule& schedule, std::optional<double> memory_limit = {});

}  // namespace heteroperf
