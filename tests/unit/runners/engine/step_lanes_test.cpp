// Where the time of a traced step goes, on ranks that are threads.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "runners/comm/world.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "runners/plan/even_plan.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"

namespace heteroperf {
namespace {

struct StepOnRank {
  StepReport report;
  std::vector<LaneSpan> lanes;
};

/// A step that is not traced, three that are, and one that is not, on every rank.
std::vector<StepOnRank> trace_steps(const EvenPlanRequest& request) {
  TrainingSpec spec = test::small_training(test::tiny_gpt());
  spec.use_plan(even_plan(spec.graph, request));
  std::vector<StepOnRank> all;
  std::mutex mutex;
  run_on_threads(spec.plan().ranks(), {}, [&](World& world) {
    const std::unique_ptr<TrainingSession> session = start_training(spec, *world.communicator);
    session->step();
    std::vector<StepOnRank> mine;
    std::vector<LaneSpan> lanes;
    session->trace_to(&lanes);
    for (int step = 0; step < 3; ++step) {
      const StepReport report = session->step();
      mine.push_back({report, lanes});
      lanes.clear();
    }
    session->trace_to(nullptr);
    session->step();
    EXPECT_TRUE(lanes.empty());
    const std::lock_guard lock(mutex);
    all.insert(all.end(), mine.begin(), mine.end());
  });
  return all;
}

bool is_beside(const LaneSpan& span) { return span.lane > TimeLane::other; }

/// Every moment of the step is on exactly one lane, and the lanes give the step's split.
void expect_whole(const StepOnRank& step) {
  std::int64_t reached_ns = step.report.t_start_ns;
  std::map<TimeLane, double> seconds;
  for (const LaneSpan& span : step.lanes) {
    if (is_beside(span)) {
      EXPECT_GE(span.start_ns, step.report.t_start_ns);
      EXPECT_LE(span.end_ns, step.report.t_end_ns);
      continue;
    }
    EXPECT_EQ(span.start_ns, reached_ns);
    EXPECT_GT(span.end_ns, span.start_ns);
    reached_ns = span.end_ns;
    seconds[span.lane] += static_cast<double>(span.end_ns - span.start_ns) * 1e-9;
  }
  EXPECT_EQ(reached_ns, step.report.t_end_ns);
  const TimeSplit& split = step.report.split;
  EXPECT_NEAR(seconds[TimeLane::compute] + seconds[TimeLane::optimizer], split.compute_s, 1e-9);
  EXPECT_NEAR(seconds[TimeLane::messages] + seconds[TimeLane::sums], split.communication_s, 1e-9);
  EXPECT_NEAR(seconds[TimeLane::waiting], split.bubble_s, 1e-9);
  EXPECT_NEAR(seconds[TimeLane::data], split.data_s, 1e-9);
  EXPECT_NEAR(seconds[TimeLane::other], split.other_s, 1e-9);
}

std::set<TimeLane> lanes_of(const std::vector<StepOnRank>& steps) {
  std::set<TimeLane> lanes;
  for (const StepOnRank& step : steps) {
    for (const LaneSpan& span : step.lanes) lanes.insert(span.lane);
  }
  return lanes;
}

EvenPlanRequest request_of(int pipeline, int tensor, int data, int zero_stage = 0) {
  EvenPlanRequest request;
  request.pipeline = pipeline;
  request.tensor = tensor;
  request.data = data;
  request.zero_stage = zero_stage;
  request.micro_batch = 2;
  request.micro_batches = 4;
  return request;
}

TEST(StepLanes, AddUpOnEveryRankOfEveryKindOfPlan) {
  for (const EvenPlanRequest& request :
       {request_of(1, 1, 1), request_of(1, 1, 2), request_of(1, 1, 2, 1), request_of(2, 1, 1),
        request_of(1, 2, 1), request_of(2, 2, 2)}) {
    SCOPED_TRACE(::testing::Message()
                 << request.pipeline << ' ' << request.tensor << ' ' << request.data);
    const std::vector<StepOnRank> steps = trace_steps(request);
    EXPECT_EQ(steps.size(),
              3 * static_cast<std::size_t>(request.pipeline * request.tensor * request.data));
    for (const StepOnRank& step : steps) expect_whole(step);
    const std::set<TimeLane> lanes = lanes_of(steps);
    EXPECT_TRUE(lanes.contains(TimeLane::compute));
    EXPECT_TRUE(lanes.contains(TimeLane::data));
    EXPECT_TRUE(lanes.contains(TimeLane::optimizer));
    if (request.pipeline > 1) {
      EXPECT_TRUE(lanes.contains(TimeLane::messages));
    }
    if (request.tensor > 1) {
      EXPECT_TRUE(lanes.contains(TimeLane::sums));
    }
    if (request.data > 1) {
      EXPECT_TRUE(lanes.contains(TimeLane::overlapped_sums));
    }
  }
}

/// A computation that sums interrupt comes back to its own lane.
TEST(StepLanes, SumsOfTensorParallelRanksLieWithinComputations) {
  for (const StepOnRank& step : trace_steps(request_of(1, 2, 1))) {
    std::set<std::int32_t> computing, summing;
    for (const LaneSpan& span : step.lanes) {
      if (span.lane == TimeLane::compute) computing.insert(span.instruction);
      if (span.lane == TimeLane::sums) summing.insert(span.instruction);
    }
    std::size_t within = 0;
    for (const std::int32_t instruction : summing) within += computing.count(instruction);
    EXPECT_GE(within, 8u);  // forward and backward of four micro-batches
  }
}

/// A described machine of real devices. `slow` is how much slower rank 0 is than rank 1.
Cluster two_real_devices(double slow) {
  Cluster cluster;
  cluster.name = "two";
  const auto add_class = [&](const char* name, double rate) {
    DeviceClass device;
    device.name = name;
    device.kind = DeviceKind::cpu;
    device.rates["fp64"] = OpsPerSecond(rate);
    cluster.classes.push_back(device);
    cluster.ranks.push_back({name, "host", "here", {}});
    cluster.efficiency.push_back({name, "memory", "stream", "fp64", OpsPerSecond(1e12), "given"});
  };
  add_class("first", 1e9 / slow);
  add_class("second", 1e9);
  cluster.links.push_back(
      {"here", "here", {}, LinkCurve(Seconds(1e-6), BytesPerSecond(1e10)), "given"});
  return cluster;
}

/// The kinds of instructions, by number, that each rank spent time on in one step.
std::vector<std::map<std::int32_t, std::set<TimeLane>>> executed(const TrainingSpec& spec) {
  std::vector<std::map<std::int32_t, std::set<TimeLane>>> ranks(
      static_cast<std::size_t>(spec.plan().ranks()));
  run_on_threads(spec.plan().ranks(), {}, [&](World& world) {
    const std::unique_ptr<TrainingSession> session = start_training(spec, *world.communicator);
    std::vector<LaneSpan> lanes;
    session->trace_to(&lanes);
    session->step();
    auto& mine = ranks[world.communicator->rank().index()];
    for (const LaneSpan& span : lanes) {
      if (span.instruction >= 0) mine[span.instruction].insert(span.lane);
    }
  });
  return ranks;
}

/// The order of `auto` follows the costs. The instructions that were predicted for a machine are
/// those that the engine runs, also where the plan knows better rates than the machine's file.
TEST(StepLanes, ThePredictedInstructionsAreThoseThatRun) {
  TrainingSpec spec = test::small_training(test::tiny_gpt());
  EvenPlanRequest request = request_of(2, 1, 1);
  request.schedule = "auto";
  std::set<std::string> orders;
  const auto expect_executed = [&](const Plan& plan, const Cluster& cluster) {
    const TrainingTask task{spec.graph, spec.precision, spec.recipe.kind};
    spec.ready = std::make_shared<const ReadyPlan>(task, plan, cluster);
    ASSERT_TRUE(spec.ready->prediction);
    const auto ranks = executed(spec);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const PositionId position = spec.ready->roles[rank].position;
      const std::vector<Instruction>& program = spec.ready->schedule.programs[position.index()];
      std::string order;
      for (std::size_t i = 0; i < program.size(); ++i) {
        order += to_text(program[i]) + "\n";
        const auto lanes = ranks[rank].find(static_cast<std::int32_t>(i));
        const bool computes =
            lanes != ranks[rank].end() && lanes->second.contains(TimeLane::compute);
        const bool should = is_compute(program[i].op) || program[i].op == Op::opt_step;
        EXPECT_EQ(computes, should) << "rank " << rank << ": " << to_text(program[i]);
      }
      orders.insert(order);
    }
  };
  const Plan plan = even_plan(spec.graph, request);
  expect_executed(plan, two_real_devices(1));
  expect_executed(plan, two_real_devices(5));
  Plan better = plan;
  better.efficiency.add({"second", "", "", "fp64"},
                        {OpsPerSecond(1e8), {Provenance::probe, "a run"}});
  expect_executed(better, two_real_devices(1));
  EXPECT_GT(orders.size(), 2u) << "rates that change no order prove nothing";
}

}  // namespace
}  // namespace heteroperf
