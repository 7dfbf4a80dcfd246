#include "suite/planning/plan_imports.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "metrics/base/error.hpp"
#include "runners/plan/importers/flagscale_yaml.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/plan_json.hpp"
#include "runners/plan/ready_plan.hpp"

namespace heteroperf {
namespace {

const std::vector<std::string> import_kinds = {"flagscale", "metis", "plan", "sailor",
                                               "sailor-plan"};

/// By rank of the plan, a device of the class that it asks for; empty where it asks for none.
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
    auto found = left.find(device_class);
    if (found == left.end() || found->second.empty()) {
      std::vector<std::string> there;
      for (const auto& [name, ranks] : left) there.push_back(name);
      throw UserError(fmt::format("rank {} wants a device of class {}", rank, device_class),
                      found == left.end()
                          ? fmt::format("the cluster has {}", fmt::join(there, ", "))
                          : "the cluster has no more of them");
    }
    devices.push_back(found->second.back());
    found->second.pop_back();
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

std::vector<PlanImport> parse_imports(const std::vector<std::string>& texts) {
  ProblemList problems;
  std::vector<PlanImport> result;
  for (const std::string& text : texts) {
    const std::size_t colon = text.find(':');
    PlanImport one{text.substr(0, colon), colon == std::string::npos ? "" : text.substr(colon + 1)};
    const bool known =
        std::find(import_kinds.begin(), import_kinds.end(), one.kind) != import_kinds.end();
    if (!known || one.path.empty()) {
      const std::string near = nearest_name(one.kind, import_kinds);
      problems.add(fmt::format("--import {}", text),
                   fmt::format("KIND:PATH, with one of {}", fmt::join(import_kinds, ", ")),
                   near.empty() || known ? "" : fmt::format("Did you mean \"{}\"?", near));
    }
    result.push_back(std::move(one));
  }
  problems.throw_if_any();
  return result;
}

std::vector<std::string> imports_of(const std::vector<PlanImport>& imports,
                                    const std::string& kind) {
  std::vector<std::string> paths;
  for (const PlanImport& one : imports) {
    if (one.kind == kind) paths.push_back(one.path);
  }
  return paths;
}

ImportedPlan score_import(const PlanImport& import, const Workload& workload,
                          const Cluster& cluster) {
  ImportedPlan result;
  result.source = import.kind + ":" + import.path;
  const bool flagscale = import.kind == "flagscale";
  const FlagScaleSetup setup = flagscale ? read_flagscale_file(import.path) : FlagScaleSetup();
  if (!flagscale) result.plan = read_plan_file(import.path);
  try {
    if (flagscale) result.plan = plan_of(setup, workload.graph);
    if (result.plan.devices.empty()) result.plan.devices = devices_of(result.plan, cluster);
    result.step_time_s = simulated_s(result.plan, workload, cluster);
  } catch (const UserError& error) {
    result.why_not = error.problems().front().text();
  }
  return result;
}

}  // namespace heteroperf
