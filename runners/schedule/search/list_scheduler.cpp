// Every rank has the time of its next decision in a tournament tree; the earliest one decides. It
// starts an F or B, fills the gap with a W, or waits for something that is known to arrive.
// Starting a task makes its successors ready at its end, which may bring decisions of other ranks
// forward.
//
// *Units* keep a memory limit from blocking a rank: a unit is a run of micro-batches whose forwards
// must all be done before gradients may be needed, one micro-batch where there are no interactions.
// Forwards of later units leave the room that the oldest unit still needs.

#include "runners/schedule/search/list_scheduler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
/// Sums of shares of activations may miss a limit by this, through rounding.
constexpr double memory_rounding = 1e-9;

/// A knob of a rank or segment; knobs that are not given are 0.
template <class Knobs, class Index>
double knob(const Knobs& values, Index index) {
  return values.empty() ? 0 : values[index];
}

}  // namespace

ListScheduler::ListScheduler(const OrderProblem& problem)
    : problem_(&problem),
      segments_of_(problem.ranks()),
      queues_(3 * problem.graph().segments.size()),
      queued_(3 * static_cast<std::size_t>(problem.slots())),
      ready_(problem.size()),
      waits_(problem.size()),
      ranks_(problem.ranks()),
      order_(problem.ordered()) {
  const auto& segments = problem.graph().segments;
  for (const SegmentId segment : segments.ids()) {
    if (segments[segment].micro_batches == 0) continue;
    segments_of_[segments[segment].rank].push_back(segment);
  }
  while (leaves_ < ranks_.size()) leaves_ *= 2;
  events_.resize(2 * leaves_);
  find_units();
}

/// Units are the sets of interactions; sets that overlap are one unit.
void ListScheduler::find_units() {
  const PipelineGraph& graph = problem_->graph();
  IdVector<MicroBatchId, bool> tied(graph.micro_batches, false);  // with the micro-batch before
  for (const Interaction& x : graph.interactions) {
    const Segment& member = graph.segments[x.members.front()];
    for (int i = 0; i < member.micro_batches; ++i) {
      if (i % x.every != 0) tied[member.first_micro_batch + i] = true;
    }
  }
  unit_of_.assign(graph.micro_batches, 0);
  for (MicroBatchId k = 1; unit_of_.contains(k); ++k) {
    unit_of_[k] = unit_of_[k - 1] + (tied[k] ? 0 : 1);
  }
  units_ = unit_of_.back() + 1;
  const std::size_t cells = ranks_.size() * units_;
  unit_forwards_.assign(cells, 0);
  std::vector<double> memory(cells, 0);
  backward_most_.assign(ranks_.size(), 0);
  for (std::int32_t slot = 0; slot < problem_->slots(); ++slot) {
    const OrderProblem::Task& task = problem_->task(slot);
    const std::size_t cell =
        static_cast<std::size_t>(task.rank) * units_ + unit_of_[task.micro_batch];
    ++unit_forwards_[cell];
    memory[cell] += task.memory_change;
    double& backward = backward_most_[task.rank];
    backward = std::max(backward, problem_->task(problem_->slots() + slot).memory_change);
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto begin = memory.begin() + static_cast<std::ptrdiff_t>(rank * units_);
    unit_memory_most_.push_back(*std::max_element(begin, begin + units_));
  }
}

/// Puts everything back to the start and queues the forwards that wait for nothing.
void ListScheduler::reset(const ListRules& rules) {
  rules_ = &rules;
  std::fill(ranks_.begin(), ranks_.end(), Rank{});
  std::fill(queues_.begin(), queues_.end(), Queue{});
  std::fill(events_.begin(), events_.end(), never);
  std::fill(ready_.begin(), ready_.end(), 0.0);
  unit_left_ = unit_forwards_;
  unit_held_.assign(unit_forwards_.size(), 0);
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    while (ranks_[rank].oldest < units_ && unit_left_[rank * units_ + ranks_[rank].oldest] == 0) {
      ++ranks_[rank].oldest;
    }
  }
  times_ = {};
  for (std::int32_t id = 0; id < problem_->size(); ++id) waits_[id] = problem_->task(id).inputs;
  for (std::int32_t slot = 0; slot < problem_->slots(); ++slot) {
    if (waits_[slot] == 0) make_ready(slot);
  }
}

