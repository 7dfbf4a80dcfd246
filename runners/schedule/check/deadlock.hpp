#pragma once

#include <string>
#include <vector>

#include "runners/schedule/check/validator.hpp"
#include "runners/schedule/ir/collective_index.hpp"
#include "runners/schedule/ir/message_index.hpp"

namespace heteroperf {

struct DeadlockVerdict {
  DeadlockFreedom freedom = DeadlockFreedom::none;
  /// Where the ranks stand that wait for each other at the next level, "rank 0, 12: SEND_ACT
  /// 0.3>1"; a single line where somebody waits for what nobody does. Empty at `rendezvous`.
  std::vector<std::string> cycle;
};

/// Runs the programs without times, each rank as far as it gets. The n-th send of a channel meets
/// its n-th receive. In what follows, messages of one rank's group are one step.
///  - rendezvous: each rank does one step after the other; a step ends when every step it shares a
///    message with has begun, and all of them end together; so do the members of a collective.
///  - nccl: compute and the messages with each other rank run in streams of their own, each in
///    program order; a send waits for what it carries, compute for what it receives.
///  - buffered: sends never wait.
/// Of a compute-only schedule: whether the dependencies between ranks let it end. Any schedule
/// whose graph is normalised and which has a program for each rank is fine, however wrong.
/// Linear in instructions, but for the search of the shortest cycle among those that wait.
DeadlockVerdict find_deadlock(const Schedule& schedule, const TaskTable& tasks,
                              const MessageIndex& messages, const CollectiveIndex& collectives);

}  // namespace heteroperf
