// Cost and energy of a step, and the search for the plan that has least of them.
//
// The fastest plan is seldom the cheapest: a slow device adds little speed but its full price. So
// not only plans but also sets of devices are searched. A *choice* is a number of devices of each
// class; its value is the least cost or energy among the plans that the search for time finds on
// these devices. From the whole machine and from each class alone, the search changes the number of
// one class at a time, by one or to some eighths of all, while that helps (coordinate descent).
// Choices are remembered, so each is searched once.
//
// Each choice gets an eighth of the time limit, and the search says that it is incomplete where
// time ran out.
#include "runners/plan/search/plan_objective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/plan_cluster.hpp"

namespace heteroperf {
namespace {

constexpr const char* objectives[] = {"time", "cost", "energy"};
constexpr double seconds_per_hour = 3600;
/// One choice of devices gets this part of the time limit.
constexpr double share_of_time = 0.125;

/// Ranks of every class, in the cluster's order.
std::map<std::string, std::vector<RankId>> ranks_of(const Cluster& cluster) {
  std::map<std::string, std::vector<RankId>> result;
  for (std::size_t r = 0; r < cluster.ranks.size(); ++r) {
    result[cluster.ranks[r].device_class].emplace_back(static_cast<std::int32_t>(r));
  }
  return result;
}

/// Looks for the cheapest choice of devices and its plan.
class ObjectiveSearch {
 public:
  ObjectiveSearch(PlanObjective objective, const ModelGraph& graph, const Cluster& cluster,
                  const PlanningRequest& request, const PlanSearchOptions& options)
      : objective_(objective),
        graph_(graph),
        cluster_(cluster),
        request_(request),
        options_(options),
        ranks_(ranks_of(cluster)) {
    for (const auto& [name, ranks] : ranks_) names_.push_back(name);
  }

  PlanSearchResult run() {
    std::vector<std::vector<int>> starts(1);
    for (const std::string& name : names_) starts[0].push_back(count(name));
    for (std::size_t c = 0; c < names_.size() && names_.size() > 1; ++c) {
      // One class alone, the others idle.
      starts.emplace_back(names_.size(), 0)[c] = count(names_[c]);
    }
    // The whole machine says what a model that fits nowhere needs.
    for (const std::vector<int>& counts : starts) descend(counts);
    if (result_.plans.empty()) {
      result_.plans = search_plans(GraphProblem(graph_, cluster_, request_), options_).plans;
    }
    result_.seconds = stopwatch_.elapsed_s();
    return std::move(result_);
  }

 private:
  int count(const std::string& name) const { return static_cast<int>(ranks_.at(name).size()); }

  /// Moves to the best neighbour until none is better.
  void descend(std::vector<int> counts) {
    double value = of(counts);
    for (bool moved = true; moved;) {
      moved = false;
      const std::vector<int> from = counts;
      for (std::size_t c = 0; c < names_.size(); ++c) {
        for (const int choice : choices(count(names_[c]), from[c])) {
          std::vector<int> next = from;
          next[c] = choice;
          const double changed = of(next);
          if (changed >= value * (1 - 1e-9)) continue;
          value = changed;
          counts = next;
          moved = true;
        }
      }
    }
  }

  /// Eighths of all, and one more or fewer than there are.
  static std::set<int> choices(int all, int now) {
    std::set<int> result{std::max(0, now - 1), std::min(all, now + 1)};
    for (int eighth = 0; eighth <= 8; ++eighth) result.insert(all * eighth / 8);
    result.erase(now);
    return result;
  }

  /// The least that a plan on so many devices of every class takes; infinite without one.
  double of(const std::vector<int>& counts) {
    const auto known = known_.find(counts);
    if (known != known_.end()) return known->second;
    double& least = known_.emplace(counts, infinite).first->second;
    const double left = options_.time_limit_s - stopwatch_.elapsed_s();
    std::vector<RankId> part;
    for (std::size_t c = 0; c < counts.size(); ++c) {
      const auto& ranks = ranks_.at(names_[c]);
      part.insert(part.end(), ranks.begin(), ranks.begin() + counts[c]);
    }
    if (part.empty()) return least;
    if (left <= 0) {
      result_.complete = false;
      return least;
    }
    std::ranges::sort(part);
    try {
      PlanSearchOptions options = options_;
      options.time_limit_s = std::min(left, share_of_time * options_.time_limit_s);
      const Cluster machine = part_of_cluster(cluster_, part);
      take(search_plans(GraphProblem(graph_, machine, request_), options), part, least);
    } catch (const UserError&) {
      // The model does not fit these devices.
    }
    return least;
  }

