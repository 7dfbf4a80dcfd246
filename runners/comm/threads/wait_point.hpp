#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace heteroperf {

/// Where one thread waits for others: it spins, then yields, then sleeps. A yield that takes long
/// has given the core to somebody who computes; a sleeper that is woken gets it back at once, one
/// that yields when their time slice is over.
///
/// What `ready` reads and what wakers write are sequentially consistent atomics, so either the
/// waiter sees the change or the waker sees the sleeper.
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