bool ListScheduler::run(const ListRules& rules) {
  reset(rules);
  while (events_[1] != never) {
    std::size_t node = 1;
    while (node < leaves_) node = 2 * node + (events_[2 * node] == events_[node] ? 0 : 1);
    const int rank = static_cast<int>(node - leaves_);
    decide(rank, events_[1]);
  }
  for (int rank = 0; rank < problem_->ranks(); ++rank) {
    const Rank& r = ranks_[rank];
    if (r.done != problem_->first(rank + 1) - problem_->first(rank)) return false;
    if (r.done == 0) continue;
    times_.makespan = std::max(times_.makespan, r.free_at);
    times_.longest_span = std::max(times_.longest_span, r.free_at - r.first_start);
    times_.end_sum += r.free_at;
  }
  return true;
}

/// Sets the time of a rank's next decision, and the nodes above its leaf.
void ListScheduler::set_event(int rank, double time) {
  std::size_t node = leaves_ + rank;
  events_[node] = time;
  for (node /= 2; node >= 1; node /= 2) {
    const double earliest = std::min(events_[2 * node], events_[2 * node + 1]);
    if (events_[node] == earliest) break;
    events_[node] = earliest;
  }
}

ListScheduler::Queue& ListScheduler::queue_of(std::int32_t task) {
  const std::size_t kind = task / problem_->slots();
  return queues_[kind * problem_->graph().segments.size() + problem_->task(task).segment.index()];
}

/// The key of ListRules. A task that costs nothing goes first.
double ListScheduler::key(std::int32_t task) const {
  const OrderProblem::Task& t = problem_->task(task);
  if (t.cost == 0) return never;
  const double bias = problem_->is_forward(task) ? knob(rules_->forward_bias, t.segment) : 0;
  return t.bottom_level + bias - rules_->age * problem_->period() * t.micro_batch.value();
}

/// Says whether a B keeps the limit, and an F that, the room for a B and that of the oldest unit. A
/// B that does not fit waits for a W: without any, only forwards are held, which leave it room.
bool ListScheduler::fits(int rank, std::int32_t task) const {
  const OrderProblem::Task& t = problem_->task(task);
  const Rank& r = ranks_[rank];
  double limit = rules_->memory_limit[rank] + memory_rounding;
  if (!problem_->is_forward(task)) return t.memory_change <= 0 || r.held + t.memory_change <= limit;
  limit -= backward_most_[rank];
  if (r.held + t.memory_change > limit) return false;
  return unit_of_[t.micro_batch] <= r.oldest ||
         r.younger + t.memory_change <= limit - unit_memory_most_[rank];
}

/// The best F or B that may start now. `next_arrival` becomes the earliest arrival of those that
/// are known to come, and `awaited` the best of these.
ListScheduler::Choice ListScheduler::best_of(int rank, double now, double& next_arrival,
                                             Choice& awaited) const {
  Choice best;
  const std::size_t kinds = problem_->graph().segments.size();
  for (const SegmentId segment : segments_of_[rank]) {
    for (std::size_t kind = 0; kind < 2; ++kind) {
      const Queue& queue = queues_[kind * kinds + segment.index()];
      if (queue.head == queue.tail) continue;
      const std::int32_t base =
          static_cast<std::int32_t>(kind) * problem_->slots() + problem_->first_slot(segment);
      const std::int32_t task = queued_[base + queue.head];
      if (!fits(rank, task)) continue;
      const double value = key(task);
      if (ready_[task] > now) {
        next_arrival = std::min(next_arrival, ready_[task]);
        if (value > awaited.key) awaited = {task, value, ready_[task]};
      } else if (best.task < 0 || value > best.key) {
        best = {task, value, ready_[task]};
      }
    }
  }
  return best;
}

/// The W that has been ready longest.
ListScheduler::Choice ListScheduler::best_weight_gradient(int rank) const {
  Choice best;
  const std::size_t kinds = problem_->graph().segments.size();
  for (const SegmentId segment : segments_of_[rank]) {
    const Queue& queue = queues_[2 * kinds + segment.index()];
    if (queue.head == queue.tail) continue;
    const std::int32_t base = 2 * problem_->slots() + problem_->first_slot(segment);
    const std::int32_t task = queued_[base + queue.head];
    if (best.task < 0 || ready_[task] < best.ready) best = {task, 0, ready_[task]};
  }
  return best;
}

