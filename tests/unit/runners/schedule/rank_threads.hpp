#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

enum class SendMode { buffered, rendezvous };

/// Runs every rank of a lowered schedule as a thread: messages meet in order of their channel,
/// those of a group are issued together, collectives wait for all members.
struct ThreadRun {
  bool ended = false;
  std::vector<std::int32_t> stands_at;  ///< [rank]: instruction, or its program's size
};
/// Gives up once nobody has got any further for `patience`; all threads have ended on return.
ThreadRun run_threads(const Schedule& schedule, SendMode mode, std::chrono::milliseconds patience);

}  // namespace heteroperf
