#include "runners/plan/rivals/metis/metis.hpp"

#include <gtest/gtest.h>

#include "runners/plan/times/stage_times.hpp"
#include "tests/unit/runners/plan/plan_cases.hpp"

namespace heteroperf {
namespace {

const ModelGraph& model() {
  static const ModelGraph graph = linear_chain(4, 64);
  return graph;
}

/// Classes "one" of 10^9 operations a second, as flat_cluster() has, and "two" of half of it.
Cluster mixed_cluster() {
  Cluster cluster = flat_cluster(3, 1e9, 0, 1e9);
  cluster.classes.push_back(cluster.classes.front());
  cluster.classes.back().name = "two";
  cluster.classes.back().rates["fp32"] = OpsPerSecond(5e8);
  cluster.ranks.back().device_class = "two";
  for (const char* name : {"one", "two"}) {
    cluster.efficiency.push_back({name, "memory", "", "fp32", OpsPerSecond(1e30), ""});
  }
  return cluster;
}

double pass_s(const Cluster& cluster, int rank, std::int64_t batch) {
  Plan plan = chain_plan(model(), {});
  plan.stages[0].replicas[0].ranks = {RankId(0)};
  plan.stages[0].replicas[0].micro_batch = batch;
  Cluster device = cluster;
  device.ranks = {cluster.ranks[static_cast<std::size_t>(rank)]};
  const StageTimes times = stage_times({model()}, cut_graph(model(), plan), plan, device);
  const StageTimes::Compute& one = times.compute[0][0];
  return one.forward_s + one.input_gradient_s + one.weight_gradient_s;
}

/// What Metis would have measured where every class takes `slowdown` times what is predicted.
MetisProfiles profile_of(const Cluster& cluster, double slowdown) {
  MetisProfiles profiles;
  profiles.model = "chain";
  profiles.parameters[1] = {Bytes(4 * model().parameter_count())};
  for (const auto& [name, rank] : {std::pair("one", 0), {"two", 2}}) {
    for (const std::int64_t batch : {1, 4}) {
      const double whole_s = slowdown * pass_s(cluster, rank, batch);
      profiles.classes[name][{1, batch}].compute_s = {0.25 * whole_s, 0.75 * whole_s};
      profiles.classes[name][{2, batch}].compute_s = {whole_s, whole_s};
    }
  }
  return profiles;
}

std::string problem_of(const MetisProfiles& profiles, const Cluster& cluster) {
  try {
    metis_rates(profiles, model(), cluster, Precision::fp32);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MetisRates, ComeFromTheProfile) {
  const Cluster cluster = mixed_cluster();
  const ProfiledRates found =
      metis_rates(profile_of(cluster, 2), model(), cluster, Precision::fp32);
  ASSERT_EQ(found.classes.size(), 2u);
  EXPECT_EQ(found.classes[0].entries, 2);
  EXPECT_NEAR(found.classes[0].profiled_s, 2 * found.classes[0].predicted_s, 1e-12);
  EXPECT_NEAR(found.classes[1].error, 0, 1e-12);
  Cluster slower = cluster;
  apply(found.matrix, slower);
  EXPECT_DOUBLE_EQ(slower.classes[0].rates.at("fp32").value(), 5e8);
  EXPECT_DOUBLE_EQ(slower.classes[1].rates.at("fp32").value(), 2.5e8);
}

TEST(MetisRates, WhatNoRateExplainsIsReported) {
  const Cluster cluster = mixed_cluster();
  MetisProfiles profiles = profile_of(cluster, 1);
  for (double& layer_s : profiles.classes["one"][{1, 1}].compute_s) layer_s *= 2;
  const ProfiledRates found = metis_rates(profiles, model(), cluster, Precision::fp32);
  // Passes of 1 and 4 samples, profiled as 2 and 4 of what one takes: the rate falls by 5/6.
  EXPECT_NEAR(found.classes[0].error, (0.4 + 0.2) / 2, 1e-3);
  EXPECT_NEAR(found.classes[1].error, 0, 1e-12);
}

TEST(MetisRates, OtherProfilesAreRefused) {
  const Cluster cluster = mixed_cluster();
  MetisProfiles other = profile_of(cluster, 1);
  other.parameters[1] = {Bytes(3 * model().parameter_count())};
  EXPECT_NE(problem_of(other, cluster).find("of 2 or 4 bytes"), std::string::npos);
  MetisProfiles foreign = profile_of(cluster, 1);
  foreign.classes = {{"A100", foreign.classes["one"]}};
  EXPECT_NE(problem_of(foreign, cluster).find("it is of A100"), std::string::npos);
  MetisProfiles summed = profile_of(cluster, 1);
  for (auto& [name, entries] : summed.classes) {
    std::erase_if(entries, [](const auto& entry) { return entry.first.first == 1; });
  }
  EXPECT_NE(problem_of(summed, cluster).find("degree 1"), std::string::npos);
  EXPECT_NE(problem_of(profile_of(cluster, 1e4), cluster).find("are predicted"), std::string::npos);
  EXPECT_EQ(problem_of(profile_of(cluster, 10), cluster), "no error");
}

}  // namespace
}  // namespace heteroperf
