#pragma once

#include <vector>

#include "metrics/base/error.hpp"
#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/search/order_problem.hpp"

namespace heteroperf {

/// The knobs by which a list scheduler chooses among the tasks that may start. The one with the
/// largest key goes first:
///   bottom level + forward_bias (of an F) − age · period · micro-batch
/// where `period` is the busiest rank's work for one micro-batch. With age 1 a rank so runs ahead
/// with forwards by as many micro-batches as pass while one comes back; 0 prefers forwards, a large
/// one gradients.
struct ListRules {
  std::vector<double> memory_limit;  ///< [rank], in activations of a micro-batch; infinite: none
  double age = 1;
  IdVector<SegmentId, double> forward_bias;  ///< time; empty: none
  /// [rank]: an idle rank starts a W unless an F or B is known to arrive within this share of it;
  /// 0 starts always, 1 only where W fits whole; empty: 0.
  std::vector<double> patience;
  /// [rank]: a rank waits for a task that ranks higher and is known to arrive within this share of
  /// what it could start now; 0 (empty): never, which makes the schedule non-delay for F and B.
  std::vector<double> foresight;
};

/// List scheduling on a virtual clock: whenever a rank is idle, it starts the best task of those
/// that may start there. The scheduler allocates once, then costs one pass over the tasks per call.
/// A rank never gets stuck for memory: F of a later micro-batch (or of a later set of those that an
/// interaction ties together) leaves room for all forwards of the rank's oldest unfinished one, and
/// every F for what the fullest B adds.
///
/// It is the one clock that decides an order instead of following one. Its events are decisions of
/// ranks, not arrivals, so it has a loop of its own beside those of simulate/.
class ListScheduler {
 public:
  explicit ListScheduler(const OrderProblem& problem);

  /// The result is false where a limit admitted no next task.
  bool run(const ListRules& rules);

  /// Each rank's tasks in turn, as OrderProblem::first says, by the last run() that was true.
  const std::vector<std::int32_t>& order() const { return order_; }
  const OrderTimes& times() const { return times_; }

  /// The least limit of a rank with which run() cannot fail: all forwards of one micro-batch, and
  /// its fullest B.
  double least_limit(int rank) const { return unit_memory_most_[rank] + backward_most_[rank]; }
  /// The error to throw where run() was false.
  UserError no_order(const std::vector<double>& memory_limit) const;

 private:
  /// A queue of ready tasks of one kind and segment. Its head is the only candidate.
  struct Queue {
    std::int32_t head = 0, tail = 0;
  };
  struct Rank {
    double free_at = 0, held = 0, younger = 0;  // younger: held by units after the oldest
    std::int32_t oldest = 0;                    // the first unit whose forwards are not all done
    std::int32_t done = 0;                      // tasks that have run
    double first_start = 0;
  };
  struct Choice {
    std::int32_t task = -1;
    double key = 0, ready = 0;
  };

  void find_units();
  void reset(const ListRules& rules);
  void decide(int rank, double now);
  Choice best_of(int rank, double now, double& next_arrival, Choice& awaited) const;
  Choice best_weight_gradient(int rank) const;
  bool fits(int rank, std::int32_t task) const;
  double key(std::int32_t task) const;
  void start(int rank, std::int32_t task, double now);
  void account(int rank, std::int32_t task);
  void finish(std::int32_t task, double end);
  void make_ready(std::int32_t task);
  Queue& queue_of(std::int32_t task);
  void set_event(int rank, double time);

  const OrderProblem* problem_;
  const ListRules* rules_ = nullptr;                 // those of the present run
  std::vector<std::vector<SegmentId>> segments_of_;  // [rank]
  IdVector<MicroBatchId, std::int32_t> unit_of_;
  std::int32_t units_ = 0;
  std::vector<double> unit_memory_most_;     // [rank]
  std::vector<double> backward_most_;        // [rank]: the most that a B adds
  std::vector<std::int32_t> unit_forwards_;  // [rank][unit]
  std::vector<std::int32_t> unit_left_;      // [rank][unit]: forwards that are not done
  std::vector<double> unit_held_;            // [rank][unit]
  std::vector<Queue> queues_;                // [kind of task][segment]
  std::vector<std::int32_t> queued_;         // [task]: storage of the queues
  std::vector<double> ready_;                // [task]
  std::vector<std::int32_t> waits_;          // [task]
  std::vector<Rank> ranks_;
  /// A tournament tree over the ranks' next decisions: leaf leaves_ + r has rank r's time, every
  /// inner node the smaller one of its two children.
  std::vector<double> events_;
  std::size_t leaves_ = 1;
  std::vector<std::int32_t> order_;
  OrderTimes times_;
};

}  // namespace heteroperf
