#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace heteroperf {

/// Says on stderr where a rank is once it has been at one instruction for too long. Costs the rank
/// two stores per instruction.
class Watchdog {
 public:
  /// `describe(instruction)` is called on the watchdog's thread.
  Watchdog(double timeout_s, std::function<std::string(std::int64_t)> describe);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void at(std::int64_t instruction);
  /// Between steps nobody waits.
  void rest() { at(-1); }
  /// Times it has spoken.
  int alarms() const { return alarms_.load(); }

 private:
  void watch();

  const double timeout_s_;
  const std::function<std::string(std::int64_t)> describe_;
  std::atomic<std::int64_t> instruction_{-1}, since_ns_{0};
  std::atomic<int> alarms_{0};
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace heteroperf
