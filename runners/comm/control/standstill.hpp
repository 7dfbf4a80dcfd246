#pragma once

#include <optional>
#include <vector>

#include "runners/comm/control/wait_ledger.hpp"
#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// The largest set of ranks that wait, every one overdue, for nobody outside the set: none of them
/// can go on by itself. `waits` by rank; in order.
std::vector<RankId> stuck_ranks(const std::vector<std::optional<OverdueWait>>& waits);

/// Finds living ranks that wait for each other, as at both ends of a link that is cut. Rank 0's.
class Standstill {
 public:
  explicit Standstill(int size) : reports_(static_cast<std::size_t>(size)) {}

  /// What a rank said with its last sign of life.
  void note(RankId rank, std::optional<OverdueWait> wait);
  /// The same ranks have been stuck in the same waits for three signs of life of each: names two
  /// that wait for each other, or a circle. `waited_s` is for the text.
  std::optional<RankFailure> verdict(double waited_s);

 private:
  struct Report {
    std::optional<OverdueWait> wait;
    int repeats = 0;  ///< of the same wait
  };
  std::vector<Report> reports_;
};

}  // namespace heteroperf
