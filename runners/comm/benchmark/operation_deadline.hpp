#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "metrics/quantity.hpp"
#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// The strict deadline of benchmarks: an operation that takes longer breaks the run although its
/// peers show signs of life. A thread of its own watches; it tells every rank, whose waits then
/// throw PeerError{timeout} that names this rank and the operation.
class OperationDeadline {
 public:
  OperationDeadline(ControlChannel& control, RankId rank);
  ~OperationDeadline();
  OperationDeadline(const OperationDeadline&) = delete;
  OperationDeadline& operator=(const OperationDeadline&) = delete;

  /// What the next operations are, and how long each may take.
  void expect(std::string operation, Seconds limit);
  /// An operation begins now. Costs a clock reading.
  void begin();
  /// Nothing is under way.
  void end() { due_ns_.store(never, std::memory_order_relaxed); }

 private:
  static constexpr std::int64_t never = INT64_MAX;
  void watch();

  ControlChannel& control_;
  RankId rank_;
  std::atomic<std::int64_t> due_ns_{never};
  std::atomic<std::int64_t> limit_ns_{never};
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  std::string operation_;
  bool ended_ = false;
  std::thread thread_;
};

/// max(5 s, 20 × predicted).
Seconds strict_limit(Seconds predicted);

}  // namespace heteroperf
