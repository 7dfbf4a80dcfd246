// The table of what `plan --import` can read. The verb walks it and knows no kind by name.
//
// A kind has up to three abilities: it reads a plan, it knows rates better than the cluster's
// description, or it is a planner of its own that takes over the verb. Plans that are read are
// given devices of the classes that they ask for, and are simulated with the cluster's rates, so
// that plans of different makers are compared by one measure.
#include "runners/plan/rivals/plan_imports.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "runners/plan/plan_json.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "runners/plan/rivals/sailor/sailor_planning.hpp"
#include "runners/plan/rivals/trainers/trainer_plans.hpp"

namespace heteroperf {
namespace {

using PlanMaker = std::function<Plan(const ModelGraph&)>;

/// The file is read at once; the plan is made when the workload's graph is known.
PlanMaker read_flagscale_plan(const std::string& path) {
  return [setup = read_flagscale_file(path)](const ModelGraph& graph) {
    return plan_of(setup, graph);
  };
}

/// A plan file of ours is a plan as it stands.
PlanMaker read_own_plan(const std::string& path) {
  return [plan = read_plan_file(path)](const ModelGraph&) { return plan; };
}

ProfiledRates read_metis_rates(const std::string& path, const ModelGraph& graph,
                               const Cluster& cluster, Precision precision) {
  return metis_rates(read_metis_profiles(path), graph, cluster, precision);
}

/// Hands the verb's flags to Sailor's planner. The first folder counts; plan files are its peers.
PlanTexts plan_for_sailor(const RivalRequest& request) {
  SailorPlanningRequest planning;
  for (const PlanImport& import : request.imports) {
    const std::string kind = import.kind->name;
    if (kind == "sailor" && planning.source.empty()) planning.source = import.path;
    if (kind == "sailor-plan") planning.peers.push_back(import.path);
  }
  planning.model = request.model;
  planning.cluster = request.cluster;
  planning.cost_model =
      parse_cost_model(request.cost_model.empty() ? "sailor" : request.cost_model);
  planning.batch = request.batch;
  planning.time_limit_s = request.time_limit_s;
  planning.compare = request.compare;
  planning.fill_profiles = request.fill_profiles;
  const SailorPlanReport report = plan_sailor(planning);
  return {sailor_plan_json_text(report), sailor_plan_table(report)};
}

/// Beside `sailor`, plans of the kind `sailor-plan` are its planner's to score.
constexpr ImportKind import_kinds[] = {
    {.name = "flagscale", .read = read_flagscale_plan},
    {.name = "metis", .rates = read_metis_rates},
    {.name = "plan", .read = read_own_plan},
    {.name = "sailor",
     .plan = plan_for_sailor,
     .no_workload = "Sailor's inputs are of a model of their own",
     .no_objective = "Sailor's inputs have neither prices nor watts"},
    {.name = "sailor-plan", .read = read_own_plan},
};

/// Lists for every rank of the plan a device of the class that it asks for; nothing where some rank
/// asks for none.
std::vector<RankId> devices_of(const Plan& plan, const Cluster& cluster) {
  std::map<int, std::string> wanted;
  for (const PlanStage& stage : plan.stages) {
    for (const StageReplica& replica : stage.replicas) {
      for (const RankId rank : replica.ranks) wanted[rank.value()] = replica.device_class;
    }
  }
  std::map<std::string, std::vector<RankId>> left;
  for (std::size_t r = cluster.ranks.size(); r-- > 0;) {
    left[cluster.ranks[r].device_class].emplace_back(static_cast<std::int32_t>(r));
  }
  std::vector<RankId> devices;
  for (const auto& [rank, device_class] : wanted) {
    if (device_class.empty()) return {};
    auto devices_left = left.find(device_class);
    if (devices_left == left.end() || devices_left->second.empty()) {
      std::vector<std::string> there;
      for (const auto& [name, ranks] : left) there.push_back(name);
      throw UserError(fmt::format("rank {} wants a device of class {}", rank, device_class),
                      devices_left == left.end()
                          ? fmt::format("the cluster has {}", fmt::join(there, ", "))
                          : "the cluster has no more of them");
    }
    devices.push_back(devices_left->second.back());
    devices_left->second.pop_back();
  }
  return devices;
}

/// Plans are set side by side with the rates of `cluster`, whatever their makers knew better.
double simulated_s(Plan plan, const Workload& workload, const Cluster& cluster) {
  plan.efficiency = {};
  const TrainingTask task{workload.graph, workload.precision, workload.recipe.kind};
  return ready_on(task, std::move(plan), cluster).predicted().step_time_s;
}

}  // namespace

// All texts are looked at, so that every wrong one is named.
std::vector<PlanImport> parse_imports(const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  for (const ImportKind& kind : import_kinds) names.emplace_back(kind.name);
  ProblemList problems;
  std::vector<PlanImport> imports;
  for (const std::string& text : texts) {
    const std::size_t colon = text.find(':');
    const std::string name = text.substr(0, colon);
    const std::string path = colon == std::string::npos ? "" : text.substr(colon + 1);
    const auto* kind = std::ranges::find(import_kinds, name, &ImportKind::name);
    const bool known = kind != std::end(import_kinds);
    if (!known || path.empty()) {
      const std::string near = nearest_name(name, names);
      problems.add(fmt::format("--import {}", text),
                   fmt::format("KIND:PATH, with one of {}", fmt::join(names, ", ")),
                   near.empty() || known ? "" : fmt::format("Did you mean \"{}\"?", near));
    }
    imports.push_back({kind, path});
  }
  problems.throw_if_any();
  return imports;
}

const ImportKind* planner_among(const std::vector<PlanImport>& imports) {
  for (const PlanImport& import : imports) {
    if (import.kind->plan != nullptr) return import.kind;
  }
  return nullptr;
}

void check_own_cost_model(const std::string& cost_model, ProblemList& problems) {
  if (parse_cost_model(cost_model) == PlanCostModel::own) return;
  problems.add(fmt::format("--cost-model {}", cost_model), "it scores Sailor's profiles",
               "Give --import sailor:DIR.");
}

// A file that cannot be read is the user's error and ends the verb. A plan that this model or
// machine cannot run is a result: the report says why.
ImportedPlan score_import(const PlanImport& import, const Workload& workload,
                          const Cluster& cluster) {
  ImportedPlan result;
  result.source = std::string(import.kind->name) + ":" + import.path;
  const PlanMaker plan_for = import.kind->read(import.path);
  try {
    result.plan = plan_for(workload.graph);
    if (result.plan.devices.empty()) result.plan.devices = devices_of(result.plan, cluster);
    result.step_time_s = simulated_s(result.plan, workload, cluster);
  } catch (const UserError& error) {
    result.why_not = error.problems().front().text();
  }
  return result;
}

}  // namespace heteroperf
