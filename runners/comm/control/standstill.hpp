#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// A rank has waited longer than it should, for these ranks.
struct OverdueWait {
  std::uint64_t id = 0;  ///< another wait, or one that made progress, has another
  std::vector<RankId> needed;
  friend bool operator==(const OverdueWait&, const OverdueWait&) = default;
};

/// The waits of one rank's threads. The threads write them down, the control channel's thread
/// reads them. Held by a shared pointer.
class WaitLedger : public std::enable_shared_from_this<WaitLedger> {
 public:
  explicit WaitLedger(RankId self) : self_(self) {}

  /// The calling thread uses communicators until it ends. Cheap.
  void note_thread();
  /// The calling thread waits for these ranks, and `under_way` bytes are on their way from or to
  /// this rank. Counts as progress where something differs from the last time.
  void waits_for(std::span<const RankId> needed, Bytes under_way, double now_s);
  void waits_no_more();
  /// Lets all waits begin anew, after a pause of this process.
  void start_again(double now_s);
  /// The ranks that all threads need together. Empty unless every thread waits and has waited for
  /// `patience_s` and for as long as the slowest usable link (10 Mbit/s) needs for the bytes: a
  /// thread that does not wait may be about to send something that a peer needs.
  std::optional<OverdueWait> overdue(double now_s, double patience_s) const;

 private:
  struct ThreadWait {
    std::vector<RankId> needed;  ///< empty: the thread does not wait
    Bytes under_way{0};
    double since_s = 0;
  };
  /// Lives as long as its thread and then makes the ledger forget the thread.
  struct KnownThread;
  void forget_thread();

  const RankId self_;
  mutable std::mutex mutex_;
  std::uint64_t id_ = 0;
  std::map<std::thread::id, ThreadWait> threads_;
};

/// The largest set of ranks that are all overdue and wait for nobody outside the set, in rank
/// order: none of them can go on by itself. `waits` is by rank.
std::vector<RankId> stuck_ranks(const std::vector<std::optional<OverdueWait>>& waits);

/// Rank 0's view of all waits, by which it finds living ranks that wait for each other, as at both
/// ends of a link that is cut.
class Standstill {
 public:
  explicit Standstill(int size) : reports_(size) {}

  /// Notes the wait that a rank reported with its last sign of life.
  void note(RankId rank, std::optional<OverdueWait> wait);
  /// A failure once the same ranks have been stuck in the same waits for three signs of life of
  /// each. It names two ranks that wait for each other, or a circle. `waited_s` is for the text.
  std::optional<RankFailure> verdict(double waited_s);

 private:
  struct Report {
    std::optional<OverdueWait> wait;
    int repeats = 0;  ///< times that the same wait was seen
  };
  std::vector<Report> reports_;
};

}  // namespace heteroperf
