// Tasks, their dependencies and the evaluation of an order.
//
// Dependencies are kept as successors of each task, in one vector. An evaluation adds to them that
// each task waits for the one before it on its rank, and releases tasks in topological order: a
// task starts at the latest of the ends of what it waits for (plus delays). Every task on a rank
// has its predecessor there as an input; the first of a rank is released by hand.

#include "runners/schedule/search/order_problem.hpp"

#include <algorithm>

namespace heteroperf {
OrderProblem::OrderProblem(const PipelineGraph& graph) : slots_(graph), collectives_(slots_) {
  delays_ = {0, graph.latency};
  for (const EdgeId edge : graph.edges.ids()) {
    for (const bool gradient : {false, true}) delays_.push_back(graph.delay(edge, gradient));
  }
  for (const Segment& segment : graph.segments) split_.push_back(segment.weight_gradient > 0);
  add_tasks();
  add_dependencies();
  find_bottom_levels();
}

/// Fills in costs, memory and ranks of all tasks. Unused numbers stay without a rank.
void OrderProblem::add_tasks() {
  const std::int32_t n = slots();
  tasks_.resize(3 * static_cast<std::size_t>(n) + collectives_.size() -
                collectives_.first_interaction());
  first_.assign(ranks() + 1, 0);
  for (std::int32_t slot = 0; slot < n; ++slot) {
    const SegmentId segment = slots_.segment_of(slot);
    const MicroBatchId micro_batch = slots_.micro_batch_of(slot);
    const Segment& s = graph().segments[segment];
    const double gradient = graph().input_gradient(segment, micro_batch);
    const double weight = graph().weight_gradient(segment, micro_batch);
    const auto add = [&](std::int32_t id, double cost, Op op) {
      const double change = memory_change(s, op) / graph().parts;
      tasks_[id] = {cost, 0, change, s.rank, segment, micro_batch, 0};
      ++first_[s.rank + 1];
    };
    add(slot, graph().forward(segment, micro_batch), Op::forward);
    if (split_[segment]) {
      add(n + slot, gradient, Op::input_gradient);
      add(2 * n + slot, weight, Op::weight_gradient);
    } else {
      add(n + slot, gradient + weight, Op::backward);
    }
  }
  for (std::int32_t id = 3 * n; id < size(); ++id) {
    tasks_[id].cost = graph().interactions[collectives_.set_of(collective(id)).interaction].cost;
  }
  const std::vector<double> work = graph().rank_work();
  period_ = *std::max_element(work.begin(), work.end()) / graph().micro_batches;
  for (int rank = 0; rank < ranks(); ++rank) first_[rank + 1] += first_[rank];
}

/// Calls visit(before, after, number of the delay between them) for every dependency of the graph.
template <class Visit>
void OrderProblem::for_each_dependency(Visit visit) const {
  const std::int32_t n = slots();
  for (std::int32_t slot = 0; slot < n; ++slot) {
    const SegmentId segment = slots_.segment_of(slot);
    const MicroBatchId micro_batch = slots_.micro_batch_of(slot);
    slots_.for_each_forward_input(slot, [&](std::int32_t producer, EdgeId edge) {
      visit(producer, slot, edge == EdgeId::none() ? 0 : 2 + 2 * edge.value());
    });
    visit(slot, n + slot, 0);
    slots_.for_each_gradient_input(slot, [&](std::int32_t consumer, EdgeId edge) {
      visit(n + consumer, n + slot, edge == EdgeId::none() ? 0 : 3 + 2 * edge.value());
    });
    for (const int x : slots_.interactions_of(segment)) {
      const std::int32_t c = collectives_.interaction(x, micro_batch);
      const std::int32_t set = 3 * n + c - collectives_.first_interaction();
      // One latency lies between members on several ranks and the interaction's end.
      visit(slot, set, collectives_.ranks(c).size() > 1 ? 1 : 0);
      visit(set, n + slot, 0);
    }
    if (split_[segment]) visit(n + slot, 2 * n + slot, 0);
  }
}

void OrderProblem::add_dependencies() {
  for_each_dependency(
      [&](std::int32_t, std::int32_t after, std::int32_t) { ++tasks_[after].inputs; });
  successors_ = GroupedLists<Successor>(tasks_.size(), [&](auto insert) {
    for_each_dependency([&](std::int32_t before, std::int32_t after, std::int32_t delay) {
      insert(before, Successor{after, delay});
    });
  });
}

/// Goes over the tasks from the last to the first of a topological order.
void OrderProblem::find_bottom_levels() {
  std::vector<std::int32_t> waits(size()), sorted;
  sorted.reserve(size());
  for (std::int32_t id = 0; id < size(); ++id) {
    waits[id] = tasks_[id].inputs;
    if (waits[id] == 0) sorted.push_back(id);
  }
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (const Successor& next : successors(sorted[i])) {
      if (--waits[next.task] == 0) sorted.push_back(next.task);
    }
  }
  for (auto id = sorted.rbegin(); id != sorted.rend(); ++id) {
    double after = 0;
    for (const Successor& next : successors(*id)) {
      after = std::max(after, tasks_[next.task].bottom_level + latency(next));
    }
    tasks_[*id].bottom_level = tasks_[*id].cost + after;
  }
}

