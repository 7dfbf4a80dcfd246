#include "runners/schedule/search/list_scheduler.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/base/random.hpp"
#include "runners/schedule/check/validator.hpp"
#include "runners/schedule/generators/makers.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/report.hpp"

namespace heteroperf {
namespace {

ListRules limited(const PipelineGraph& graph, double limit) {
  ListRules rules;
  rules.memory_limit.assign(graph.ranks, limit);
  return rules;
}

void expect_sound(const Schedule& schedule, double limit) {
  const ScheduleChecks checks = check_schedule(schedule);
  EXPECT_TRUE(checks.complete);
  EXPECT_TRUE(checks.ordered);
  EXPECT_TRUE(checks.placed);
  EXPECT_TRUE(checks.collectives);
  for (const double peak : memory_peaks(schedule).memory) EXPECT_LE(peak, limit + 1e-6);
}

/// Segments on random ranks, edges forward, sometimes parts, unequal micro-batches, interactions.
PipelineGraph random_graph(RandomStream& random) {
  PipelineGraph graph;
  graph.ranks = 1 + static_cast<int>(random.below(4));
  graph.micro_batches = 1 + static_cast<int>(random.below(6));
  graph.parts = 1 + static_cast<int>(random.below(2));
  graph.latency = random.below(2) == 0 ? 0 : random.unit();
  const int segments = 1 + static_cast<int>(random.below(8));
  for (const SegmentId i : first_ids<SegmentId>(segments)) {
    Segment segment;
    segment.rank = static_cast<int>(random.below(graph.ranks));
    segment.forward = 3 * random.unit();
    segment.input_gradient = random.below(8) == 0 ? 0 : 3 * random.unit();
    segment.weight_gradient = random.below(4) == 0 ? 0 : 2 * random.unit();
    segment.activation = random.unit();
    graph.segments.push_back(segment);
    for (SegmentId from; from < i; ++from) {
      if (random.below(3) == 0) graph.edges.push_back({from, i, 0, random.below(6) != 0});
    }
  }
  if (random.below(2) == 0) {
    for (int i = 0; i < graph.micro_batches; ++i) {
      graph.micro_batch_scale.push_back(0.5 + random.unit());
    }
  }
  // Members that depend on each other may not wait for a set of several micro-batches at once, but
  // their forwards never wait for it.
  for (int i = 0; i < 2 && random.below(2) == 0; ++i) {
    Interaction interaction;
    interaction.members = {SegmentId(random.below(segments))};
    const SegmentId other(random.below(segments));
    if (other != interaction.members[0]) interaction.members.push_back(other);
    interaction.every = 1 + static_cast<int>(random.below(graph.micro_batches));
    interaction.cost = random.unit();
    graph.interactions.push_back(interaction);
  }
  normalise(graph);
  return graph;
}

/// The schedule that the rules give. Throws UserError where a limit admits no order.
Schedule listed(const PipelineGraph& graph, const ListRules& rules) {
  const OrderProblem problem(graph);
  ListScheduler scheduler(problem);
  if (!scheduler.run(rules)) throw scheduler.no_order(rules.memory_limit);
  OrderEvaluator evaluator(problem);
  EXPECT_TRUE(evaluator.evaluate(scheduler.order()));
  return problem.to_schedule(evaluator.sequence());
}

double least_limit(const PipelineGraph& graph) {
  const OrderProblem problem(graph);
  const ListScheduler scheduler(problem);
  double least = 0;
  for (int rank = 0; rank < graph.ranks; ++rank) {
    least = std::max(least, scheduler.least_limit(rank));
  }
  return least;
}

TEST(ListScheduler, SchedulesRandomGraphsWithinTheLeastMemory) {
  RandomStream random(1);
  for (int i = 0; i < 400; ++i) {
    const PipelineGraph graph = random_graph(random);
    const double limit = random.below(4) == 0 ? infinite : least_limit(graph) * (1 + random.unit());
    ListRules rules = limited(graph, limit);
    rules.age = 2 * random.unit();
    rules.patience.assign(graph.ranks, random.unit());
    rules.foresight.assign(graph.ranks, random.unit());
    SCOPED_TRACE(i);
    const Schedule schedule = listed(graph, rules);
    expect_sound(schedule, limit);
  }
}

TEST(ListScheduler, TimesAreThoseOfTheSimulator) {
  RandomStream random(2);
  for (int i = 0; i < 200; ++i) {
    const PipelineGraph graph = random_graph(random);
    const OrderProblem problem(graph);
    ListScheduler scheduler(problem);
    OrderEvaluator evaluator(problem);
    ASSERT_TRUE(scheduler.run(limited(graph, infinite)));
    ASSERT_TRUE(evaluator.evaluate(scheduler.order()));
    const Schedule schedule = problem.to_schedule(evaluator.sequence());
    const ScheduleReport times = report(schedule, simulate(schedule));
    EXPECT_NEAR(evaluator.times().makespan, times.makespan, 1e-9);
    EXPECT_NEAR(evaluator.times().longest_span, times.longest_span, 1e-9);
    // Waiting for a task that is on its way costs nothing but time already in the order.
    EXPECT_GE(scheduler.times().makespan, times.makespan - 1e-9);
    for (int rank = 0; rank < graph.ranks; ++rank) {
      EXPECT_NEAR(
          peak_memory(problem, evaluator.sequence().empty() ? scheduler.order() : scheduler.order(),
                      rank),
          memory_peaks(schedule).memory[rank], 1e-9);
    }
    EXPECT_EQ(problem.order_of(schedule), scheduler.order());
  }
}

TEST(OrderEvaluator, TimesTemplatesAsTheSimulatorDoes) {
  RandomStream random(3);
  for (int i = 0; i < 50; ++i) {
    ScheduleRequest request;
    request.ranks = 1 + static_cast<int>(random.below(8));
    request.micro_batches = 1 + static_cast<int>(random.below(20));
    request.costs = uniform_costs(request.ranks, 1, 1, 1, random.unit());
    for (double& cost : request.costs.forward) cost = 0.5 + random.unit();
    for (double& cost : request.costs.weight_gradient) cost = 0.5 + random.unit();
    const Schedule split = make_zb_h1(request), fused = make_1f1b(request);
    const OrderProblem problem(split.graph);
    OrderEvaluator evaluator(problem);
    ASSERT_TRUE(evaluator.evaluate(problem.order_of(split)));
    EXPECT_NEAR(evaluator.times().makespan, report(split, simulate(split)).makespan, 1e-9);
    // A B that leaves before its W is done is never later.
    ASSERT_TRUE(evaluator.evaluate(problem.order_of(fused)));
    EXPECT_LE(evaluator.times().makespan, report(fused, simulate(fused)).makespan + 1e-9);
  }
}

TEST(OrderEvaluator, RefusesAnOrderThatWaitsForItself) {
  const PipelineGraph graph =
      chain_graph(2, 2, 1, ChainPlacement::looped, uniform_costs(2, 1, 1, 1, 0));
  const OrderProblem problem(graph);
  ListScheduler scheduler(problem);
  ASSERT_TRUE(scheduler.run(limited(graph, infinite)));
  std::vector<std::int32_t> order = scheduler.order();
  std::reverse(order.begin(), order.begin() + problem.first(1));
  OrderEvaluator evaluator(problem);
  EXPECT_FALSE(evaluator.evaluate(order));
  EXPECT_TRUE(evaluator.evaluate(scheduler.order()));
}

TEST(ListScheduler, NeverSticksForMemoryOnChunks) {
  for (const ChainPlacement placement : {ChainPlacement::looped, ChainPlacement::zig_zag}) {
    for (int chunks = 1; chunks <= 6; ++chunks) {
      for (const double limit : {1.0, 1.25, 1.5, 2.0, 4.0}) {
        const PipelineGraph graph =
            chain_graph(5, 12, chunks, placement, uniform_costs(5, 1, 1.2, 0.7, 0.1));
        expect_sound(listed(graph, limited(graph, limit)), limit);
      }
    }
  }
}

TEST(ListScheduler, SaysWhichLimitAdmitsNoOrder) {
  const PipelineGraph graph =
      chain_graph(2, 4, 2, ChainPlacement::looped, uniform_costs(2, 1, 1, 1, 0));
  try {
    listed(graph, limited(graph, 0.75));
    FAIL() << "no error";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("rank 0 may hold 0.75 activations"), std::string::npos) << text;
    EXPECT_NE(text.find("Give a memory limit of 1 or more."), std::string::npos) << text;
  }
}

TEST(ListScheduler, InteractionsStandOnEveryMembersRank) {
  PipelineGraph graph;
  graph.ranks = 2;
  graph.micro_batches = 4;
  graph.segments.resize(2);
  graph.segments[1].rank = 1;
  graph.interactions = {{"loss", {0, 1}, 2, 0.5}};
  normalise(graph);
  const Schedule schedule = listed(graph, limited(graph, 2));
  expect_sound(schedule, 2);
  for (const std::vector<Instruction>& program : schedule.programs) {
    EXPECT_EQ(std::count_if(program.begin(), program.end(),
                            [](const Instruction& i) { return i.op == Op::interact; }),
              2);
    EXPECT_EQ(to_string(program[2].op), std::string("INTERACT"));
  }
  EXPECT_THROW(listed(graph, limited(graph, 1.5)), UserError);
}

}  // namespace
}  // namespace heteroperf