/// Starts a task, or sets the time of the rank's next decision.
void ListScheduler::decide(int rank, double now) {
  double next_arrival = never;
  Choice awaited{-1, -never, never};
  const Choice primary = best_of(rank, now, next_arrival, awaited);
  if (primary.task >= 0) {
    const double most = knob(rules_->foresight, rank) * problem_->task(primary.task).cost;
    if (awaited.key > primary.key && awaited.ready - now < most) {
      return set_event(rank, awaited.ready);
    }
    return start(rank, primary.task, now);
  }
  const Choice filler = best_weight_gradient(rank);
  if (filler.task >= 0) {
    const double most = knob(rules_->patience, rank) * problem_->task(filler.task).cost;
    if (next_arrival - now >= most) return start(rank, filler.task, std::max(now, filler.ready));
  }
  set_event(rank, next_arrival);
}

/// Starts a task on its rank, whose next decision is at the end of it.
void ListScheduler::start(int rank, std::int32_t task, double now) {
  Rank& r = ranks_[rank];
  Queue& queue = queue_of(task);
  ++queue.head;
  if (r.done == 0) r.first_start = now;
  order_[problem_->first(rank) + r.done++] = task;
  account(rank, task);
  r.free_at = now + problem_->task(task).cost;
  set_event(rank, r.free_at);
  finish(task, r.free_at);
}

/// Counts the memory and the forwards of a task that starts.
void ListScheduler::account(int rank, std::int32_t task) {
  const OrderProblem::Task& t = problem_->task(task);
  Rank& r = ranks_[rank];
  const std::int32_t unit = unit_of_[t.micro_batch];
  const std::size_t row = static_cast<std::size_t>(rank) * units_;
  r.held += t.memory_change;
  unit_held_[row + unit] += t.memory_change;
  if (unit > r.oldest) r.younger += t.memory_change;
  if (!problem_->is_forward(task)) return;
  --unit_left_[row + unit];
  while (r.oldest < units_ && unit_left_[row + r.oldest] == 0) {
    if (++r.oldest < units_) r.younger -= unit_held_[row + r.oldest];
  }
}

/// Tells the successors of a task its end; interactions end by themselves.
void ListScheduler::finish(std::int32_t task, double end) {
  for (const OrderProblem::Successor& next : problem_->successors(task)) {
    ready_[next.task] = std::max(ready_[next.task], end + problem_->latency(next));
    if (--waits_[next.task] > 0) continue;
    if (problem_->is_interaction(next.task)) {
      finish(next.task, ready_[next.task] + problem_->task(next.task).cost);
    } else {
      make_ready(next.task);
    }
  }
}

/// Puts a task into its queue. Queues stay sorted by micro-batch, so that a task that has no room
/// yet never bars one that has.
void ListScheduler::make_ready(std::int32_t task) {
  const OrderProblem::Task& t = problem_->task(task);
  Queue& queue = queue_of(task);
  const std::int32_t kind = task / problem_->slots();
  std::int32_t* const queued =
      queued_.data() + kind * problem_->slots() + problem_->first_slot(t.segment);
  std::int32_t place = queue.tail++;
  for (; place > queue.head && queued[place - 1] > task; --place) queued[place] = queued[place - 1];
  queued[place] = task;
  const double wake = std::max(ranks_[t.rank].free_at, ready_[task]);
  if (wake < events_[leaves_ + t.rank]) set_event(t.rank, wake);
}

UserError ListScheduler::no_order(const std::vector<double>& memory_limit) const {
  ProblemList problems;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const double least = least_limit(static_cast<int>(rank));
    if (memory_limit[rank] >= least) continue;
    problems.add(fmt::format("rank {} may hold {} activations", rank, memory_limit[rank]),
                 fmt::format("the forwards of one {} hold {} before any gradient can come back",
                             units_ == problem_->graph().micro_batches ? "micro-batch"
                                                                       : "set of micro-batches",
                             least),
                 fmt::format("Give a memory limit of {} or more.", least));
    if (problems.problems().size() == 4) break;
  }
  if (problems.empty()) problems.add("no order of the tasks", "they wait for each other");
  return UserError(problems.problems());
}

}  // namespace heteroperf
