#pragma once

#include <functional>
#include <span>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Something that all ranks of a group do together; a rank without a part in it does nothing.
struct TimedTask {
  std::function<void()> run;
  int calls = 1;  ///< back to back after a barrier; equal on all ranks
  /// Calls before the clock starts: they bring caches, shapers and buffers into the state that
  /// calls in a row find.
  int untimed = 0;
};

/// Seconds per call of every task, round and rank. Equal on all ranks.
class Timings {
 public:
  Timings(std::size_t tasks, std::size_t rounds, std::size_t ranks, std::vector<double> seconds);

  std::size_t rounds() const { return rounds_; }
  /// Per round the slowest rank's time.
  std::vector<double> slowest(std::size_t task) const;
  /// The same among some ranks.
  std::vector<double> slowest(std::size_t task, std::span<const RankId> ranks) const;

 private:
  double at(std::size_t task, std::size_t round, std::size_t rank) const;

  std::size_t tasks_, rounds_, ranks_;
  std::vector<double> seconds_;  ///< by rank, round, task
};

/// Every round runs every task once, so that a disturbance meets all of them alike. Collective.
Timings time_interleaved(Communicator& group, std::span<const TimedTask> tasks, int rounds);

}  // namespace heteroperf
