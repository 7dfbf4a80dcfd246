#include "runners/comm/mpi/host_meeting.hpp"

#include <sched.h>

#include <chrono>
#include <thread>

namespace heteroperf {
namespace {

/// A few µs: longer than a cache line takes between cores, shorter than another program's turn.
constexpr int spins_with_free_cores = 60;
constexpr std::uint64_t yields = 20000;
constexpr auto nap = std::chrono::microseconds(50);
/// Between looks at the peers' health and at MPI's own messages.
constexpr std::uint64_t rounds_per_look = 8;

/// For all ranks to arrive once two of them are known to disagree.
constexpr auto patience = std::chrono::seconds(1);

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

void HostMeeting::arrive(const CollectiveTerms& terms) {
  HostLine& own = next();
  own.terms = terms;
  ++step_;
  everybody_seen_ = false;
  own.step.store(step_, std::memory_order_release);
}

void HostMeeting::await(std::size_t rank, const WaitedFor& waited) {
  for (int i = 0; !arrived(rank); ++i) {
    if (i == spins_) {
      wait_long(rank, waited);
      break;
    }
    pause_core();
  }
  if (line(rank).terms != line(group_.self()).terms) refuse();
}

void HostMeeting::await_everybody(const WaitedFor& waited) {
  for (std::size_t r = 0; r < group_.size(); ++r) {
    if (r != group_.self()) await(r, waited);
  }
  everybody_seen_ = true;
}

void HostMeeting::wait_long(std::size_t rank, const WaitedFor& waited) const {
  LastingWait lasting(*group_.watch());
  for (std::uint64_t round = 0; !arrived(rank); ++round) {
    if (round % rounds_per_look == 0) {
      progress_mpi();
      if (lasting.is_time_to_tell()) lasting.tell({&group_.members()[rank], 1});
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

/// Names all that have come to this step. Others are on their way, unless they wait elsewhere.
void HostMeeting::refuse() const {
  const auto end = std::chrono::steady_clock::now() + patience;
  std::vector<CollectiveTerms> terms;
  std::vector<RankId> ranks;
  for (std::size_t r = 0; r < group_.size(); ++r) {
    while (!arrived(r) && std::chrono::steady_clock::now() < end) {
      progress_mpi();
      std::this_thread::sleep_for(nap);
    }
    if (!arrived(r)) continue;
    terms.push_back(line(r).terms);
    ranks.push_back(group_.members()[r]);
  }
  throw Error(ErrorKind::run_failed, {disagreement(terms, ranks)});
}

}  // namespace heteroperf
