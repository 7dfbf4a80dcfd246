#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "runners/schedule/ir/graph_index.hpp"

namespace heteroperf {

/// The graph as the search sees it: numbered tasks with costs, the tasks that each waits for, and
/// the change of memory by each. With n slots, task s is the forward of slot s, n + s its B or BW,
/// 2n + s its W (where B and W are apart), and the sets of the interactions follow; those occupy no
/// rank. An *order* lists each rank's tasks in turn, in one vector.
class OrderProblem {
 public:
  /// The graph must be normalised and outlive the problem. B and W are apart, except in segments
  /// whose W costs nothing.
  explicit OrderProblem(const PipelineGraph& graph);

  struct Task {
    double cost = 0;
    /// The longest path from this task's start to the end of all, on ranks without limit.
    double bottom_level = 0;
    double memory_change = 0;
    std::int32_t rank = -1;  ///< −1: an interaction, or no task at all
    SegmentId segment = -1;  ///< −1 likewise
    MicroBatchId micro_batch = -1;
    std::int32_t inputs = 0;  ///< number of tasks it waits for
  };
  struct Successor {
    std::int32_t task = 0;
    std::int32_t delay = 0;  ///< number of the delay between the two; 0: none
  };

  const PipelineGraph& graph() const { return slots_.graph(); }
  std::int32_t size() const { return static_cast<std::int32_t>(tasks_.size()); }
  int ranks() const { return graph().ranks; }
  std::int32_t slots() const { return slots_.slots(); }
  std::int32_t first_slot(SegmentId segment) const { return slots_.first_slot(segment); }
  const Task& task(std::int32_t id) const { return tasks_[id]; }
  std::span<const Successor> successors(std::int32_t id) const { return successors_.of(id); }
  double latency(const Successor& successor) const { return delays_[successor.delay]; }
  Op op(std::int32_t id) const;
  bool is_forward(std::int32_t id) const { return id < slots(); }
  bool is_interaction(std::int32_t id) const { return id >= 3 * slots(); }
  /// The collective that an interaction's task is.
  std::int32_t collective(std::int32_t id) const {
    return id - 3 * slots() + collectives_.first_interaction();
  }

  /// The tasks of rank r stand at [first(r), first(r + 1)) of an order.
  std::int32_t first(int rank) const { return first_[rank]; }
  /// The number of tasks that occupy ranks, which is the length of an order.
  std::int32_t ordered() const { return first_.back(); }

  /// The busiest rank's work for one micro-batch: the time between micro-batches in a steady state.
  double period() const { return period_; }

  /// The order of a schedule of the same graph; BW becomes B and W where those are apart here. The
  /// result is empty where the schedule holds something without a counterpart (RECOMPUTE, fused
  /// pairs).
  std::vector<std::int32_t> order_of(const Schedule& schedule) const;
  /// `sequence` holds every task once, interactions too, none before what it waits for.
  Schedule to_schedule(std::span<const std::int32_t> sequence) const;

 private:
  void add_tasks();
  void add_dependencies();
  void find_bottom_levels();
  template <class Visit>
  void for_each_dependency(Visit visit) const;
  void append_instructions(std::int32_t id, Schedule& schedule) const;

  TaskTable slots_;
  CollectiveIndex collectives_;
  IdVector<SegmentId, bool> split_;
  std::vector<Task> tasks_;
  GroupedLists<Successor> successors_;  // by task
  std::vector<std::int32_t> first_;     // [rank], and the end
  std::vector<double> delays_;          // none, the latency, then each edge's, forward and back
  double period_ = 0;
};

/// The times of an order of tasks in the latency model.
struct OrderTimes {
  double makespan = 0;
  double longest_span = 0;  ///< over the ranks, last end − first start
  double end_sum = 0;       ///< sum of the ranks' last ends, to tell orders of one makespan apart
};

/// Times orders. It allocates once, then costs one pass over tasks and dependencies per call: a
/// search evaluates tens of thousands of orders. simulate() gives the same times for a schedule,
/// but finds out first what each instruction waits for; here those lists are given, so the two stay
/// apart.
class OrderEvaluator {
 public:
  explicit OrderEvaluator(const OrderProblem& problem);

  /// `order` holds each rank's tasks in turn (see OrderProblem::first). The result is false where
  /// it cannot run to its end because tasks wait for each other.
  bool evaluate(std::span<const std::int32_t> order);

  /// These describe the order of the last evaluate() that was true.
  const OrderTimes& times() const { return times_; }
  double start(std::int32_t task) const { return start_[task]; }
  double end(std::int32_t task) const { return start_[task] + problem_->task(task).cost; }
  /// The task whose end (plus latency) is this one's start; −1 where there is none.
  std::int32_t cause(std::int32_t task) const { return cause_[task]; }
  /// All tasks, interactions too, none before a task that it waits for.
  std::span<const std::int32_t> sequence() const { return sequence_; }

 private:
  void release(std::int32_t task, double time, std::int32_t cause);

  const OrderProblem* problem_;
  std::vector<double> start_;
  std::vector<std::int32_t> cause_, waits_, next_on_rank_, inputs_;  // [task]
  std::vector<std::int32_t> sequence_;
  OrderTimes times_;
};

/// The most memory that a rank holds at once, counted as MemoryPeaks::memory.
double peak_memory(const OrderProblem& problem, std::span<const std::int32_t> order, int rank);

}  // namespace heteroperf
