#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "runners/comm/mpi/mpi_group.hpp"

namespace heteroperf {

/// What a rank takes part in: all ranks of a group must agree.
struct Agreement {
  std::uint32_t operation = 0;  ///< kind, type and reduction, packed
  std::int32_t root = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Agreement&, const Agreement&) = default;
};

/// One rank's line in memory that the ranks of a host share. Zeros are a fresh one.
struct alignas(64) HostLine {
  std::atomic<std::uint64_t> step;
  Agreement agreements[2];  ///< of the last two steps
  /// Buffers that peers may copy from and to during the present step.
  const std::byte* readable;
  std::byte* writable;
};
static_assert(sizeof(HostLine) == 64);

/// Steps that the ranks of one host take together. Step n begins with begin_step(), when all have
/// arrived at step n-1, and ends with arrive(). What a rank wrote before it arrived may be read by
/// those that have seen it arrive, until they arrive at the next step themselves; so two copies of
/// everything, used by turns (turn()), are enough.
class HostMeeting {
 public:
  HostMeeting(const MpiGroup& group, std::span<HostLine> lines, bool crowded);

  /// Throws PeerError when a rank will not come.
  void begin_step(const WaitedFor& waited) {
    if (!everybody_seen_) await_everybody(waited);
  }
  void arrive(const Agreement& agreement);
  /// Throws Error{internal} when the ranks disagree.
  void await(std::size_t rank, const WaitedFor& waited);
  void await_everybody(const WaitedFor& waited);
  void meet(const Agreement& agreement, const WaitedFor& waited) {
    begin_step(waited);
    arrive(agreement);
    await_everybody(waited);
  }
  /// 0 or 1, for what is written in the step that has begun.
  std::size_t turn() const { return (step_ + 1) % 2; }

  HostLine& line(std::size_t rank) { return lines_[rank]; }
  HostLine& own() { return lines_[group_.self()]; }

 private:
  bool arrived(std::size_t rank) const {
    return lines_[rank].step.load(std::memory_order_acquire) >= step_;
  }
  void wait_long(std::size_t rank, const WaitedFor& waited) const;
  [[noreturn]] void refuse(std::size_t rank, const WaitedFor& waited) const;

  const MpiGroup& group_;
  std::span<HostLine> lines_;
  int spins_;
  std::uint64_t step_ = 0;
  bool everybody_seen_ = true;
};

}  // namespace heteroperf
