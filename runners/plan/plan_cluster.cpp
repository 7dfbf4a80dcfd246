#include "runners/plan/plan_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "metrics/error.hpp"

namespace heteroperf {
namespace {

void check_devices(const Plan& plan, const Cluster& cluster) {
  ProblemList problems;
  const auto count = static_cast<int>(cluster.ranks.size());
  if (static_cast<int>(plan.devices.size()) != plan.ranks()) {
    problems.add(fmt::format("{} devices for {} ranks", plan.devices.size(), plan.ranks()),
                 "every rank of the plan is one of the cluster's", "Give one for each rank.");
  }
  std::set<int> seen;
  for (const RankId device : plan.devices) {
    if (device.value() < 0 || device.value() >= count) {
      problems.add(fmt::format("the plan uses device {}", device.value()),
                   fmt::format("the cluster '{}' has 0 to {}", cluster.name, count - 1),
                   "Use the cluster that the plan was made for.");
    } else if (!seen.insert(device.value()).second) {
      problems.add(fmt::format("the plan uses device {} twice", device.value()));
    }
  }
  problems.throw_if_any();
}

}  // namespace

Cluster plan_cluster(const Plan& plan, const Cluster& cluster) {
  if (plan.devices.empty()) return cluster;
  check_devices(plan, cluster);
  Cluster result = cluster;
  result.ranks.clear();
  result.links.clear();
  std::map<RankId, RankId> place;
  std::map<std::string, int> used;
  for (const RankId device : plan.devices) {
    place.emplace(device, RankId(static_cast<std::int32_t>(place.size())));
    result.ranks.push_back(cluster.ranks[static_cast<std::size_t>(device.value())]);
    ++used[result.ranks.back().device_class];
  }
  for (Link link : cluster.links) {
    if (link.ranks) {
      const auto a = place.find(link.ranks->first), b = place.find(link.ranks->second);
      if (a == place.end() || b == place.end()) continue;
      link.ranks = std::minmax(a->second, b->second);
    }
    result.links.push_back(std::move(link));
  }
  for (DeviceClass& one : result.classes) one.count = used[one.name];
  return result;
}

}  // namespace heteroperf
