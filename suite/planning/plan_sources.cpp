// Several things may say how many ranks a run has: a launcher's world, a cluster, a plan, and
// --ranks. Each is a *wish*; all must name the same number, and a contradiction names the two that
// differ. Only where nobody asks do the degrees of parallelism decide: as many whole replicas as
// the machine has cores for.
//
// A plan also names the cluster that it was made for. The name is looked up as the plan gives it,
// then beside the plan's file, so that a folder with both can be moved. --cluster takes its place.
#include "suite/planning/plan_sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

#include "metrics/base/error.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/plan/layout_plan.hpp"
#include "runners/plan/plan_json.hpp"
#include "runners/plan/rivals/hexiscale/hexiscale_machines.hpp"

namespace heteroperf {
namespace {

/// A count of ranks that something asks for.
struct RankWish {
  std::string who;
  int ranks;
};

std::vector<RankWish> wishes(const RunConfig& config, const PlanSources& sources, int world_ranks) {
  std::vector<RankWish> list;
  if (world_ranks > 0) list.push_back({"the launcher's world", world_ranks});
  if (sources.cluster) {
    list.push_back(
        {"--cluster " + sources.cluster_file, static_cast<int>(sources.cluster->ranks.size())});
  }
  if (sources.plan) list.push_back({"--plan " + config.plan.file, sources.plan->ranks()});
  if (!config.plan.layout.empty()) {
    list.push_back({"--layout " + config.plan.layout, parse_layouts(config.plan.layout).ranks()});
  }
  if (config.scale.ranks > 0) {
    list.push_back({fmt::format("--ranks {}", config.scale.ranks), config.scale.ranks});
  }
  return list;
}

/// The cluster a plan was made for: a shipped name, or a file, as the plan says it from the working
/// directory or from beside the plan.
std::string cluster_of_plan(const Plan& plan, const std::filesystem::path& plan_file) {
  if (plan.cluster.empty() || std::filesystem::exists(plan.cluster)) return plan.cluster;
  const std::filesystem::path beside = plan_file.parent_path() / plan.cluster;
  return std::filesystem::exists(beside) ? beside.string() : plan.cluster;
}

void check_without_cluster(const RunConfig& config) {
  ProblemList problems;
  const std::string why = "neither --cluster nor the plan names a cluster";
  if (config.pace.dilation > 0) {
    problems.add(fmt::format("pace.dilation={:g} changes nothing", config.pace.dilation), why,
                 "Name a --cluster of paced classes, or leave it out");
  }
  if (!config.pace.slow.device_class.empty()) {
    problems.add(fmt::format("pace.slow={} changes nothing", to_string(config.pace.slow)), why,
                 "Name a --cluster of paced classes, or leave it out");
  }
  if (config.adapt.every_steps > 0) {
    problems.add(
        fmt::format("--adapt {} has no planned times to compare with", config.adapt.every_steps),
        why, "Give --cluster; `heteroperf probe -o me.json` describes this machine");
  }
  if (config.with_baselines) {
    problems.add("--with-baselines has nothing to run", why,
                 "Name a --cluster of several classes, or leave it out");
  }
  problems.throw_if_any();
}

/// As many whole replicas as there are cores for, unless their number is given.
int ranks_of_degrees(const PlanConfig& plan, int cores) {
  const std::int64_t copy = plan.ranks_of_copy(), most = std::numeric_limits<int>::max();
  const std::int64_t copies = plan.data > 0 ? plan.data : std::max<std::int64_t>(1, cores / copy);
  if (copy == 1 && plan.data == 0) return 0;
  return static_cast<int>(copies > most / copy ? most : copies * copy);
}

}  // namespace

PlanSources read_plan_sources(const RunConfig& config) {
  PlanSources sources;
  sources.cluster_file = config.cluster.file;
  ProblemList problems;
  if (!config.plan.file.empty() && !config.plan.is_searched()) {
    collect_problems(problems, [&] { sources.plan = read_plan_file(config.plan.file); });
  }
  if (sources.cluster_file.empty() && sources.plan) {
    sources.cluster_file = cluster_of_plan(*sources.plan, config.plan.file);
  }
  if (!sources.cluster_file.empty()) {
    collect_problems(problems, [&] { sources.cluster = find_machine(sources.cluster_file); });
  }
  problems.throw_if_any();
  if (sources.cluster) sources.cluster_devices = static_cast<int>(sources.cluster->ranks.size());
  // A plan may use only some of the cluster's devices.
  if (sources.plan && sources.cluster) {
    sources.cluster = plan_cluster(*sources.plan, *sources.cluster);
  }
  return sources;
}

std::vector<Setting> with_workload_of_plan(std::vector<Setting> given) {
  const auto value_of = [&](const std::string& path) {
    const Setting* last = last_of(given, path);
    return last == nullptr ? std::string() : last->value;
  };
  std::optional<PlanWorkload> planned;
  try {
    if (!value_of("plan.file").empty()) planned = read_plan_file(value_of("plan.file")).workload;
    // The same file is read again by read_plan_sources(), which tells the problem.
  } catch (const UserError&) {
    return given;
  }
  if (!planned || value_of("workload") != planned->name) return given;
  const auto text_of = [](std::int64_t number) {
    return number > 0 ? std::to_string(number) : std::string();
  };
  const Setting settings[] = {{"model.size", planned->size},
                              {"model.name", planned->model},
                              {"model.precision", planned->precision},
                              {"model.freeze", planned->freeze},
                              {"optimizer.name", planned->optimizer},
                              {"model.images", text_of(planned->images)},
                              {"model.sequence_length", text_of(planned->sequence_length)}};
  for (const Setting& setting : settings) {
    // A setting of the user stays as it is.
    if (!setting.value.empty() && value_of(setting.path).empty()) given.push_back(setting);
  }
  return given;
}

RunConfig with_ranks(const RunConfig& config, const PlanSources& sources, int cores,
                     int world_ranks) {
  RunConfig result = config;
  result.cluster.file = sources.cluster_file;
  if (!sources.cluster) check_without_cluster(config);
  const std::vector<RankWish> asked = wishes(config, sources, world_ranks);
  if (asked.empty()) {
    result.scale.ranks = ranks_of_degrees(config.plan, cores);
    return result;
  }
  ProblemList problems;
  const RankWish& first = asked.front();
  for (const RankWish& wish : asked) {
    if (wish.ranks == first.ranks) continue;
    problems.add(fmt::format("{} does not fit {}", wish.who, first.who),
                 fmt::format("{} and {} ranks", wish.ranks, first.ranks),
                 "Leave --ranks out, or give the same number everywhere");
  }
  if (!sources.plan && config.plan.layout.empty() && config.scale.ranks != first.ranks) {
    check_degrees(config.plan, first.ranks, problems);
  }
  problems.throw_if_any();
  result.scale.ranks = first.ranks;
  return result;
}

ScalingInput scaling_input(const Cluster& cluster, Precision precision) {
  ScalingInput input;
  for (const DeviceClass& device : cluster.classes) {
    // The smallest memory and the slowest class bound what fits everywhere.
    if (device.memory > Bytes(0) &&
        (input.memory_bytes == 0 || device.memory.value() < input.memory_bytes)) {
      input.memory_bytes = device.memory.value();
    }
    const auto rate = device.rates.find(to_string(precision));
    if (rate == device.rates.end()) continue;
    const double ops = rate->second.value();
    input.ops_per_second = input.ops_per_second == 0 ? ops : std::min(input.ops_per_second, ops);
  }
  return input;
}

}  // namespace heteroperf
