#include "runners/plan/search/plan_objective.hpp"

#include "metrics/base/error.hpp"
#include "tests/unit/runners/plan/search/search_cases.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

Cluster priced_cluster() {
  Cluster cluster = mixed_cluster({{"fast", 2, 8, 4e9, 1e12}, {"slow", 3, 8, 1e9, 1e12}}, 1e9, 1e8);
  cluster.classes[0].price_per_hour = 4;
  cluster.classes[1].price_per_hour = 3;
  cluster.classes[0].idle_watts = 20;
  cluster.classes[0].busy_watts = 300;
  cluster.classes[1].idle_watts = 10;
  cluster.classes[1].busy_watts = 30;
  return cluster;
}

class ObjectiveOf {
 public:
  ObjectiveOf() {
    request_.batch = 16;
    options_.time_limit_s = 1e9;
  }
  /// The plan's expense, worked out again.
  StepExpense found(PlanObjective objective, const Cluster& cluster) const {
    const PlanSearchResult result =
        search_plans_for(objective, graph_, cluster, request_, options_);
    return step_expense(result.plans.front(), cluster);
  }
  const ModelGraph& graph() const { return graph_; }

 private:
  ModelGraph graph_ = linear_chain(6, 64, 16);
  PlanningRequest request_;
  PlanSearchOptions options_;
};

TEST(PlanObjective, EachIsLeastUnderItsOwnSearch) {
  const ObjectiveOf search;
  const Cluster cluster = priced_cluster();
  const StepExpense by_time = search.found(PlanObjective::time, cluster),
                    by_cost = search.found(PlanObjective::cost, cluster),
                    by_energy = search.found(PlanObjective::energy, cluster);
  EXPECT_LE(*by_cost.cost, *by_time.cost);
  EXPECT_LE(*by_cost.cost, *by_energy.cost);
  EXPECT_LE(*by_energy.joules, *by_time.joules);
  EXPECT_LE(*by_energy.joules, *by_cost.joules);
  // A fast device does four times the work of a slow one for a third more.
  EXPECT_LT(*by_cost.cost, 0.999 * *by_time.cost);
}

TEST(PlanObjective, NoChoiceOfDevicesIsCheaper) {
  const ObjectiveOf search;
  const Cluster cluster = priced_cluster();
  const double cost = *search.found(PlanObjective::cost, cluster).cost;
  for (int fast = 0; fast <= 2; ++fast) {
    for (int slow = 0; slow <= 3; ++slow) {
      if (fast + slow == 0) continue;
      Cluster part = cluster;
      part.ranks.clear();
      for (int i = 0; i < fast; ++i) part.ranks.push_back(cluster.ranks[0]);
      for (int i = 0; i < slow; ++i) part.ranks.push_back(cluster.ranks[2]);
      EXPECT_GE(*search.found(PlanObjective::time, part).cost, cost * (1 - 1e-9))
          << fast << " and " << slow;
    }
  }
}

/// Where components may lie is judged by the objective as well: the placement that is told first is
/// the plan's, and none costs less.
TEST(PlanObjective, JudgesThePlacements) {
  const ModelGraph graph = build_model("two-tower-nano");
  const Cluster cluster = priced_cluster();
  PlanningRequest request;
  request.batch = 32;
  for (const PlanObjective objective : {PlanObjective::cost, PlanObjective::energy}) {
    const PlanSearchResult result = search_plans_for(objective, graph, cluster, request, {});
    const auto value = [&](const ReadyPlan& ready) {
      return objective_value(objective, ready, cluster);
    };
    ASSERT_GE(result.placements.size(), 2u);
    const double least = value(result.plans.front());
    EXPECT_EQ(value(*result.placements.front().ready), least);
    for (const PlacedPlan& placed : result.placements) {
      if (!placed.ready) continue;
      EXPECT_GE(value(*placed.ready), least) << placed.placement;
    }
  }
}

TEST(PlanObjective, AStepOfOneDeviceByHand) {
  const ObjectiveOf search;
  Cluster cluster = priced_cluster();
  Plan plan = chain_plan(search.graph(), {});
  plan.micro_batches = 4;
  plan.devices = {RankId(0)};
  const auto expense_of_step = [&](double seconds) {
    ReadyPlan ready = ready_on({search.graph()}, plan, cluster);
    ready.prediction->step_time_s = seconds;
    return step_expense(ready, cluster);
  };
  const StepExpense expense = expense_of_step(3600);
  EXPECT_DOUBLE_EQ(*expense.cost, 4);
  // All five wait at 20, 20, 10, 10, 10 watts, and the first computes for well under an hour.
  EXPECT_GT(*expense.joules, 3600.0 * 70);
  EXPECT_LT(*expense.joules, 3600.0 * 71);
  cluster.classes[1].price_per_hour.reset();
  EXPECT_TRUE(expense_of_step(1).cost.has_value());
  cluster.classes[1].idle_watts.reset();
  EXPECT_FALSE(expense_of_step(1).joules.has_value());
}

TEST(PlanObjective, WhatIsMissingIsNamed) {
  Cluster cluster = priced_cluster();
  cluster.classes[1].price_per_hour.reset();
  cluster.classes[0].busy_watts.reset();
  const auto message = [&](PlanObjective objective) -> std::string {
    try {
      check_objective(objective, cluster);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message(PlanObjective::cost).find("'slow' has no price_per_hour"), std::string::npos);
  EXPECT_NE(message(PlanObjective::energy).find("'fast' has no busy_watts"), std::string::npos);
  EXPECT_EQ(message(PlanObjective::time), "no error");
  EXPECT_THROW(parse_plan_objective("speed"), UserError);
}

}  // namespace
}  // namespace heteroperf