  /// Values the plans of one choice on the whole machine and keeps the list that holds the best.
  void take(PlanSearchResult searched, const std::vector<RankId>& part, double& least) {
    result_.candidates += searched.candidates;
    result_.simulated += searched.simulated;
    result_.complete = result_.complete && searched.complete;
    const auto value_of = [&](const ReadyPlan& ready) {
      return objective_value(objective_, ready, cluster_);
    };
    for (ReadyPlan& ready : searched.plans) {
      ready.plan = on_whole_cluster(std::move(ready.plan), part);
    }
    std::ranges::stable_sort(searched.plans, {}, value_of);
    least = value_of(searched.plans.front());
    if (least >= best_value_) return;
    best_value_ = least;
    result_.plans = std::move(searched.plans);
    result_.placements = std::move(searched.placements);
    for (PlacedPlan& placed : result_.placements) {
      if (placed.ready) placed.ready->plan = on_whole_cluster(std::move(placed.ready->plan), part);
    }
    const bool is_told = std::ranges::any_of(result_.placements, [&](const PlacedPlan& placed) {
      return placed.ready && value_of(*placed.ready) <= least;
    });
    // The best of all is a chain else, but not the fastest one.
    const auto chain = std::ranges::find(result_.placements, "chain", &PlacedPlan::placement);
    if (!is_told && chain != result_.placements.end()) chain->ready = result_.plans.front();
    sort_placements(result_.placements, value_of);
  }

  PlanObjective objective_;
  const ModelGraph& graph_;
  const Cluster& cluster_;
  const PlanningRequest& request_;
  const PlanSearchOptions& options_;
  std::map<std::string, std::vector<RankId>> ranks_;
  std::vector<std::string> names_;
  Stopwatch stopwatch_;
  std::map<std::vector<int>, double> known_;
  PlanSearchResult result_;
  double best_value_ = infinite;
};

}  // namespace

PlanObjective parse_plan_objective(const std::string& text) {
  const auto* place = std::ranges::find(objectives, text);
  if (place != std::end(objectives)) return static_cast<PlanObjective>(place - objectives);
  throw UserError(fmt::format("--objective {}", text),
                  fmt::format("one of {}", fmt::join(objectives, ", ")));
}

StepExpense step_expense(const ReadyPlan& ready, const Cluster& whole) {
  const double step_time_s = ready.predicted().step_time_s;
  StepExpense result{0.0, 0.0};
  for (std::size_t r = 0; r < ready.roles.size(); ++r) {
    const auto& price = class_of(*ready.cluster, RankId(r)).price_per_hour;
    // One device without a price leaves the sum unknown.
    if (!price) result.cost.reset();
    if (result.cost) *result.cost += *price / seconds_per_hour * step_time_s;
  }
  for (std::size_t r = 0; r < whole.ranks.size(); ++r) {
    const DeviceClass& device = class_of(whole, RankId(r));
    if (!device.idle_watts || !device.busy_watts) result.joules.reset();
    if (result.joules) *result.joules += *device.idle_watts * step_time_s;
  }
  if (!result.joules) return result;
  // A computing device draws its busy watts instead of its idle ones.
  const std::vector<double> busy = ready.busy_s();
  for (std::size_t r = 0; r < busy.size(); ++r) {
    const DeviceClass& device = class_of(*ready.cluster, RankId(r));
    *result.joules += (*device.busy_watts - *device.idle_watts) * std::min(busy[r], step_time_s);
  }
  return result;
}

double objective_value(PlanObjective objective, const ReadyPlan& ready, const Cluster& whole) {
  if (objective == PlanObjective::time) return ready.predicted().step_time_s;
  const StepExpense expense = step_expense(ready, whole);
  return objective == PlanObjective::cost ? expense.cost.value() : expense.joules.value();
}

void check_objective(PlanObjective objective, const Cluster& cluster) {
  if (objective == PlanObjective::time) return;
  const bool cost = objective == PlanObjective::cost;
  ProblemList problems;
  for (const auto& [name, ranks] : ranks_of(cluster)) {
    const DeviceClass& device_class = class_of(cluster, ranks.front());
    if (cost ? device_class.price_per_hour.has_value()
             : device_class.idle_watts && device_class.busy_watts)
      continue;
    problems.add(
        fmt::format("device class '{}' has no {}", name,
                    cost                       ? "price_per_hour"
                    : !device_class.idle_watts ? "idle_watts"
                                               : "busy_watts"),
        fmt::format("--objective {} adds it up", objectives[static_cast<std::size_t>(objective)]),
        "Write it into the class of the cluster file, or give --profile with it.");
  }
  problems.throw_if_any();
}

PlanSearchResult search_plans_for(PlanObjective objective, const ModelGraph& graph,
                                  const Cluster& cluster, const PlanningRequest& request,
                                  const PlanSearchOptions& options) {
  check_objective(objective, cluster);
  if (objective == PlanObjective::time) {
    return search_plans(GraphProblem(graph, cluster, request), options);
  }
  return ObjectiveSearch(objective, graph, cluster, request, options).run();
}

}  // namespace heteroperf
