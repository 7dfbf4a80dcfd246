#include "runners/schedule/search/order_evaluator.hpp"

#include <algorithm>

namespace heteroperf {

OrderEvaluator::OrderEvaluator(const OrderProblem& problem)
    : problem_(&problem),
      start_(problem.size()),
      cause_(problem.size()),
      waits_(problem.size()),
      next_on_rank_(problem.size()),
      inputs_(problem.size()) {
  // Every task on a rank waits for the one before it; the first of a rank is released by hand.
  for (std::int32_t id = 0; id < problem.size(); ++id) {
    inputs_[id] = problem.task(id).inputs + (problem.task(id).rank >= 0 ? 1 : 0);
  }
  sequence_.reserve(problem.size());
}

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
