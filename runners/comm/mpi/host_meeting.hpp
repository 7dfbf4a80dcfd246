#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "runners/comm/collective_terms.hpp"
#include "runners/comm/mpi/mpi_group.hpp"

namespace heteroperf {

/// What a rank shows its peers in one step: one cache line of memory that the ranks of a host
/// share. Zeros are a fresh one.
struct alignas(64) HostLine {
  std::atomic<std::uint64_t> step;
  CollectiveTerms terms;  ///< all ranks of a group must agree
  /// Buffers that peers may copy from and to during the step.
  const std::byte* readable;
  std::byte* writable;
};
static_assert(sizeof(HostLine) == 64);

/// Steps that the ranks of one host take together. Step n begins with begin_step(), when all have
/// arrived at step n-1, and ends with arrive(). What a rank wrote before it arrived may be read by
/// those that have seen it arrive, until they arrive at the next step themselves; so two copies of
/// everything, lines included, used by turns (turn()), are enough.
class HostMeeting {
 public:
  /// `lines`: two per rank.
  HostMeeting(const MpiGroup& group, std::span<HostLine> lines, bool crowded);

  /// Throws PeerError when a rank will not come.
  void begin_step(const WaitedFor& waited) {
    if (!everybody_seen_) await_everybody(waited);
  }
  void arrive(const CollectiveTerms& terms);
  /// Throws Error{run_failed} when the ranks disagree.
  void await(std::size_t rank, const WaitedFor& waited);
  void await_everybody(const WaitedFor& waited);
  void meet(const CollectiveTerms& terms, const WaitedFor& waited) {
    begin_step(waited);
    arrive(terms);
    await_everybody(waited);
  }
  /// 0 or 1, for what is written in the step that has begun.
  std::size_t turn() const { return (step_ + 1) % 2; }

  /// This rank's line for the step that has begun; to be written before it arrives.
  HostLine& next() { return lines_[group_.self() * 2 + turn()]; }
  /// Of a rank that has been seen to arrive.
  const HostLine& line(std::size_t rank) const { return lines_[rank * 2 + step_ % 2]; }

 private:
  bool arrived(std::size_t rank) const {
    return line(rank).step.load(std::memory_order_acquire) >= step_;
  }
  void wait_long(std::size_t rank, const WaitedFor& waited) const;
  [[noreturn]] void refuse() const;

  const MpiGroup& group_;
  std::span<HostLine> lines_;
  int spins_;
  std::uint64_t step_ = 0;
  bool everybody_seen_ = true;
};

}  // namespace heteroperf
