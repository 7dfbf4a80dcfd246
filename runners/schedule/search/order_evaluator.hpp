#pragma once

#include <span>
#include <vector>

#include "runners/schedule/search/order_problem.hpp"

namespace heteroperf {

/// What an order of tasks takes, in the latency model.
struct OrderTimes {
  double makespan = 0;
  double longest_span = 0;  ///< over the ranks, last end − first start
  double end_sum = 0;       ///< of the ranks' last ends: tells apart orders of one makespan
};

/// Times orders; allocates once, then costs one pass over tasks and dependencies per call.
class OrderEvaluator {
 public:
  explicit OrderEvaluator(const OrderProblem& problem);

  /// `order` holds each rank's tasks in turn (see OrderProblem::first). False where it cannot run
  /// to its end: tasks wait for each other.
  bool evaluate(std::span<const std::int32_t> order);

  /// Of the last evaluate() that was true.
  const OrderTimes& times() const { return times_; }
  double start(std::int32_t task) const { return start_[task]; }
  double end(std::int32_t task) const { return start_[task] + problem_->task(task).cost; }
  /// The task whose end (plus latency) made this one start when it does; −1: none.
  std::int32_t cause(std::int32_t task) const { return cause_[task]; }
  /// All tasks, interactions too, none before what it waits for.
  std::span<const std::int32_t> sequence() const { return sequence_; }

 private:
  void release(std::int32_t task, double time, std::int32_t cause);

  const OrderProblem* problem_;
  std::vector<double> start_;
  std::vector<std::int32_t> cause_, waits_, next_on_rank_, inputs_, sequence_;
  OrderTimes times_;
};

/// The most memory each rank holds at once, as MemoryPeaks::memory.
double peak_memory(const OrderProblem& problem, std::span<const std::int32_t> order, int rank);

}  // namespace heteroperf
