#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace heteroperf {

/// A barrier that can be left on failure without anybody touching the buffers of one who left.
///
/// Either all members have arrived, or somebody broke it and nobody passes. Number of the round and
/// members that have arrived stand in one word, so both are decided by one compare-and-swap and
/// cannot mix.
class Meeting {
 public:
  enum class Outcome { waiting, complete, broken };

  explicit Meeting(std::size_t members) : members_(static_cast<std::uint32_t>(members)) {}

  /// Announces the caller. `round` then identifies the meeting it waits for.
  Outcome arrive(std::uint32_t& round) {
    std::uint64_t word = state_.load();
    while (true) {
      State next = unpack(word);
      if (next.arrived == broken_mark) return Outcome::broken;
      round = next.round;
      const bool last = ++next.arrived == members_;
      if (last) next = {round + 1, 0};
      if (state_.compare_exchange_weak(word, pack(next))) {
        return last ? Outcome::complete : Outcome::waiting;
      }
    }
  }

  Outcome look(std::uint32_t round) const {
    const State now = unpack(state_.load());
    if (now.round != round) return Outcome::complete;
    return now.arrived == broken_mark ? Outcome::broken : Outcome::waiting;
  }

  /// Calls the meeting off, unless it has just become complete.
  Outcome leave(std::uint32_t round) {
    std::uint64_t word = state_.load();
    while (unpack(word).round == round && unpack(word).arrived != broken_mark) {
      if (state_.compare_exchange_weak(word, pack({round, broken_mark}))) return Outcome::broken;
    }
    return look(round);
  }

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

/// The place where one thread waits for others: it spins, then yields, then sleeps. A yield that
/// takes long has given the core to a thread that computes. A sleeper that is woken gets the core
/// back at once, but a thread that yields gets it only when the other's time slice is over, so it
/// goes to sleep then.
///
/// The values that `ready` reads and wakers write are sequentially consistent atomics, so either
/// the waiter sees the change or the waker sees the sleeper.
class alignas(64) WaitPoint {
 public:
  /// `spins` is 0 where ranks outnumber cores: the awaited thread needs the core.
  template <class Ready>
  void wait(int spins, Ready ready) {
    for (int i = 0; i < spins; ++i) {
      if (ready()) return;
      pause();
    }
    for (int i = 0; i < yields; ++i) {
      if (ready()) return;
      const Clock::time_point before = Clock::now();
      std::this_thread::yield();
      if (Clock::now() - before > long_yield) break;
    }
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    changed_.wait(lock, ready);
    sleepers_.fetch_sub(1);
  }

  void wake() {
    if (sleepers_.load() == 0) return;
    { std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int yields = 200;
  static constexpr Clock::duration long_yield = std::chrono::microseconds(100);

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace heteroperf
