#include "suite/planning/chosen_plan.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "metrics/base/error.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/search/plan_search.hpp"
#include "suite/run/prepare.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/workload_factories.hpp"

namespace heteroperf {
namespace {

Workload nano() {
  WorkloadRequest request;
  request.size = "nano";
  request.micro_batch = 2;
  request.micro_batches = 4;
  return make_llm(request, {std::uint64_t{8} << 30, 1e10});
}

Placement ranks_alone(int ranks) {
  Placement placement;
  placement.ranks = ranks;
  return placement;
}

RunConfig config_of(int pipeline, int tensor, const char* schedule = "1f1b") {
  RunConfig config;
  config.plan.pipeline = pipeline;
  config.plan.tensor = tensor;
  config.plan.schedule = schedule;
  return config;
}

TEST(ChosenPlan, EvenOnesHaveTheDegreesAndAsManySamplesAsDataParallelRanks) {
  const Workload workload = nano();
  for (const auto& [pipeline, tensor] : {std::pair(1, 1), {2, 1}, {1, 2}, {2, 2}, {4, 1}}) {
    const ChosenPlan chosen =
        choose_plan(config_of(pipeline, tensor), {}, workload, ranks_alone(4));
    EXPECT_EQ(chosen.plan.ranks(), 4);
    EXPECT_EQ(chosen.plan.samples_per_step(), 4u * 2 * 4) << pipeline << " " << tensor;
    EXPECT_EQ(chosen.roles.size(), 4u);
    EXPECT_EQ(chosen.memory.size(), 4u);
    EXPECT_FALSE(chosen.emulated);
    EXPECT_FALSE(chosen.prediction);
    EXPECT_EQ(chosen.device_class(3), "cpu");
  }
}

/// What a plan's maker knew better is predicted; an emulated device is what it is described as.
TEST(ChosenPlan, APlansOwnRatesArePredictedWithAndNotPacedBy) {
  const Workload workload = nano();
  const Cluster cluster = find_cluster("laptop");
  PlanSources sources{"laptop", cluster, std::nullopt};
  const ChosenPlan plain = choose_plan(config_of(2, 1), sources, workload, ranks_alone(2));
  ASSERT_TRUE(plain.prediction);
  sources.plan = plain.plan;
  for (const DeviceClass& one : cluster.classes) {
    sources.plan->efficiency.add({one.name, "", "", "fp32"},
                                 {one.rates.at("fp32") * 0.25, {Provenance::probe, "a run"}});
    for (const char* operation : {"gemm", "attention"}) {
      sources.plan->efficiency.add({one.name, operation, "", "fp32"},
                                   {one.rates.at("fp32") * 0.25, {Provenance::probe, "a run"}});
    }
  }
  const ChosenPlan slower = choose_plan({}, sources, workload, ranks_alone(2));
  EXPECT_GT(slower.prediction->step_time_s, 2 * plain.prediction->step_time_s);
  EXPECT_EQ(slower.paced->compute[0][0].forward_s, plain.paced->compute[0][0].forward_s);
  EXPECT_GT(slower.times->compute[0][0].forward_s, 2 * slower.paced->compute[0][0].forward_s);
}

TEST(ChosenPlan, ASlowdownChangesTheDevicesAndNotWhatIsKnown) {
  const Workload workload = nano();
  const Cluster cluster = find_cluster("fast2_slow6");
  RunConfig config = config_of(2, 1);
  config.pace.slow = {"fast", 30, 1.5};
  const ChosenPlan chosen =
      choose_plan(config, {"", cluster, std::nullopt}, workload, ranks_alone(8));
  ASSERT_TRUE(chosen.paced_change);
  EXPECT_EQ(chosen.paced_change->from_step, 30u);
  for (const StageId stage : chosen.plan.stages.ids()) {
    const auto& replicas = chosen.plan.stages[stage].replicas;
    for (const ReplicaId replica : replicas.ids()) {
      const double factor = replicas[replica].device_class == "fast" ? 1.5 : 1;
      const auto& before = chosen.paced->compute[stage][replica];
      const auto& after = chosen.paced_change->times.compute[stage][replica];
      EXPECT_NEAR(after.forward_s, factor * before.forward_s, 1e-9 * before.forward_s);
      EXPECT_NEAR(after.input_gradient_s, factor * before.input_gradient_s,
                  1e-9 * before.input_gradient_s);
    }
  }
  config.pace.slow = {};
  const ChosenPlan plain =
      choose_plan(config, {"", cluster, std::nullopt}, workload, ranks_alone(8));
  EXPECT_EQ(chosen.prediction->step_time_s, plain.prediction->step_time_s);
  config.pace.slow = {"quick", 30, 1.5};
  try {
    choose_plan(config, {"", cluster, std::nullopt}, workload, ranks_alone(8));
    FAIL() << "there is no such class";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("Give one of fast, slow"), std::string::npos);
  }
}

TEST(ChosenPlan, TheSearchedOneIsFasterThanTheEvenOneOfItsSamples) {
  const Workload workload = nano();
  const PlanSources sources{"", find_cluster("fast2_slow6"), std::nullopt};
  RunConfig config;
  const ChosenPlan even = choose_plan(config, sources, workload, ranks_alone(8));
  config.plan.file = planned_plan;
  const ChosenPlan searched = choose_plan(config, sources, workload, ranks_alone(8));
  EXPECT_EQ(searched.plan.samples_per_step(), even.plan.samples_per_step());
  EXPECT_EQ(searched.plan.ranks(), 8);
  EXPECT_LT(searched.prediction->step_time_s, 0.8 * even.prediction->step_time_s);
}

/// Devices may be unlike where each weight has one place; with copies one device updates for all.
TEST(ChosenPlan, OnlyCopiesOfWeightsMakeUnlikeDevicesUpdateTogether) {
  const Workload workload = nano();
  Placement placement = ranks_alone(2);
  placement.devices = {read_device("cpu:exact"), read_device("cpu")};
  EXPECT_EQ(choose_plan(config_of(2, 1), {}, workload, placement).plan.zero_stage, 0);
  EXPECT_EQ(choose_plan(config_of(1, 1), {}, workload, placement).plan.zero_stage, 1);
  PlanSources sources;
  sources.plan = choose_plan(config_of(2, 1), {}, workload, ranks_alone(2)).plan;
  EXPECT_EQ(choose_plan(config_of(2, 1), sources, workload, placement).plan.zero_stage, 0);
  sources.plan = choose_plan(config_of(1, 1), {}, workload, ranks_alone(2)).plan;
  EXPECT_THROW(choose_plan(config_of(1, 1), sources, workload, placement), UserError);
}

TEST(ChosenPlan, GivenMicroBatchesCount) {
  RunConfig config = config_of(2, 1);
  config.batch.micro_batches = 6;
  const ChosenPlan chosen = choose_plan(config, {}, nano(), ranks_alone(4));
  EXPECT_EQ(chosen.plan.micro_batches, 6);
  EXPECT_EQ(summary_text(chosen.plan), "pp 2 x tp 1 x dp 2, 1f1b, 6 micro-batches of 2");
}

TEST(ChosenPlan, SharesNameWhatRanksHold) {
  const auto shares = [](const RunConfig& config, int ranks) {
    const ChosenPlan chosen = choose_plan(config, {}, nano(), ranks_alone(ranks));
    std::vector<std::string> texts;
    for (const RankRole& role : chosen.roles) texts.push_back(held_share(chosen.plan, role));
    return texts;
  };
  EXPECT_EQ(shares(config_of(1, 1), 2), (std::vector<std::string>{"", ""}));
  EXPECT_EQ(shares(config_of(2, 1), 4),
            (std::vector<std::string>{"stages 0", "stages 0", "stages 1", "stages 1"}));
  EXPECT_EQ(shares(config_of(1, 2), 2),
            (std::vector<std::string>{"stages 0; tensor 0 of 2", "stages 0; tensor 1 of 2"}));
  RunConfig interleaved = config_of(2, 1, "interleaved-1f1b");
  interleaved.plan.chunks = 2;
  EXPECT_EQ(shares(interleaved, 2), (std::vector<std::string>{"stages 0,2", "stages 1,3"}));
}

TEST(ChosenPlan, TheScheduleChoosesItsChunksWhateverTheMicroBatches) {
  RunConfig config = config_of(2, 1, "dualpipev");
  config.batch.micro_batches = 4;
  EXPECT_EQ(choose_plan(config, {}, nano(), ranks_alone(2)).plan.chunks, 2);
  EXPECT_EQ(choose_plan(config_of(2, 1), {}, nano(), ranks_alone(2)).plan.chunks, 1);
  config.batch.micro_batches = 1;
  try {
    choose_plan(config, {}, nano(), ranks_alone(2));
    FAIL() << "too few micro-batches";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()).find("chunks per rank"), std::string::npos) << error.what();
  }
}

