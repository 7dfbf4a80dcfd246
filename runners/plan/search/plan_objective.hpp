#pragma once

#include <optional>
#include <string>

#include "runners/plan/search/plan_search.hpp"

namespace heteroperf {

/// The quantity per step that a plan is to have least of.
enum class PlanObjective { time, cost, energy };
/// Throws UserError for another text.
PlanObjective parse_plan_objective(const std::string& text);

/// The expense of a step beside its time. Devices that the plan leaves idle are given back: they
/// cost nothing, but draw their idle watts as long as the step takes.
struct StepExpense {
  std::optional<double> cost;    ///< in the currency of the cluster's prices
  std::optional<double> joules;  ///< idle watts all the time, busy watts instead while computing
};

/// The expense of a plan that is `ready` for devices of `whole`; cost or joules are absent where a
/// class of the machine that counts has no price, or no watts. Throws UserError where nothing is
/// predicted.
StepExpense step_expense(const ReadyPlan& ready, const Cluster& whole);

/// The seconds, cost or joules of a plan's step, of which the objective wants least.
double objective_value(PlanObjective objective, const ReadyPlan& ready, const Cluster& whole);

/// Throws UserError naming every class without the price or the watts that the objective needs.
void check_objective(PlanObjective objective, const Cluster& cluster);

/// search_plans() for any objective. For cost and energy the devices of each class that are used
/// are searched too: from all of them, and from each class alone, one class's number is changed at
/// a time while that helps; among the plans of one choice of devices the cheapest counts. Plans
/// name the devices of the whole `cluster`.
PlanSearchResult search_plans_for(PlanObjective objective, const ModelGraph& graph,
                                  const Cluster& cluster, const PlanningRequest& request,
                                  const PlanSearchOptions& options);

}  // namespace heteroperf
