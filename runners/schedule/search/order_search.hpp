#pragma once

#include <cstdint>
#include <vector>

#include "metrics/base/clock.hpp"
#include "metrics/base/random.hpp"
#include "runners/schedule/search/list_scheduler.hpp"
#include "runners/schedule/search/search.hpp"

namespace heteroperf {

/// Looks for a good order of one problem under one memory limit. The calls are stop_after() and
/// offer() as wanted, then improve() for each limit, ascending; best() is the best order so far.
class OrderSearch {
 public:
  OrderSearch(const OrderProblem& problem, Objective objective, double lower_bound);

  /// Takes an order from elsewhere into account if it can run. It costs one evaluation.
  void offer(const std::vector<std::int32_t>& order);
  /// Improves the best order under `memory_limit` with at most `evaluations`; `seed` decides all
  /// chance.
  void improve(double memory_limit, long long evaluations, std::uint64_t seed);

  bool has_order() const { return !best_.empty(); }
  /// True where the best order reaches the lower bound.
  bool proven() const { return has_order() && value_ <= bound_ * (1 + 1e-12); }
  double value() const { return value_; }
  const std::vector<std::int32_t>& best() const { return best_; }
  long long evaluations() const { return evaluations_; }
  /// Evaluates nothing more after so many seconds from the search's start.
  void stop_after(double seconds);
  bool out_of_time() const { return out_of_time_; }

 private:
  /// A smaller score is better.
  struct Score {
    double value = 0, end_sum = 0;
    friend auto operator<=>(const Score&, const Score&) = default;
  };

  bool may_go_on();
  Score score(const OrderTimes& times) const;
  void keep(const Score& score, const std::vector<std::int32_t>& order);
  bool try_rules(const ListRules& rules, Score& result);
  void try_grid(double memory_limit);
  double age_that_fills(double memory_limit) const;
  void change_rules(long long until);
  void mutate(ListRules& rules);
  void move_tasks(long long until);
  int propose(std::vector<std::int32_t>& order);
  static void move(std::vector<std::int32_t>& order, std::int32_t from, std::int32_t to);
  void restore(std::vector<std::int32_t>& order, int rank) const;
  bool mend_memory(std::vector<std::int32_t>& order, int rank);
  void walk_critical_path(const std::vector<std::int32_t>& order);

  const OrderProblem* problem_;
  Objective objective_;
  double bound_;
  ListScheduler scheduler_;
  OrderEvaluator evaluator_;
  RandomStream random_{0};
  ListRules rules_;  // the best rules under the present limit
  Score rules_score_;
  double memory_limit_ = 0;
  std::vector<std::int32_t> best_;
  Score best_score_;
  double value_ = 0;
  std::vector<std::int32_t> place_;     // [task]: index in the order that moves
  std::vector<std::int32_t> critical_;  // the tasks of its critical path, from the end back
  std::vector<std::int32_t> saved_;     // the changed rank's tasks before the move
  long long evaluations_ = 0, budget_ = 0;
  Stopwatch stopwatch_;
  double stop_seconds_;  // on the stopwatch
  bool out_of_time_ = false;
};

}  // namespace heteroperf
