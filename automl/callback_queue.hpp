#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <mutex>

namespace heteroperf {

/// Calls that leave a mutex-guarded object: posted under its lock, made in order and without it.
/// A nested or parallel `deliver` leaves its calls to whoever is at it, so one call runs at a time.
class CallbackQueue {
 public:
  void post(std::function<void()> call) { calls_.push_back(std::move(call)); }

  /// `lock` is held on entry and on return. What a call throws is thrown on once all calls are
  /// made, of several the first: a journal on a full disk must not keep a trial's answer back.
  void deliver(std::unique_lock<std::mutex>& lock) {
    if (delivering_) return;
    delivering_ = true;
    std::exception_ptr thrown;
    while (!calls_.empty()) {
      std::function<void()> call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      try {
        call();
      } catch (...) {
        if (!thrown) thrown = std::current_exception();
      }
      call = nullptr;  // what it owns may call back when it dies
      lock.lock();
    }
    delivering_ = false;
    if (thrown) std::rethrow_exception(thrown);
  }

 private:
  std::deque<std::function<void()>> calls_;
  bool delivering_ = false;
};

}  // namespace heteroperf
