#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>

namespace heteroperf {

/// Says on stderr where a rank is once it has been at one instruction for too long. Costs the rank
/// two stores per instruction.
class Watchdog {
 public:
  /// `describe(instruction)` is called on the watchdog's thread.
  Watchdog(double timeout_s, std::function<std::string(std::int64_t)> describe);

  void at(std::int64_t instruction);
  /// Between steps nobody waits.
  void rest() { at(-1); }

 private:
  void watch(const std::stop_token& end);

  const double timeout_s_;
  const std::function<std::string(std::int64_t)> describe_;
  std::atomic<std::int64_t> instruction_{-1}, since_ns_{0};
  std::jthread thread_;  // ends first
};

}  // namespace heteroperf
