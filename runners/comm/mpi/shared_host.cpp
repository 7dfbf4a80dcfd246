#include "runners/comm/mpi/shared_host.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/uio.h>

#include <cerrno>
#include <chrono>
#include <thread>

// Ranks on one host meet at lines of shared memory. A line holds the number of the step that its
// rank has arrived at, so waiting for a rank is reading one word until it is large enough:
//
//     step:            1        2        3
//     rank 0 writes    line A   line B   line A
//     rank 1 reads              line A   line B      it reads a line one step after it was written,
//                                                    so two lines per rank are enough
//
// Short waits spin. Long ones yield, then sleep, look after MPI's own messages, and ask the watch
// now and then whether the awaited rank is gone.

namespace heteroperf {
namespace {

/// A few µs: longer than a cache line takes between cores, shorter than another program's turn.
constexpr int spins_with_free_cores = 60;
constexpr std::uint64_t yields = 20000;
constexpr auto nap = std::chrono::microseconds(50);
/// The number of waiting rounds between looks at the peers' health and at MPI's own messages.
constexpr std::uint64_t rounds_per_look = 8;
/// The time for all ranks to arrive once two of them are known to disagree.
constexpr auto patience = std::chrono::seconds(1);
/// The share of one system call, small enough that a failure elsewhere is noticed in time.
constexpr std::size_t step_bytes = std::size_t{64} << 20;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Lets messages that this rank has sent or awaits make progress while it waits for something else.
void progress_mpi() {
  int arrived = 0;
  MPI_Iprobe(0, MpiGroup::collective_tag, MPI_COMM_SELF, &arrived, MPI_STATUS_IGNORE);
}

}  // namespace

HostMeeting::HostMeeting(const MpiGroup& group, std::span<HostLine> lines, bool crowded)
    : group_(group), lines_(lines), spins_(crowded ? 0 : spins_with_free_cores) {}

void HostMeeting::arrive(const CollectiveCall& call) {
  HostLine& line = next();
  line.terms = call.terms;
  ++step_;
  everybody_seen_ = false;
  line.step.store(step_, std::memory_order_release);
}

void HostMeeting::await(std::size_t rank, const CollectiveCall& call) {
  for (int i = 0; !arrived(rank); ++i) {
    if (i == spins_) {
      wait_long(rank, call.waited);
      break;
    }
    pause_core();
  }
  if (line(rank).terms != line(group_.self()).terms) refuse();
}

void HostMeeting::await_everybody(const CollectiveCall& call) {
  for (std::size_t r = 0; r < group_.size(); ++r) {
    if (r != group_.self()) await(r, call);
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
      // The rank may have arrived just before it ended.
      if (failure && !arrived(rank)) throw PeerError(*failure, waited.text());
    }
    if (round < yields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(nap);
    }
  }
}

/// Names all ranks that have come to this step. The others are on their way, unless they wait
/// elsewhere.
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

template <class SystemCall>
void PeerMemory::copy(SystemCall system_call, std::size_t rank, std::byte* remote, void* local,
                      std::size_t bytes, const WaitedFor& waited) const {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t n = std::min(step_bytes, bytes - done);
    const iovec here{static_cast<std::byte*>(local) + done, n};
    const iovec there{remote + done, n};
    const ssize_t moved = system_call(processes_[rank], &here, 1, &there, 1, 0);
    if (moved > 0) {
      done += static_cast<std::size_t>(moved);
      continue;
    }
    const std::string why = moved < 0 ? std::strerror(errno) : "no bytes moved";
    await_failure_news(*group_.watch(), group_.members(), waited);
    throw SystemError(fmt::format("cannot copy from or to rank {} during {}",
                                  group_.members()[rank].value(), waited.text()),
                      why, "Set comm.host_path to shared_memory");
  }
}

void PeerMemory::read(std::size_t rank, const std::byte* remote, void* local, std::size_t bytes,
                      const CollectiveCall& call) const {
  copy(process_vm_readv, rank, const_cast<std::byte*>(remote), local, bytes, call.waited);
}

void PeerMemory::write(std::size_t rank, std::byte* remote, const void* local, std::size_t bytes,
                       const CollectiveCall& call) const {
  copy(process_vm_writev, rank, remote, const_cast<void*>(local), bytes, call.waited);
}

}  // namespace heteroperf
