#pragma once

#include <cstdint>
#include <vector>

#include "metrics/base/clock.hpp"
#include "metrics/base/random.hpp"
#include "runners/schedule/ir/schedule_request.hpp"
#include "runners/schedule/search/list_scheduler.hpp"
#include "runners/schedule/search/order_evaluator.hpp"

namespace heteroperf {

/// Looks for a good order of one problem under one memory limit: list scheduling over a grid of
/// rules, then random changes to the best rules, then random moves along the critical path of the
/// best order.
class OrderSearch {
 public:
  OrderSearch(const OrderProblem& problem, Objective objective, double lower_bound);

  /// Joins an order from elsewhere if it can run. One evaluation.
  void offer(const std::vector<std::int32_t>& order);
  /// Improves under `memory_limit` with at most `evaluations`; `seed` decides all chance.
  void improve(double memory_limit, long long evaluations, std::uint64_t seed);

  bool found() const { return !best_.empty(); }
  bool proven() const { return found() && value_ <= bound_ * (1 + 1e-12); }
  double value() const { return value_; }
  const std::vector<std::int32_t>& best() const { return best_; }
  long long evaluations() const { return evaluations_; }
  /// After so many seconds from now on nothing more is evaluated.
  void stop_after(double seconds);
  bool out_of_time() const { return out_of_time_; }

 private:
  struct Score {  // smaller is better
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
  ListRules rules_;  // the best ones under the present limit
  Score rules_score_;
  double memory_limit_ = 0;
  std::vector<std::int32_t> best_;
  Score best_score_;
  double value_ = 0;
  std::vector<std::int32_t> place_, critical_, saved_;
  long long evaluations_ = 0, budget_ = 0;
  Stopwatch stopwatch_;
  double stop_seconds_;  ///< on the stopwatch
  bool out_of_time_ = false;
};

}  // namespace heteroperf