Op OrderProblem::op(std::int32_t id) const {
  if (id < slots()) return Op::forward;
  if (id >= 3 * slots()) return Op::interact;
  if (id >= 2 * slots()) return Op::weight_gradient;
  return split_[tasks_[id].segment] ? Op::input_gradient : Op::backward;
}

/// Programs list computations rank by rank already, so only their numbers have to be found.
std::vector<std::int32_t> OrderProblem::order_of(const Schedule& schedule) const {
  std::vector<std::int32_t> order;
  order.reserve(ordered());
  for (const std::vector<Instruction>& program : schedule.programs) {
    for (const Instruction& i : program) {
      if (!is_compute(i.op)) continue;
      const std::int32_t slot = slots_.slot(i);
      if (slot < 0 || i.fused_with_next || i.op == Op::recompute) return {};
      const bool split = split_[i.segment];
      if (i.op == Op::forward) order.push_back(slot);
      if (makes_input_gradient(i.op)) order.push_back(slots() + slot);
      if (split && (i.op == Op::weight_gradient || i.op == Op::backward)) {
        order.push_back(2 * slots() + slot);
      }
    }
  }
  if (static_cast<std::int32_t>(order.size()) != ordered()) return {};
  return order;
}

/// Appends a task to the program of its rank, or an interaction to those of its members.
void OrderProblem::append_instructions(std::int32_t id, Schedule& schedule) const {
  if (!is_interaction(id)) {
    const std::int32_t slot = id % slots();
    schedule.programs[tasks_[id].rank].push_back(slots_.instruction(op(id), slot));
    return;
  }
  const CollectiveIndex::Set set = collectives_.set_of(collective(id));
  for (const int rank : collectives_.ranks(collective(id))) {
    schedule.programs[rank].push_back({.op = Op::interact,
                                       .micro_batch = set.first_micro_batch,
                                       .edge = EdgeId(set.interaction)});
  }
}

/// Interactions stand where the sequence has them, behind the forwards that they wait for.
Schedule OrderProblem::to_schedule(std::span<const std::int32_t> sequence) const {
  Schedule schedule;
  schedule.graph = graph();
  schedule.programs.resize(ranks());
  for (int rank = 0; rank < ranks(); ++rank) {
    schedule.programs[rank].reserve(first_[rank + 1] - first_[rank]);
  }
  for (const std::int32_t id : sequence) append_instructions(id, schedule);
  return schedule;
}

OrderEvaluator::OrderEvaluator(const OrderProblem& problem)
    : problem_(&problem),
      start_(problem.size()),
      cause_(problem.size()),
      waits_(problem.size()),
      next_on_rank_(problem.size()),
      inputs_(problem.size()) {
  for (std::int32_t id = 0; id < problem.size(); ++id) {
    inputs_[id] = problem.task(id).inputs + (problem.task(id).rank >= 0 ? 1 : 0);
  }
  sequence_.reserve(problem.size());
}

/// Notes that one of the inputs of a task is there.
void OrderEvaluator::release(std::int32_t task, double time, std::int32_t cause) {
  if (time > start_[task]) {
    start_[task] = time;
    cause_[task] = cause;
  }
  if (--waits_[task] == 0) sequence_.push_back(task);
}

bool OrderEvaluator::evaluate(std::span<const std::int32_t> order) {
  std::copy(inputs_.begin(), inputs_.end(), waits_.begin());
  std::fill(start_.begin(), start_.end(), 0.0);
  std::fill(cause_.begin(), cause_.end(), -1);
  std::fill(next_on_rank_.begin(), next_on_rank_.end(), -1);
  sequence_.clear();
  for (int rank = 0; rank < problem_->ranks(); ++rank) {
    for (std::int32_t i = problem_->first(rank); i + 1 < problem_->first(rank + 1); ++i) {
      next_on_rank_[order[i]] = order[i + 1];
    }
  }
  for (int rank = 0; rank < problem_->ranks(); ++rank) {
    if (problem_->first(rank) < problem_->first(rank + 1)) {
      release(order[problem_->first(rank)], 0, -1);
    }
  }
  for (std::size_t i = 0; i < sequence_.size(); ++i) {
    const std::int32_t id = sequence_[i];
    const double finish = end(id);
    if (next_on_rank_[id] >= 0) release(next_on_rank_[id], finish, id);
    for (const OrderProblem::Successor& next : problem_->successors(id)) {
      release(next.task, finish + problem_->latency(next), id);
    }
  }
  const auto expected =
      static_cast<std::size_t>(problem_->ordered() + problem_->size() - 3 * problem_->slots());
  if (sequence_.size() != expected) return false;
  times_ = {};
  for (int rank = 0; rank < problem_->ranks(); ++rank) {
    if (problem_->first(rank) == problem_->first(rank + 1)) continue;
    const double last = end(order[problem_->first(rank + 1) - 1]);
    times_.makespan = std::max(times_.makespan, last);
    times_.longest_span =
        std::max(times_.longest_span, last - start_[order[problem_->first(rank)]]);
    times_.end_sum += last;
  }
  return true;
}

double peak_memory(const OrderProblem& problem, std::span<const std::int32_t> order, int rank) {
  double held = 0, most = 0;
  for (std::int32_t i = problem.first(rank); i < problem.first(rank + 1); ++i) {
    held += problem.task(order[i]).memory_change;
    most = std::max(most, held);
  }
  return most;
}

}  // namespace heteroperf
