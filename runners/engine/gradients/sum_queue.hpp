#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/gradients/gradient_sum.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

/// Runs a step's sums in their order, each once its parameters are final: on a thread of its own as
/// soon as it may, or all in finish_step().
class SumQueue {
 public:
  struct Entry {
    std::unique_ptr<GradientSum> sum;
    std::size_t parameters = 1;
  };
  enum class Runner { own_thread, caller };
  /// Keeps `groups`, which the sums use, for as long as a sum may run. `memory`: charged with what
  /// the thread allocates.
  SumQueue(std::vector<std::unique_ptr<Communicator>> groups, std::vector<Entry> entries,
           Runner runner, std::optional<RankMemory> memory);
  /// Ends the thread. One that is inside a sum whose peers do not come is left to itself after a
  /// moment: it ends when its communicator learns that the run has failed.
  ~SumQueue();
  SumQueue(const SumQueue&) = delete;
  SumQueue& operator=(const SumQueue&) = delete;

  /// One more parameter of a sum is final.
  void parameter_final(std::size_t entry);
  /// Until all sums are there; then a new step begins. Precondition: all parameters are final.
  /// Rethrows what a sum has thrown, then and from then on.
  void finish_step();
  /// Collective, between steps.
  void share();

  /// From the next step on its thread appends its sums to `lanes`, which nobody else touches from a
  /// step's first parameter to the end of finish_step(); null: it does not.
  void trace_to(std::vector<LaneSpan>* lanes);

  std::size_t size() const;
  std::size_t done() const;
  /// Seconds in the sums of the last step; in finish_step().
  double busy_s() const { return busy_s_; }
  double exposed_s() const { return exposed_s_; }

 private:
  struct State;
  std::shared_ptr<State> state_;
  Runner runner_;
  double busy_s_ = 0, exposed_s_ = 0;
};

}  // namespace heteroperf
