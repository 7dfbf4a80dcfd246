#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// The strict deadline of benchmarks: an operation that takes longer breaks the run although its
/// peers show signs of life. A thread of its own watches on every rank and tells rank 0 when its
/// rank is late. A second after the first such news rank 0 breaks the run, and names a rank that is
/// not late with the others: it has not taken part. Every wait then throws PeerError{timeout}.
///
/// Every rank has a deadline; rank 0's serves the control channel as long as it lives.
class OperationDeadline {
 public:
  /// `stop` tells that the user wants this rank to end; where the work does not do so by itself
  /// within two seconds, the run is broken with ErrorKind::interrupted.
  OperationDeadline(ControlChannel& control, RankId rank, int ranks,
                    std::function<bool()> stop = nullptr);
  ~OperationDeadline();
  OperationDeadline(const OperationDeadline&) = delete;
  OperationDeadline& operator=(const OperationDeadline&) = delete;

  /// Names the next operations and the time that each may take.
  void expect(std::string operation, Seconds limit);
  /// Says that an operation begins now. Costs a clock reading.
  void begin();
  /// Says that no operation is under way.
  void end() { due_ns_.store(never, std::memory_order_relaxed); }

 private:
  static constexpr std::int64_t never = INT64_MAX;
  void watch();
  void note_late(RankId rank, std::string message);
  /// Returns the failure that breaks the run, once it is time to say so. For rank 0.
  std::optional<RankFailure> verdict() const;
  std::optional<RankFailure> interruption();

  ControlChannel& control_;
  RankId rank_;
  std::atomic<std::int64_t> due_ns_{never};
  std::atomic<std::int64_t> limit_ns_{never};
  mutable std::mutex mutex_;
  std::condition_variable ended_changed_;
  std::string operation_;
  std::vector<bool> late_;  ///< by rank; used by rank 0
  std::string first_message_;
  std::int64_t first_late_ns_ = never;
  std::function<bool()> stop_;
  std::int64_t stop_due_ns_ = never;
  bool ended_ = false;
  std::optional<ServiceScope> service_;
  std::thread thread_;
};

/// Returns max(5 s, 20 × predicted).
Seconds strict_limit(Seconds predicted);

}  // namespace heteroperf
