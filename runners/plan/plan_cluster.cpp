// Parts of a cluster, and plans that use a part.
//
// A plan's ranks are numbered from 0 without gaps, while a cluster may have devices that the plan
// leaves idle. `devices` maps the one to the other. A part of a cluster has its ranks numbered anew
// in the given order; links between pairs of ranks are renumbered with them, and pairs that lost an
// end are dropped.
#include "runners/plan/plan_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "metrics/base/error.hpp"

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

Cluster part_of_cluster(const Cluster& cluster, const std::vector<RankId>& ranks) {
  std::map<RankId, RankId> number;
  Cluster part = cluster;
  part.ranks.clear();
  for (const RankId rank : ranks) {
    number.emplace(rank, RankId(static_cast<std::int32_t>(part.ranks.size())));
    part.ranks.push_back(cluster.ranks.at(rank.index()));
  }
  part.links.clear();
  for (Link link : cluster.links) {
    if (link.ranks) {
      const auto a = number.find(link.ranks->first), b = number.find(link.ranks->second);
      if (a == number.end() || b == number.end()) continue;
      link.ranks = std::minmax(a->second, b->second);
    }
    part.links.push_back(std::move(link));
  }
  return part;
}

Plan on_whole_cluster(Plan plan, const std::vector<RankId>& ranks) {
  std::vector<RankId> devices;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(plan.ranks()); ++rank) {
    const auto of_part =
        plan.devices.empty() ? rank : static_cast<std::size_t>(plan.devices[rank].value());
    devices.push_back(ranks.at(of_part));
  }
  plan.devices = std::move(devices);
  return plan;
}

Cluster plan_cluster(const Plan& plan, const Cluster& cluster) {
  if (plan.devices.empty()) return cluster;
  check_devices(plan, cluster);
  return part_of_cluster(cluster, plan.devices);
}

Cluster known_better(Cluster cluster, const Plan& plan) {
  apply(plan.efficiency, cluster);
  return cluster;
}

}  // namespace heteroperf
