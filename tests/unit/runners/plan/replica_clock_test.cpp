#include "runners/plan/ready/replica_clock.hpp"

#include "tests/unit/runners/plan/plan_cases.hpp"

namespace heteroperf {
namespace {

/// A plan with what a clock of its ranks needs; every replica's times are drawn.
struct TimedPlan {
  Plan plan;
  StageTimes times;
  Schedule schedule;
  Timeline timeline;

  TimedPlan(const ModelGraph& graph, Plan made, StageTimes given)
      : plan(std::move(made)),
        times(std::move(given)),
        schedule(plan_schedule(graph, cut_graph(graph, plan), plan, &times)),
        timeline(simulate(schedule)) {}

  std::vector<ReplicaPass> passes() const {
    const ReplicaClock clock(times, schedule, timeline);
    std::vector<ReplicaPass> passes;
    for (const RankRole& role : rank_roles(plan, schedule)) passes.push_back(clock.run(role));
    return passes;
  }
};

StageTimes drawn_times(const Plan& plan, std::size_t edges, std::mt19937_64& random) {
  std::uniform_real_distribution<double> seconds(0.1, 2);
  StageTimes times;
  for (const PlanStage& stage : plan.stages) {
    auto& replicas = times.compute.emplace_back();
    for (std::size_t r = 0; r < stage.replicas.size(); ++r) {
      replicas.push_back({seconds(random), seconds(random), seconds(random), 0});
    }
    times.reduction_s.push_back(0);
    times.optimizer_s.push_back(0);
  }
  for (std::size_t e = 0; e < edges; ++e) {
    times.activation_s.push_back(seconds(random));
    times.gradient_s.push_back(seconds(random));
  }
  return times;
}

TEST(ReplicaClock, AloneOnItsPositionARankIsThePosition) {
  std::mt19937_64 random(5);
  const ModelGraph graph = linear_chain(8);
  for (const auto& [schedule, chunks] : {std::pair("gpipe", 1),
                                         {"1f1b", 1},
                                         {"zb-h1", 1},
                                         {"zb-h2", 1},
                                         {"interleaved-1f1b", 2},
                                         {"dualpipev", 2},
                                         {"dualpipe", 1},
                                         {"chimera", 1},
                                         {"zb-v", 2}}) {
    EvenPlanRequest request;
    request.pipeline = 2;
    request.schedule = schedule;
    request.micro_batches = 8;
    request.chunks = chunks;
    Plan plan = even_plan(graph, request);
    if (std::string(schedule) == "1f1b") plan.stages[0].recomputation = Recomputation::full;
    const StageTimes times = drawn_times(plan, cut_graph(graph, plan).edges.size(), random);
    const TimedPlan timed(graph, std::move(plan), times);
    const std::vector<ReplicaPass> passes = timed.passes();
    const bool two_way = timed.schedule.graph.segments.size() > timed.plan.stages.size();
    ASSERT_EQ(passes.size(), timed.schedule.programs.size()) << schedule;
    for (std::size_t rank = 0; rank < passes.size(); ++rank) {
      ASSERT_EQ(passes[rank].spans.size(), timed.timeline.spans[rank].size());
      for (std::size_t i = 0; i < passes[rank].spans.size(); ++i) {
        const TimeSpan &own = passes[rank].spans[i], &position = timed.timeline.spans[rank][i];
        EXPECT_NEAR(own.start, position.start, 1e-9) << schedule << " " << rank << " " << i;
        EXPECT_NEAR(own.end, position.end, 1e-9) << schedule << " " << rank << " " << i;
      }
    }
    EXPECT_EQ(two_way, std::string(schedule) == "dualpipe" || std::string(schedule) == "chimera");
  }
}

TEST(ReplicaClock, AFastReplicaWaitsForItsInputsAndNotForItsNeighbour) {
  const ModelGraph graph = linear_chain(2);
  Plan plan = chain_plan(graph, {3});
  plan.schedule = "gpipe";
  plan.micro_batches = 2;
  plan.stages[1].replicas.push_back({{RankId(2)}, 1, "", 0});
  StageTimes times;
  times.compute = {{{1, 0, 1, 1}}, {{2, 0, 2, 2}, {0.5, 0, 0.25, 0.25}}};
  times.activation_s = times.gradient_s = {0.5};
  times.reduction_s = times.optimizer_s = {0, 0};
  const TimedPlan timed(graph, std::move(plan), times);
  const std::vector<ReplicaPass> passes = timed.passes();
  std::vector<TimeSpan> fast;
  for (const TimeSpan& span : passes[2].spans) {
    if (span.end > span.start) fast.push_back(span);
  }
  // Forwards arrive at 1.5 and 2.5; the slow one of the stage ends its own at 3.5 and 5.5.
  EXPECT_EQ(fast, (std::vector<TimeSpan>{{1.5, 2}, {2.5, 3}, {3, 3.5}, {3.5, 4}}));
  EXPECT_DOUBLE_EQ(passes[2].compute_s, 2);
  EXPECT_DOUBLE_EQ(passes[2].communication_s, 0.5);
  EXPECT_DOUBLE_EQ(passes[1].compute_s, 12);
  // Gradients come when the slow replica has made them.
  EXPECT_DOUBLE_EQ(passes[0].spans[timed.schedule.programs[0].size() - 1].end,
                   timed.timeline.spans[0].back().end);
}

// Stages that have one rank in common are on one position. A rank with one of them takes no time
// for the other's passes, and waits for what the slowest replica of the other makes.
TEST(ReplicaClock, ARankRunsThePassesOfItsOwnStages) {
  const ModelGraph graph = linear_chain(2);
  Plan plan = chain_plan(graph, {3});
  plan.schedule = "auto";
  plan.micro_batches = 1;
  plan.stages[0].replicas = {{{RankId(0)}, 1, "", 0}, {{RankId(1)}, 1, "", 0}};
  plan.stages[1].replicas = {{{RankId(1)}, 1, "", 0}, {{RankId(2)}, 1, "", 0}};
  StageTimes times;
  times.compute = {{{1, 0, 1, 1}, {0.5, 0, 1, 1}}, {{2, 0, 2, 2}, {0.5, 0, 0.25, 0.25}}};
  times.activation_s = times.gradient_s = {0.5};
  times.reduction_s = times.optimizer_s = {0, 0};
  const TimedPlan timed(graph, std::move(plan), times);
  const std::vector<ReplicaPass> passes = timed.passes();
  const auto busy = [&](std::size_t rank) {
    std::vector<TimeSpan> spans;
    for (const TimeSpan& span : passes[rank].spans) {
      if (span.end > span.start) spans.push_back(span);
    }
    return spans;
  };
  EXPECT_EQ(passes[0].spans.size(), timed.schedule.programs[0].size());
  EXPECT_DOUBLE_EQ(passes[0].compute_s, 3);
  EXPECT_DOUBLE_EQ(passes[1].compute_s, 2.5 + 6);
  EXPECT_DOUBLE_EQ(passes[2].compute_s, 1);
  EXPECT_EQ(busy(2).front(), (TimeSpan{1, 1.5}));
  EXPECT_GE(busy(0).back().start, 1 + 2 + 2);
}

}  // namespace
}  // namespace heteroperf
