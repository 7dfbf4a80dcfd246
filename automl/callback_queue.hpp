#pragma once

#include <deque>
#include <functional>
#include <mutex>

namespace heteroperf {

/// Calls that leave a mutex-guarded object: posted under its lock, made in order and without it.
/// A nested or parallel `deliver` leaves its calls to whoever is at it, so one call runs at a time.
class CallbackQueue {
 public:
  void post(std::function<void()> call) { calls_.push_back(std::move(call)); }

  /// `lock` is held on entry and on return. A call must not throw.
  void deliver(std::unique_lock<std::mutex>& lock) {
    if (delivering_) return;
    delivering_ = true;
    while (!calls_.empty()) {
      std::function<void()> call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      call();
      call = nullptr;  // what it owns may call back when it dies
      lock.lock();
    }
    delivering_ = false;
  }

 private:
  std::deque<std::function<void()>> calls_;
  bool delivering_ = false;
};

}  // namespace heteroperf
