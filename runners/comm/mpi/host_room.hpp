#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runners/comm/mpi/host_meeting.hpp"

namespace heteroperf {

/// How the memory that the ranks of a host share is divided. Per rank two of each, for use by
/// turns: a line to meet at, two rows of counts, a slot for what it gives, a slot for what it made.
class HostRoom {
 public:
  explicit HostRoom(std::size_t ranks, std::byte* memory = nullptr)
      : ranks_(ranks), memory_(memory) {}

  /// Of a rank's input slot. All slots of a group stay within the caches.
  std::size_t slot_bytes() const {
    return std::clamp(all_slots_bytes / ranks_, min_slot_bytes, max_slot_bytes);
  }
  /// A rank's part of slot_bytes(), with room for uneven ones.
  std::size_t made_bytes() const { return (slot_bytes() / ranks_ + 1024) / 64 * 64; }
  std::size_t bytes() const { return made_begin() + ranks_ * 2 * made_bytes(); }

  std::span<HostLine> lines() const {
    return {reinterpret_cast<HostLine*>(memory_), 2 * ranks_};  // zeros are valid lines
  }
  /// Elements that `rank` sends to each rank, and that it awaits from each.
  std::span<std::uint64_t> sent(std::size_t rank, std::size_t turn) const {
    return row(rank, turn, 0);
  }
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

}  // namespace heteroperf
