#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/ir/task_table.hpp"

namespace heteroperf {

/// A graph as numbered tasks with costs, what each waits for, and what it does to memory: what the
/// list scheduler and the order evaluator work on. With n slots, task s is the forward of slot s,
/// n + s its B or BW, 2n + s its W (where B and W are apart), and the sets of the interactions
/// follow; those occupy no rank.
class OrderProblem {
 public:
  enum class Gradients { split, fused };

  /// The graph must be normalised and outlive the problem. Segments whose W costs nothing are
  /// always fused.
  OrderProblem(const PipelineGraph& graph, Gradients gradients);

  struct Task {
    double cost = 0;
    /// Longest path from this task's start to the end of all, on ranks without limit.
    double bottom_level = 0;
    double memory_change = 0;
    std::int32_t rank = -1;     ///< −1: an interaction, or no task at all
    std::int32_t segment = -1;  ///< −1 likewise
    std::int32_t micro_batch = -1;
    std::int32_t inputs = 0;  ///< tasks it waits for
    std::int32_t first_successor = 0;
  };
  struct Successor {
    std::int32_t task = 0;
    std::int32_t delay = 0;  ///< number of what lies between: 0: nothing
  };

  const PipelineGraph& graph() const { return slots_.graph(); }
  std::int32_t size() const { return static_cast<std::int32_t>(tasks_.size()) - 1; }
  int ranks() const { return graph().ranks; }
  std::int32_t slots() const { return slots_.slots(); }
  std::int32_t first_slot(int segment) const { return slots_.first_slot(segment); }
  const Task& task(std::int32_t id) const { return tasks_[id]; }
  std::span<const Successor> successors(std::int32_t id) const {
    return {successors_.data() + tasks_[id].first_successor,
            successors_.data() + tasks_[id + 1].first_successor};
  }
  double latency(const Successor& successor) const { return delays_[successor.delay]; }
  Op op(std::int32_t id) const;
  bool is_forward(std::int32_t id) const { return id < slots(); }
  bool is_interaction(std::int32_t id) const { return id >= 3 * slots(); }
  bool has_weight_gradient(int segment) const { return split_[segment]; }

  /// Tasks of rank r stand at [first(r), first(r + 1)) of an order.
  std::int32_t first(int rank) const { return first_[rank]; }
  /// Tasks that occupy ranks.
  std::int32_t ordered() const { return first_.back(); }

  /// The largest work of a rank over the micro-batches: what one of them takes in a steady state.
  double period() const { return period_; }

  /// The order of a schedule of the same graph; BW becomes B and W here where those are apart.
  /// Empty where it holds what has no counterpart here (RECOMPUTE, fused pairs).
  std::vector<std::int32_t> order_of(const Schedule& schedule) const;
  /// `sequence` holds every task once, interactions too, none before what it waits for.
  Schedule to_schedule(std::span<const std::int32_t> sequence) const;

 private:
  void add_tasks();
  void add_dependencies();
  void find_bottom_levels();
  template <class Visit>
  void for_each_dependency(Visit visit) const;
  std::int32_t interaction_task(int interaction, int micro_batch) const;
  void append_instructions(std::int32_t id, Schedule& schedule) const;

  TaskTable slots_;
  std::vector<bool> split_;                      // [segment]
  std::vector<std::int32_t> interaction_first_;  // [interaction], and the end
  std::vector<Task> tasks_;                      // and one more that ends the last successors
  std::vector<Successor> successors_;
  std::vector<std::int32_t> first_;  // [rank], and the end
  std::vector<double> delays_;       // none, the latency, then each edge's, forward and back
  double period_ = 0;
};

}  // namespace heteroperf
