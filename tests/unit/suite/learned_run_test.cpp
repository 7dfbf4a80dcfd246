#include "suite/planning/learned_rates.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "metrics/base/error.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/plan_json.hpp"
#include "suite/planning/chosen_plan.hpp"
#include "suite/planning/measured_plan.hpp"
#include "suite/planning/plan_simulation.hpp"
#include "suite/program/catalog.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

/// A finished run of the smallest language model on two equal devices, which computed for
/// `compute_s` of every step.
class LearnedRunTest : public testing::Test {
 protected:
  void write(double compute_s, int rank_times = 2) {
    WorkloadRequest wanted;
    wanted.size = "nano";
    const Workload workload = find_workload("llm").make(wanted, ScalingInput());
    EvenPlanRequest request;
    request.data = 2;
    request.micro_batch = 4;
    request.micro_batches = 2;
    plan_ = even_plan(workload.graph, request);
    plan_.workload = plan_workload(workload);
    plan_.cluster = "laptop";
    plan_.efficiency = efficiency_;
    SampleRun run = fixed_run();
    run.last<ScaleEvent>().devices = devices_;
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      RankPlanEvent place;
      place.rank = rank;
      place.device_class = devices_.front().device_class;
      place.limit_bytes = memory_bytes_;
      run.insert_before_stop(place);
    }
    for (std::int32_t rank = 0; rank < rank_times; ++rank) {
      RankTimeEvent time;
      time.rank = rank;
      time.steps = 30;
      time.wall_s = 360;
      time.split.compute_s = 30 * compute_s;
      run.insert_before_stop(time);
    }
    if (rank_times == 0) run.last<StopEvent>() = {RunStatus::partial, "SIGTERM", 130};
    run.write(RunFiles{folder_.path()});
    std::ofstream(folder_.path() / "plan.json") << plan_text(plan_);
  }
  std::string problem() const {
    try {
      learned();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }
  std::optional<MeasuredPlan> measured_on_the_plans_cluster() const {
    PlanSimulationRequest request;
    request.path = (folder_.path() / "plan.json").string();
    return measured_beside(request.path, simulated_cluster(read_plan_file(request.path), request));
  }
  LearnedRun learned() const { return learn_from_run(folder_.path(), find_cluster("laptop")); }

  TemporaryFolder folder_;
  Plan plan_;
  EfficiencyMatrix efficiency_;  ///< of the plan that ran
  std::vector<DeviceCount> devices_{{"core", 2, 1, true}};
  std::uint64_t memory_bytes_ = find_cluster("laptop").classes[0].memory.value();
};

TEST_F(LearnedRunTest, RatesFollowTheMeasuredTimes) {
  write(1);
  const LearnedRun first = learned();
  ASSERT_EQ(first.classes.size(), 1u);
  EXPECT_EQ(first.classes[0].ranks, 2);
  EXPECT_DOUBLE_EQ(first.classes[0].measured_s, 1);
  EXPECT_NEAR(first.measured_step_s, 12, 0.5);
  const double predicted_s = first.classes[0].predicted_s;
  // A machine that takes twice what is predicted is half as fast.
  write(2 * predicted_s);
  const LearnedRun slow = learned();
  const Cluster cluster = find_cluster("laptop");
  ASSERT_EQ(slow.matrix.rates().size(), 1u);
  const auto& [key, rate] = *slow.matrix.rates().begin();
  EXPECT_EQ(key.precision, "fp32");
  EXPECT_EQ(rate.origin.provenance, Provenance::probe);
  EXPECT_NEAR(rate.rate.value() / cluster.classes[0].rates.at("fp32").value(), 0.5, 1e-9);
  EXPECT_GT(slow.relearned_step_s, 1.5 * slow.predicted_step_s);
  write(predicted_s);
  EXPECT_NEAR(learned().relearned_step_s, learned().predicted_step_s, 1e-9);
}

/// What the plan that ran knew is what its prediction was made with.
TEST_F(LearnedRunTest, GoesOnFromWhatThePlanKnew) {
  write(1);
  const double predicted_s = learned().classes[0].predicted_s;
  const DeviceClass one = find_cluster("laptop").classes[0];
  const double half = one.rates.at("fp32").value() / 2;
  efficiency_.add({one.name, "", "", "fp32"}, {OpsPerSecond(half), {Provenance::probe, "before"}});
  write(2 * predicted_s);
  const LearnedRun again = learned();
  EXPECT_GT(again.classes[0].predicted_s, 1.5 * predicted_s);
  const double factor = again.classes[0].predicted_s / again.classes[0].measured_s;
  EXPECT_NEAR(again.matrix.rates().begin()->second.rate.value(), half * factor, 1e-6 * half);
}

/// One line, and the same for a simulation of the run's plan.
TEST_F(LearnedRunTest, ARunMadeElsewhereIsRefused) {
  const auto refused = [&](const std::string& why) {
    write(1);
    const std::string text = problem();
    EXPECT_NE(text.find("was not made on a laptop"), std::string::npos) << text;
    EXPECT_NE(text.find(why), std::string::npos) << text;
    EXPECT_THROW(measured_on_the_plans_cluster(), UserError);
  };
  const std::vector<DeviceCount> own = devices_;
  devices_ = {{"cpu", 2, 1, false}};
  refused("it ran on 2 x cpu; this cluster has 2 x core, emulated");
  devices_ = {{"core", 2, 1, false}};
  refused("it ran on 2 x core; this");
  devices_ = {{"core", 1, 1, true}, {"fast", 1, 1, true}};
  refused("it ran on 1 x core, 1 x fast, emulated; this");
  devices_ = own;
  memory_bytes_ /= 2;
  refused("there a core had 2 GiB of memory; in this cluster it has 4 GiB");
  memory_bytes_ *= 2;
  write(1);
  EXPECT_EQ(problem(), "no error");
  EXPECT_TRUE(measured_on_the_plans_cluster());
}

TEST_F(LearnedRunTest, WhatCannotBeLearnedFromIsSaid) {
  EXPECT_NE(problem(), "no error");
  write(1, 0);
  EXPECT_NE(problem().find("nothing to learn from"), std::string::npos) << problem();
  write(1e9);
  EXPECT_NE(problem().find("Is --cluster the machine"), std::string::npos) << problem();
}

}  // namespace
}  // namespace heteroperf
