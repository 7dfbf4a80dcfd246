#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/plan/search/problem/graph_problem.hpp"
#include "tests/unit/runners/plan/plan_cases.hpp"

namespace heteroperf {

/// A class of a mixed_cluster().
struct ClassCase {
  std::string name;
  int devices = 1, per_node = 8;
  double rate = 1e12, memory_bytes = 64e9;
};

/// Clusters of classes, one link of α + n/β inside each class, another between any two.
inline Cluster mixed_cluster(const std::vector<ClassCase>& classes, double inner_bandwidth,
                             double outer_bandwidth, double latency_s = 1e-5) {
  Cluster cluster;
  cluster.name = "mixed";
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const ClassCase& one = classes[c];
    DeviceClass device;
    device.name = one.name;
    device.kind = DeviceKind::paced;
    device.memory = Bytes(static_cast<std::uint64_t>(one.memory_bytes));
    device.count = one.devices;
    device.rates["fp32"] = OpsPerSecond(one.rate);
    cluster.classes.push_back(device);
    for (int d = 0; d < one.devices; ++d) {
      const std::string host = one.name + "-" + std::to_string(1000 + d / one.per_node);
      cluster.ranks.push_back({one.name, host, one.name, {}});
    }
    for (std::size_t other = 0; other <= c; ++other) {
      const double bandwidth = other == c ? inner_bandwidth : outer_bandwidth;
      cluster.links.push_back({classes[other].name,
                               one.name,
                               {},
                               LinkCurve(Seconds(latency_s), BytesPerSecond(bandwidth)),
                               "given"});
    }
    cluster.efficiency.push_back(
        {one.name, "memory", "stream", "fp32", OpsPerSecond(one.rate / 10), "given"});
  }
  return cluster;
}

/// A random draft need not fit the memory; what it takes is compared all the same.
inline ReadyPlan ready_without_limits(const GraphProblem& problem, const Plan& plan) {
  Cluster cluster = problem.cluster();
  for (DeviceClass& device : cluster.classes) device.memory = Bytes(0);
  return ready_on(problem.task(), plan, cluster);
}

/// A draft of a problem: any cuts, degrees, shares, recomputation and warm-ups.
inline PipelineDraft random_draft(const PlanningProblem& problem, std::mt19937_64& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(n));
  };
  PipelineDraft draft;
  const int stages = 1 + below(std::min(problem.layers, 3));
  std::vector<int> cuts{0, problem.layers};
  while (static_cast<int>(cuts.size()) <= stages) {
    const int cut = 1 + below(problem.layers - 1);
    if (std::find(cuts.begin(), cuts.end(), cut) == cuts.end()) cuts.push_back(cut);
  }
  std::sort(cuts.begin(), cuts.end());
  draft.micro_batches = 1 + below(9);
  draft.zero_stage = below(2);
  std::vector<int> left;
  for (const DevicePool& pool : problem.pools) left.push_back(pool.devices);
  const std::int64_t samples = 4 + below(4);
  for (int s = 0; s < stages; ++s) {
    DraftStage& stage = draft.stages.emplace_back();
    stage.first = cuts[static_cast<std::size_t>(s)];
    stage.end = cuts[static_cast<std::size_t>(s) + 1];
    stage.recomputation = static_cast<Recomputation>(below(3));
    stage.wire = static_cast<WireFormat>(below(3));
    std::int64_t open = samples;
    for (std::size_t p = 0; p < problem.pools.size() && open > 0; ++p) {
      ReplicaGroup group;
      group.pool = static_cast<int>(p);
      group.degree = below(static_cast<std::int64_t>(problem.degrees.size()));
      const int degree = problem.degrees[static_cast<std::size_t>(group.degree)];
      const int most = std::min<int>(left[p] / degree / (stages - s), static_cast<int>(open));
      if (most < 1) continue;
      group.replicas = 1 + below(most);
      group.samples = 1 + below(open / group.replicas);
      left[p] -= group.replicas * degree;
      open -= group.replicas * group.samples;
      stage.groups.push_back(group);
    }
    if (stage.groups.empty()) return random_draft(problem, random);
    if (open > 0) {
      // One replica of the last group takes what is left.
      ReplicaGroup last = stage.groups.back();
      if (--stage.groups.back().replicas == 0) stage.groups.pop_back();
      last.replicas = 1;
      last.samples += open;
      stage.groups.push_back(last);
    }
  }
  constexpr const char* schedules[] = {"1f1b", "1f1b", "zb-h1", "zb-h2"};
  set_schedule(draft, schedules[below(4)]);
  if (draft.schedule != "1f1b") return draft;
  int more = below(4);
  for (std::size_t s = 0; s < draft.stages.size(); ++s) {
    draft.stages[s].warm_up += more;
    more -= more > 0 ? below(more) : 0;
  }
  return draft;
}

}  // namespace heteroperf
