#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "metrics/base/quantity.hpp"

namespace heteroperf {

/// A rank has waited longer than it should, for these ranks.
struct OverdueWait {
  std::uint64_t id = 0;  ///< another wait, or one that made progress, has another
  std::vector<RankId> needed;
  friend bool operator==(const OverdueWait&, const OverdueWait&) = default;
};

/// What the threads of a rank wait for. They write, the control channel's reads.
class WaitLedger : public std::enable_shared_from_this<WaitLedger> {
 public:
  explicit WaitLedger(RankId self) : self_(self) {}

  /// The caller uses communicators until its thread ends. Cheap.
  void note_thread();
  /// The caller's wait needs these ranks, `under_way` bytes are on their way from or to this one.
  /// Counts as progress where something differs from the last time.
  void waits_for(std::span<const RankId> needed, Bytes under_way, double now_s);
  void waits_no_more();
  /// After a pause of this process.
  void start_again(double now_s);
  /// What all threads need, once every one waits and has for `patience_s`, and for what the slowest
  /// usable link (10 Mbit/s) needs for the bytes. A thread that does not wait may be about to send
  /// what a peer needs.
  std::optional<OverdueWait> overdue(double now_s, double patience_s) const;

 private:
  struct ThreadWait {
    std::vector<RankId> needed;  ///< nobody: does not wait
    Bytes under_way{0};
    double since_s = 0;
  };
  /// Ends with its thread.
  struct KnownThread;
  void forget_thread();

  const RankId self_;
  mutable std::mutex mutex_;
  std::uint64_t id_ = 0;
  std::map<std::thread::id, ThreadWait> threads_;
};

}  // namespace heteroperf
