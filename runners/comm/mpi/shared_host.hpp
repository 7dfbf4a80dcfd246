#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <sys/types.h>

#include "runners/comm/mpi/mpi_collectives.hpp"

namespace heteroperf {

/// The things that a rank shows its peers in one step: one cache line of memory that the ranks of a
/// host share. Zeros are a fresh line.
struct alignas(64) HostLine {
  std::atomic<std::uint64_t> step;
  CollectiveTerms terms;  ///< all ranks of a group must agree
  /// Buffers that peers may copy from and to during the step.
  const std::byte* readable;
  std::byte* writable;
};
static_assert(sizeof(HostLine) == 64);

/// Divides the memory that the ranks of a host share. Every rank has two of each part and uses them
/// by turns: a line to meet at, two rows of counts, a slot for the data that it gives, and a slot
/// for the results that it made.
class HostRoom {
 public:
  explicit HostRoom(std::size_t ranks, std::byte* memory = nullptr)
      : ranks_(ranks), memory_(memory) {}

  /// The size of a rank's slot for given data. All slots of a group together stay in the caches.
  std::size_t slot_bytes() const {
    return std::clamp(all_slots_bytes / ranks_, min_slot_bytes, max_slot_bytes);
  }
  /// The size of a rank's slice of slot_bytes(), with room for uneven slices.
  std::size_t made_bytes() const { return (slot_bytes() / ranks_ + 1024) / 64 * 64; }
  std::size_t bytes() const { return made_begin() + ranks_ * 2 * made_bytes(); }

  std::span<HostLine> lines() const {
    return {reinterpret_cast<HostLine*>(memory_), 2 * ranks_};  // zeros are valid lines
  }
  /// The numbers of elements that `rank` sends to each rank.
  std::span<std::uint64_t> sent(std::size_t rank, std::size_t turn) const {
    return row(rank, turn, 0);
  }
  /// The numbers of elements that `rank` awaits from each rank.
  std::span<std::uint64_t> awaited(std::size_t rank, std::size_t turn) const {
    return row(rank, turn, 1);
  }
  std::byte* given(std::size_t rank, std::size_t turn) const {
    return memory_ + given_begin() + (rank * 2 + turn) * slot_bytes();
  }
  std::byte* made(std::size_t rank, std::size_t turn) const {
    return memory_ + made_begin() + (rank * 2 + turn) * made_bytes();
  }

 private:
  static constexpr std::size_t all_slots_bytes = std::size_t{8} << 20;
  static constexpr std::size_t min_slot_bytes = 32768;
  static constexpr std::size_t max_slot_bytes = 262144;
  static constexpr std::size_t page_bytes = 4096;

  std::span<std::uint64_t> row(std::size_t rank, std::size_t turn, std::size_t which) const {
    auto* rows = reinterpret_cast<std::uint64_t*>(memory_ + rows_begin());
    return {rows + ((rank * 2 + turn) * 2 + which) * ranks_, ranks_};
  }
  std::size_t rows_begin() const { return 2 * ranks_ * sizeof(HostLine); }
  std::size_t given_begin() const {
    const std::size_t end = rows_begin() + ranks_ * ranks_ * 4 * sizeof(std::uint64_t);
    return (end + page_bytes - 1) / page_bytes * page_bytes;
  }
  std::size_t made_begin() const { return given_begin() + ranks_ * 2 * slot_bytes(); }

  std::size_t ranks_;
  std::byte* memory_;
};

/// Steps that the ranks of one host take together. Step n begins with begin_step(), when all have
/// arrived at step n-1, and ends with arrive(). Data that a rank wrote before it arrived may be
/// read by ranks that have seen it arrive, until they arrive at the next step themselves; so two
/// copies of everything, lines included, used by turns (turn()), are enough.
class HostMeeting {
 public:
  /// `lines` has two per rank. `crowded`: more ranks than cores, so that waits do not spin.
  HostMeeting(const MpiGroup& group, std::span<HostLine> lines, bool crowded);

  /// Throws PeerError when a rank will not come.
  void begin_step(const CollectiveCall& call) {
    if (!everybody_seen_) await_everybody(call);
  }
  void arrive(const CollectiveCall& call);
  /// Throws Error{run_failed} when the ranks disagree.
  void await(std::size_t rank, const CollectiveCall& call);
  void await_everybody(const CollectiveCall& call);
  /// One whole step.
  void meet(const CollectiveCall& call) {
    begin_step(call);
    arrive(call);
    await_everybody(call);
  }
  /// Begins a step and arrives with buffers that peers may copy from and to.
  void open_buffers(const CollectiveCall& call, const void* readable, void* writable = nullptr) {
    begin_step(call);
    next().readable = static_cast<const std::byte*>(readable);
    next().writable = static_cast<std::byte*>(writable);
    arrive(call);
  }
  /// 0 or 1: the copies that are written in the step that has begun.
  std::size_t turn() const { return (step_ + 1) % 2; }

  /// This rank's line for the step that has begun; it is written before the rank arrives.
  HostLine& next() { return lines_[group_.self() * 2 + turn()]; }
  /// The line of a rank that has been seen to arrive.
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

/// Copies between this process and its peers on the same host in one go (Linux
/// process_vm_readv(2)). The peer keeps its buffer in place meanwhile. Throws PeerError when the
/// peer is gone.
class PeerMemory {
 public:
  PeerMemory(const MpiGroup& group, std::vector<pid_t> processes)
      : group_(group), processes_(std::move(processes)) {}

  void read(std::size_t rank, const std::byte* remote, void* local, std::size_t bytes,
            const CollectiveCall& call) const;
  void write(std::size_t rank, std::byte* remote, const void* local, std::size_t bytes,
             const CollectiveCall& call) const;

 private:
  template <class SystemCall>
  void copy(SystemCall system_call, std::size_t rank, std::byte* remote, void* local,
            std::size_t bytes, const WaitedFor& waited) const;

  const MpiGroup& group_;
  std::vector<pid_t> processes_;
};

/// Everything that the collectives of ranks on one host work with. `the_group` outlives it.
struct SharedHost {
  /// From this size on, a rank's data go straight from buffer to buffer.
  static constexpr std::size_t single_copy_bytes = 16384;

  SharedHost(const MpiGroup& the_group, HostChoice choice)
      : group(the_group),
        memory(std::move(choice.memory)),
        room(group.size(), memory.get()),
        meeting(group, room.lines(), choice.crowded),
        single_copy(choice.path == HostPath::single_copy),
        peers(group, std::move(choice.members)) {}

  std::size_t members() const { return group.size(); }
  std::size_t self() const { return group.self(); }
  /// The peer to turn to in a step: every rank takes its peers in another order, so that not all
  /// read the same one at once.
  std::size_t peer(std::size_t step) const { return (self() + step) % members(); }
  bool goes_direct(std::size_t bytes) const { return single_copy && bytes >= single_copy_bytes; }

  const MpiGroup& group;
  std::shared_ptr<std::byte> memory;
  HostRoom room;
  HostMeeting meeting;
  bool single_copy;
  PeerMemory peers;
};

inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace heteroperf
