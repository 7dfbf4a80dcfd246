#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace heteroperf {

/// Where one thread waits for others: it spins, then yields, then sleeps.
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
      std::this_thread::yield();
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
  static constexpr int yields = 200;

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