TEST(ChosenPlan, DegreesThatDoNotFitAreTold) {
  EXPECT_THROW(choose_plan(config_of(3, 1), {}, nano(), ranks_alone(4)), UserError);
}

TEST(ChosenPlan, APacedClusterPredicts) {
  const Cluster cluster = find_cluster("fast2_slow6");
  const auto ranks = static_cast<int>(cluster.ranks.size());
  const ChosenPlan chosen =
      choose_plan(config_of(2, 1), {"", cluster, std::nullopt}, nano(), ranks_alone(ranks));
  EXPECT_TRUE(chosen.emulated);
  ASSERT_TRUE(chosen.times && chosen.prediction);
  const std::vector<Event> events = plan_events(chosen);
  ASSERT_EQ(events.size(), cluster.ranks.size() + 1);
  double busy_s = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& event = std::get<RankPlanEvent>(events[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(event.rank, rank);
    EXPECT_EQ(event.device_class, cluster.ranks[static_cast<std::size_t>(rank)].device_class);
    EXPECT_EQ(event.limit_bytes, class_of(cluster, RankId(rank)).memory.value());
    EXPECT_GT(event.weights_bytes, 0u);
    EXPECT_LE(event.busy_s.value(), chosen.prediction->step_time_s * (1 + 1e-9));
    busy_s += event.busy_s.value();
  }
  const auto& predicted = std::get<PredictionEvent>(events.back());
  EXPECT_EQ(predicted.step_time_s, chosen.prediction->step_time_s);
  EXPECT_NEAR(predicted.bubble_rate, 1 - busy_s / (ranks * predicted.step_time_s), 1e-12);
  EXPECT_NEAR(predicted.samples_per_s * predicted.step_time_s,
              static_cast<double>(chosen.plan.samples_per_step()), 1e-6);
}

TEST(ChosenPlan, RealDevicesWithoutRatesGetAReasonInsteadOfAPrediction) {
  Cluster cluster = find_cluster("laptop");
  for (DeviceClass& device : cluster.classes) {
    device.kind = DeviceKind::cpu;
    device.rates.clear();
  }
  cluster.efficiency.clear();
  const auto ranks = static_cast<int>(cluster.ranks.size());
  const ChosenPlan chosen =
      choose_plan(config_of(1, 1), {"", cluster, std::nullopt}, nano(), ranks_alone(ranks));
  EXPECT_FALSE(chosen.prediction);
  const std::vector<Event> events = plan_events(chosen);
  ASSERT_TRUE(std::holds_alternative<WarningEvent>(events.back()));
  EXPECT_EQ(std::get<WarningEvent>(events.back()).text.find("no prediction: "), 0u);
}

TEST(Baselines, EachClassAloneGetsItsBestPlan) {
  const Cluster cluster = find_cluster("fast2_slow6");
  const auto ranks = static_cast<int>(cluster.ranks.size());
  PreparedRun run{config_of(2, 1), {}, nano(), 0, "the command"};
  run.placement.ranks = ranks;
  run.placement.bindings.resize(static_cast<std::size_t>(ranks));
  run.config.with_baselines = true;
  run.plan = choose_plan(run.config, {"", cluster, std::nullopt}, run.workload, ranks_alone(ranks));
  const std::vector<Baseline> baselines = choose_baselines(run);
  const std::vector<ClassRanks> classes = ranks_by_class(cluster);
  ASSERT_EQ(baselines.size(), classes.size());
  for (std::size_t c = 0; c < classes.size(); ++c) {
    ASSERT_TRUE(baselines[c].run) << baselines[c].reason;
    const PreparedRun& alone = *baselines[c].run;
    EXPECT_EQ(baselines[c].ranks.size(), classes[c].ranks.size());
    EXPECT_EQ(baselines[c].ranks.front(), RankId(0)) << "emulated: any rank can be it";
    EXPECT_EQ(alone.plan->plan.samples_per_step(), run.plan->plan.samples_per_step());
    EXPECT_EQ(alone.config.scale.ranks, alone.plan->plan.ranks());
    EXPECT_FALSE(alone.config.with_baselines);
    EXPECT_EQ(alone.plan->device_class(0), classes[c].device_class);
    const auto n = static_cast<int>(classes[c].ranks.size());
    const ChosenPlan plain =
        choose_plan(config_of(1, 1), {"", part_of_cluster(cluster, classes[c].ranks), std::nullopt},
                    run.workload, ranks_alone(n));
    ASSERT_TRUE(alone.plan->prediction);
    PlanningRequest request;
    request.precision = run.workload.precision;
    request.optimizer = run.workload.recipe.kind;
    request.batch = static_cast<std::int64_t>(run.plan->plan.samples_per_step());
    const Cluster part = part_of_cluster(cluster, classes[c].ranks);
    const PlanSearchResult found =
        search_plans(GraphProblem(run.workload.graph, part, request), {});
    ASSERT_EQ(found.plans.front().plan.ranks(), n);
    EXPECT_LE(alone.plan->prediction->step_time_s,
              found.plans.front().predicted().step_time_s * (1 + 1e-9));
    if (plain.plan.samples_per_step() == run.plan->plan.samples_per_step()) {
      EXPECT_GE(alone.plan->prediction->throughput, plain.prediction->throughput);
    }
  }
}

/// Its file tells enough to simulate it: the devices of the whole cluster that it uses, and what
/// of.
TEST(Baselines, PlansNameTheirWorkloadTheirClusterAndTheirDevices) {
  const Cluster cluster = find_cluster("fast2_slow6");
  const auto ranks = static_cast<int>(cluster.ranks.size());
  PreparedRun run{config_of(1, 1), {}, nano(), 0, "the command"};
  run.config.cluster.file = "fast2_slow6";
  run.placement.ranks = ranks;
  run.placement.bindings.resize(static_cast<std::size_t>(ranks));
  run.plan = choose_plan(run.config, {"fast2_slow6", cluster, std::nullopt}, run.workload,
                         ranks_alone(ranks));
  const std::vector<Baseline> baselines = choose_baselines(run);
  ASSERT_EQ(baselines.size(), 2u);
  for (const Baseline& baseline : baselines) {
    ASSERT_TRUE(baseline.run) << baseline.reason;
    const ChosenPlan& chosen = *baseline.run->plan;
    EXPECT_EQ(chosen.plan.workload, run.plan->plan.workload);
    EXPECT_EQ(chosen.plan.cluster, "fast2_slow6");
    const Cluster used = plan_cluster(chosen.plan, cluster);
    ASSERT_EQ(used.ranks.size(), baseline.ranks.size());
    for (const RankPlace& place : used.ranks) {
      EXPECT_EQ(place.device_class, baseline.device_class);
    }
    const ChosenPlan again = complete_plan(chosen.plan, run.workload, used);
    EXPECT_EQ(again.prediction->step_time_s, chosen.prediction->step_time_s);
  }
}

TEST(Baselines, OneClassHasNone) {
  PreparedRun run{config_of(1, 1), {}, nano(), 0, ""};
  run.config.with_baselines = true;
  run.plan = choose_plan(run.config, {}, run.workload, ranks_alone(2));
  EXPECT_TRUE(choose_baselines(run).empty());
}

}  // namespace
}  // namespace heteroperf
