#include "runners/comm/mpi/host_meeting.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <chrono>
#include <thread>

namespace heteroperf {
namespace {

/// A few µs: longer than a cache line takes between cores, shorter than another program's turn.
constexpr int spins_with_free_cores = 60;
constexpr int yields = 20000;
constexpr auto nap = std::chrono::microseconds(50);
/// Between looks at the peers' health and at MPI's own messages.
constexpr int rounds_per_look = 8;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Messages that this rank has sent or awaits make progress while it waits for something else.
void progress_mpi() {
  int found = 0;
  MPI_Iprobe(0, MpiGroup::collective_tag, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
}

}  // namespace

HostMeeting::HostMeeting(const MpiGroup& group, std::span<HostLine> lines, bool crowded)
    : group_(group), lines_(lines), spins_(crowded ? 0 : spins_with_free_cores) {}

void HostMeeting::arrive(const Agreement& agreement) {
  ++step_;
  everybody_seen_ = false;
  own().agreements[step_ % 2] = agreement;
  own().step.store(step_, std::memory_order_release);
}

void HostMeeting::await(std::size_t rank, const WaitedFor& waited) {
  for (int i = 0; !arrived(rank); ++i) {
    if (i == spins_) {
      wait_long(rank, waited);
      break;
    }
    pause_core();
  }
  if (lines_[rank].agreements[step_ % 2] != own().agreements[step_ % 2]) refuse(rank, waited);
}

void HostMeeting::await_everybody(const WaitedFor& waited) {
  for (std::size_t r = 0; r < lines_.size(); ++r) {
    if (r != group_.self()) await(r, waited);
  }
  everybody_seen_ = true;
}

void HostMeeting::wait_long(std::size_t rank, const WaitedFor& waited) const {
  for (int round = 0; !arrived(rank); ++round) {
    if (round % rounds_per_look == 0) {
      progress_mpi();
      const auto failure = group_.watch()->failure_among(group_.members());
      // It may have arrived just before it ended.
      if (failure && !arrived(rank)) throw PeerError(*failure, waited.text());
    }
    if (round < yields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(nap);
    }
  }
}

void HostMeeting::refuse(std::size_t rank, const WaitedFor& waited) const {
  const Agreement& own = lines_[group_.self()].agreements[step_ % 2];
  const Agreement& other = lines_[rank].agreements[step_ % 2];
  throw Error(
      ErrorKind::internal,
      {{fmt::format("the ranks of a group disagree: rank {} is in {} (kind {:#x}, root {}), rank "
                    "{} is in an operation of {} elements (kind {:#x}, root {})",
                    group_.members()[group_.self()].value(), waited.text(), own.operation, own.root,
                    group_.members()[rank].value(), other.count, other.operation, other.root),
        "collectives need the same order, counts, types and root on every rank",
        "Please report this with the command that caused it."}});
}

}  // namespace heteroperf
