#pragma once

#include <atomic>
#include <cstdint>

namespace heteroperf {

/// A barrier that can be left on failure without anybody touching the buffers of one who left.
///
/// Either all members have arrived, or somebody broke it and nobody passes: both are decided by
/// one compare-and-swap, so the two cannot mix.
class Meeting {
 public:
  enum class Outcome { waiting, complete, broken };

  explicit Meeting(int members) : members_(static_cast<std::uint32_t>(members)) {}

  /// Announces the caller. `round` then identifies the meeting it waits for.
  Outcome arrive(std::uint32_t& round);
  Outcome look(std::uint32_t round) const;
  /// Calls the meeting off, unless it has just become complete.
  Outcome leave(std::uint32_t round);

 private:
  struct State {
    std::uint32_t round;
    std::uint32_t arrived;
  };
  static constexpr std::uint32_t broken_mark = 0xffffffff;
  static State unpack(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }
  static std::uint64_t pack(State state) {
    return static_cast<std::uint64_t>(state.round) << 32 | state.arrived;
  }

  std::uint32_t members_;
  std::atomic<std::uint64_t> state_{0};
};

inline Meeting::Outcome Meeting::arrive(std::uint32_t& round) {
  std::uint64_t seen = state_.load();
  while (true) {
    State next = unpack(seen);
    if (next.arrived == broken_mark) return Outcome::broken;
    round = next.round;
    const bool last = ++next.arrived == members_;
    if (last) next = {round + 1, 0};
    if (state_.compare_exchange_weak(seen, pack(next))) {
      return last ? Outcome::complete : Outcome::waiting;
    }
  }
}

inline Meeting::Outcome Meeting::look(std::uint32_t round) const {
  const State now = unpack(state_.load());
  if (now.round != round) return Outcome::complete;
  return now.arrived == broken_mark ? Outcome::broken : Outcome::waiting;
}

inline Meeting::Outcome Meeting::leave(std::uint32_t round) {
  std::uint64_t seen = state_.load();
  while (unpack(seen).round == round && unpack(seen).arrived != broken_mark) {
    if (state_.compare_exchange_weak(seen, pack({round, broken_mark}))) return Outcome::broken;
  }
  return look(round);
}

}  // namespace heteroperf
